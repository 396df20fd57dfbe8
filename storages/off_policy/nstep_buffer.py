"""Replay of n steps at a time: rewards reach further back, at the price of what the policy then was."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core import windows
from storages.hyper_parameters import Count
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.sequences import Sequences
from storages.storage import Discounting, Environments


class NStepReplayBuffer(ReplayBuffer):
    """Uniform replay of n-step transitions (Sutton and Barto, "Reinforcement Learning", 2018, section 7.1).

    Single steps are stored; returns are summed when a batch is made, so ``n_step`` may change during a run. An end of
    an episode of either kind, and the newest step, end a window early; DISCOUNT says how long it is.

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        n_step: rewards in a return.
        sequences: make batches of sequences of steps, time first, instead of single transitions.
        directory: where it is kept on disk too, as :mod:`storages.persistent` says; None keeps it in memory alone.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut as well as the death of the process.
        allow_nonfinite: keep NaN and infinity in rewards and observations instead of refusing them.
    """

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        n_step: Count = 1,
        *,
        sequences: Sequences | None = None,
        directory: str | Path | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        self.n_step = n_step
        super().__init__(
            device,
            actor,
            algorithm,
            envs,
            size,
            sequences=sequences,
            directory=directory,
            commit_every=commit_every,
            durable=durable,
            allow_nonfinite=allow_nonfinite,
        )

    def _fields(
        self, transitions: NDArray[np.int64], keys: set[str] | None = None, apart: int | None = None
    ) -> dict[str, Any]:
        if self.n_step == 1:
            return super()._fields(transitions, keys, apart)
        return windows.n_steps(self._ring, transitions, self.n_step, self.algorithm.gamma, keys)
