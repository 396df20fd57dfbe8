"""Replay of n steps at a time: rewards reach further back, at the price of what the policy then was."""

from collections.abc import Mapping
from typing import Any

from storages.component.generated_init import parameter, with_hyper_parameters
from storages.component.hyper_parameters import Count
from storages.core.parts import Window
from storages.core.windows.n_step import NSteps
from storages.off_policy.replay_buffer import ReplayBuffer
from storages.windows import Episodes


@with_hyper_parameters
class NStepReplayBuffer(ReplayBuffer):
    """Uniform replay of n-step transitions (Sutton and Barto, "Reinforcement Learning", 2018, section 7.1).

    Single steps are stored; returns are summed when a batch is made, so ``n_step`` may change during a run. An end of
    an episode of either kind, and the newest step, end a window early; DISCOUNT says how long it is.

    Args:
        n_step: rewards in a return; `sys.maxsize` sums them up to the end of the episode.
    """

    n_step: Count = parameter(default=1, kw_only=False)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse windows that reach beyond what a batch holds, too."""
        super().check_hyper_parameters(hyper_parameters)
        n_step, sequences = hyper_parameters["n_step"], hyper_parameters["sequences"]
        if n_step != 1 and isinstance(sequences, Episodes) and sequences.packed and sequences.in_pieces:
            raise ValueError(
                f"{cls.__name__}: with {sequences} n_step must be 1, got {n_step}: windows reach beyond a piece, and "
                f"packed batches hold no steps that lead there; give packed=False, or neither longest nor max_steps"
            )

    def make_steps(self) -> Window:
        """Make windows of ``n_step`` steps."""
        return NSteps(self.n_step)
