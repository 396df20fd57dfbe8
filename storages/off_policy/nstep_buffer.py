"""Replay of n-step transitions, whose returns are not corrected for being off-policy."""

from collections.abc import Mapping
from typing import Any

from storages.component.declared import parameter
from storages.component.hyper_parameters import WholeCount
from storages.core.parts import Window
from storages.core.windows.n_step import NSteps
from storages.off_policy.replay_buffer import ReplayBuffer


class NStepReplayBuffer(ReplayBuffer):
    """Uniform replay of n-step transitions (Sutton and Barto, "Reinforcement Learning", 2018, section 7.1).

    Single steps are stored, and n-step returns are computed when a batch is made, so ``n_step`` may change during a
    run. A termination, a truncation and the newest step end a window early; DISCOUNT is ``gamma**k`` for its ``k``
    steps.

    Args:
        n_step: rewards in a return; `sys.maxsize` sums to the end of the episode (Monte Carlo returns).
    """

    n_step: WholeCount = parameter(default=1, kw_only=False)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse n-step windows that reach beyond the steps of a packed batch, too."""
        super().check_hyper_parameters(hyper_parameters)
        n_step, sequences = hyper_parameters["n_step"], hyper_parameters["sequences"]
        if n_step != 1 and sequences is not None and sequences.omits_following_steps:
            raise ValueError(
                f"{cls.__name__}: with {sequences} n_step must be 1, got {n_step}: windows reach beyond a piece, and "
                f"packed batches hold no steps after it; give packed=False, or neither longest nor max_steps"
            )

    def make_steps(self) -> Window:
        """Make the n-step window."""
        return NSteps(self.n_step)
