"""Replay of n steps at a time: rewards reach further back, at the price of what the policy then was."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from storages.component.hyper_parameters import Count, CountOrZero
from storages.core.parts import Window
from storages.core.windows.n_step import NSteps
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.storage import Discounting, Environments
from storages.windows import Episodes, Sequences


class NStepReplayBuffer(ReplayBuffer):
    """Uniform replay of n-step transitions (Sutton and Barto, "Reinforcement Learning", 2018, section 7.1).

    Single steps are stored; returns are summed when a batch is made, so ``n_step`` may change during a run. An end of
    an episode of either kind, and the newest step, end a window early; DISCOUNT says how long it is.

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        n_step: rewards in a return; `sys.maxsize` sums them up to the end of the episode.
        sequences: make batches of sequences of steps, or of whole episodes, instead of single transitions.
        prefetch: batches of an update phase that a thread makes ahead of the learner; they are the same ones.
        keep_on_device: keep observations and hidden states on ``device`` too, and make batches of them there.
        directory: where it is kept on disk too, as :mod:`storages.persistent` says; None keeps it in memory alone.
        commit_every: steps that are missing on disk at most.
        durable: whether what is there survives a power cut as well as the death of the process.
        allow_nonfinite: keep NaN and infinity in observations, actions, rewards and values instead of refusing them.
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
        sequences: Sequences | Episodes | None = None,
        prefetch: CountOrZero = 0,
        keep_on_device: bool = False,
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
            prefetch=prefetch,
            keep_on_device=keep_on_device,
            directory=directory,
            commit_every=commit_every,
            durable=durable,
            allow_nonfinite=allow_nonfinite,
        )

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse windows that reach beyond what a batch holds, too."""
        super().check_hyper_parameters(hyper_parameters)
        cls._refuse_windows_beyond_packed_pieces(hyper_parameters["n_step"], hyper_parameters["sequences"])

    def update_storage_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter while the storage is in use.

        Raises:
            ValueError: there is no such hyper-parameter, it cannot change, or the value is outside its range.
        """
        if name == "n_step":
            self._refuse_windows_beyond_packed_pieces(value, self.sequences)
        super().update_storage_parameter(name, value)

    @classmethod
    def _refuse_windows_beyond_packed_pieces(cls, n_step: Any, sequences: Any) -> None:
        if n_step != 1 and isinstance(sequences, Episodes) and sequences.packed and sequences.longest is not None:
            raise ValueError(
                f"{cls.__name__}: with {sequences} n_step must be 1, got {n_step}: windows reach beyond a piece, and "
                f"packed batches hold no steps that lead there; give packed=False or longest=None"
            )

    def make_steps(self) -> Window:
        """Make windows of ``n_step`` steps."""
        return NSteps(self.n_step)
