"""REINFORCE: the gradient of the log probability of what was done, times what came of it."""

from collections.abc import Mapping
from typing import ClassVar

from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.parts.policy_and_value import PolicyAndValue
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.update_plan import EveryEpisodes, UpdatePlan
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule
from storages.transition import RET


class REINFORCE(PolicyAndValue):
    """Williams, "Simple Statistical Gradient-Following Algorithms for Connectionist RL" (1992), with returns-to-go.

    The return of an episode that a limit cut, or that still runs, leans on the value function from there on;
    ``VanillaOnPolicyBuffer`` with ``cut_episodes="drop"`` leaves such episodes out.

    Args:
        episodes_per_update: episodes between updates; fewer where the storage is full before.
        baseline: take the value function off returns, which ``normalize_advantages`` then normalises; False leaves
            returns as they are.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", partial=True)}

    lr: NonNegativeOrSchedule = 3e-3
    episodes_per_update: Count = 8
    baseline: bool = True

    def update_plan(self) -> UpdatePlan:
        """After a number of episodes."""
        return EveryEpisodes(self.episodes_per_update)

    def losses(self, rows: Rows) -> Losses:
        """The likelihood-ratio gradient, and the value function's error."""
        return self.likelihood_ratio(rows, self.advantages(rows) if self.baseline else rows[RET])
