"""Replay that emphasises recent experience (ERE)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from storages.component.declared import parameter
from storages.component.hyper_parameters import WholeCount, Within
from storages.core.parts import Sampler
from storages.core.sampling.recency import Recency
from storages.off_policy.per_buffer import PERBuffer
from storages.transition import Batch


class EREBuffer(PERBuffer):
    """Emphasising recent experience: Wang and Ross, "Boosting Soft Actor-Critic" (arXiv 1906.04009).

    Update ``k`` of an update phase of ``K`` draws from the newest ``max(N * eta**(1000 k / K), cmin)`` of ``N``
    transitions, uniformly, or by priority where ``alpha`` is not 0.

    Args:
        eta: how fast sampling concentrates on recent transitions; 1 for no emphasis; the paper recommends 0.994 to
            0.999.
        cmin: smallest number of newest transitions to draw from.
        adapt_eta: anneal eta between its value here, while returns improve as fast as ever, and 1, when they do not.
    """

    eta: Annotated[float, Within(0, 1)] = parameter(default=1.0, kw_only=False)
    cmin: WholeCount = parameter(default=5_000, kw_only=False)
    adapt_eta: bool = False

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse draws in passes over a range that changes with every batch, too."""
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["draws"] == "passes" and (hyper_parameters["eta"] < 1 or hyper_parameters["adapt_eta"]):
            raise ValueError(
                f"{cls.__name__}: eta must be 1 and adapt_eta False with draws='passes', got "
                f"eta={hyper_parameters['eta']:g}: the transitions to draw from would change within a pass"
            )

    def make_sampler(self) -> Sampler:
        """Make the prioritised sampler, limited to the newest transitions."""
        self.recency = Recency()
        return super().make_sampler()

    def configure(self) -> None:
        """Pass the current hyper-parameters on to the parts."""
        super().configure()
        assert self.recency is not None
        self.recency.eta, self.recency.cmin, self.recency.adapts = self.eta, self.cmin, self.adapt_eta

    @property
    def current_eta(self) -> float:
        """Current value of eta: ``eta`` itself unless it adapts."""
        assert self.recency is not None
        return self.recency.current_eta

    def update_eta(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Adapt eta to the improvement of returns, if it adapts; return ``info`` with "storage/eta".

        Args:
            info: "train/return" is the mean return of the training episodes since the last call; without it, eta stays.
        """
        assert self.recency is not None
        if "train/return" in info:
            self.observers.before_change()
            self.recency.improvement.observe(float(info["train/return"]))
        return {**info, "storage/eta": self.current_eta}

    def after_episodes(self, returns: Sequence[float]) -> None:
        """Receive the undiscounted returns of training episodes that have ended."""
        if self.adapt_eta:
            self.update_eta({"train/return": float(np.mean(returns))})

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Update priorities as :class:`PERBuffer` does, and add the current eta to the metrics."""
        return {**super().after_gradients(batch, info), "storage/eta": self.current_eta}
