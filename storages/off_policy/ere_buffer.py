"""Replay that emphasises recent experience: the further an update phase has come, the newer what it draws from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch

from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    InitialError,
    NonNegative,
    UnitIntervalOrSchedule,
    Within,
)
from storages.core.parts import Sampler
from storages.core.sampling.recency import Recency
from storages.off_policy.per_buffer import PERBuffer
from storages.storage import Discounting, Environments
from storages.transition import Batch
from storages.windows import Episodes, Sequences


class EREBuffer(PERBuffer):
    """Emphasising recent experience: Wang and Ross, "Boosting Soft Actor-Critic" (arXiv 1906.04009).

    Update ``k`` of an update phase of ``K`` draws from the newest ``max(N * eta**(1000 k / K), cmin)`` of ``N``
    transitions, uniformly, or by priority where ``alpha`` is not 0.

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        n_step: rewards in a return.
        epsilon: added to errors.
        alpha: 0 draws uniformly, 1 in proportion to errors.
        beta: how much importance weights make up for it, from 0 to 1.
        default_error: error of a transition that no update has met yet; it counts as at most the largest error of any
            update so far, once there is one. "largest": that one. "first": such transitions are drawn before others.
        eta: 1 draws from everything; the paper recommends 0.994 to 0.999.
        cmin: transitions that are drawn from at least.
        adapt_eta: let eta move between its value here, while returns rise as fast as ever, and 1, when they do not.
        weights_over: what the largest weight is 1 of: all that is "stored", or the "batch".
        stratified: draw each row of a batch from its own part of the whole priority instead of independently.
        sequences: make batches of sequences of steps, or of whole episodes, instead of single transitions.
        prefetch: how many batches of an update phase a thread makes ahead while the learner computes with one; where
            ``alpha`` is not 0, each is drawn before the errors of the last ``prefetch`` updates are known.
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
        epsilon: NonNegative = 0.0,
        alpha: UnitIntervalOrSchedule = 0.0,
        beta: UnitIntervalOrSchedule = 1.0,
        default_error: InitialError = 1_000_000.0,
        eta: Annotated[float, Within(0, 1)] = 1.0,
        cmin: Count = 5_000,
        *,
        adapt_eta: bool = False,
        weights_over: Literal["stored", "batch"] = "stored",
        stratified: bool = True,
        sequences: Sequences | Episodes | None = None,
        prefetch: CountOrZero = 0,
        keep_on_device: bool = False,
        directory: str | Path | None = None,
        commit_every: Count = 1_000,
        durable: bool = False,
        allow_nonfinite: bool = False,
    ) -> None:
        self.eta = eta
        self.cmin = cmin
        self.adapt_eta = adapt_eta
        super().__init__(
            device,
            actor,
            algorithm,
            envs,
            size,
            n_step,
            epsilon,
            alpha,
            beta,
            default_error,
            weights_over=weights_over,
            stratified=stratified,
            sequences=sequences,
            prefetch=prefetch,
            keep_on_device=keep_on_device,
            directory=directory,
            commit_every=commit_every,
            durable=durable,
            allow_nonfinite=allow_nonfinite,
        )

    def make_sampler(self) -> Sampler:
        """Make the sampler by priority, of the newest transitions alone."""
        self.recency = Recency()
        return super().make_sampler()

    def configure(self) -> None:
        """Give the parts the present values of hyper-parameters."""
        super().configure()
        assert self.recency is not None
        self.recency.eta, self.recency.cmin, self.recency.adapts = self.eta, self.cmin, self.adapt_eta

    @property
    def current_eta(self) -> float:
        """Present value of eta: ``eta`` itself unless it adapts."""
        assert self.recency is not None
        return self.recency.current_eta

    def update_eta(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Adapt eta to how fast returns rise, if it adapts; returns ``info`` with "storage/eta".

        Args:
            info: "train/return" is the mean return of the training episodes since the last call; without it, eta stays.
        """
        assert self.recency is not None
        if "train/return" in info:
            self._tell_of_change()
            self.recency.improvement.observe(float(info["train/return"]))
        return {**info, "storage/eta": self.current_eta}

    def after_episodes(self, returns: Sequence[float]) -> None:
        """Called when training episodes have ended, with the sums of their rewards."""
        if self.adapt_eta:
            self.update_eta({"train/return": float(np.mean(returns))})

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """As for any prioritised storage, and the present value of eta."""
        return {**super().after_gradients(batch, info), "storage/eta": self.current_eta}
