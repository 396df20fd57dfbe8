"""SAC: a stochastic policy over bounded actions that is rewarded for its entropy, and critics of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue, DistributionHead, SquashedGaussianPolicy, check_bounded
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import Expected, smallest
from pytorchrl.agent.algorithms.actor_critic.soft_actor_critic import SoftActorCritic
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Explorer, drawing_from


class SAC(SoftActorCritic):
    """Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905), equations 5, 7 and 18.

    Entropies are those of actions scaled to (-1, 1), not of the bounds of the Box.

    Args:
        distribution: of the policy's actions, which lie within the bounds and have gradients.
        target_entropy: nats that the temperature aims at; None takes the negative number of an action's numbers.
    """

    actions = "bounded"

    unchangeable = SoftActorCritic.unchangeable | {"distribution"}

    distribution: DistributionHead = SquashedGaussianPolicy()
    target_entropy: float | None = None

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse distributions of actions without bounds."""
        super().check_hyper_parameters(hyper_parameters)
        check_bounded(hyper_parameters["distribution"], cls.__name__)

    def policy_head(self) -> Head:
        """The user's."""
        return self.distribution

    def default_explorer(self) -> Explorer:
        """Draw actions from the policy."""
        return drawing_from(self.distribution)

    def make_critics(self) -> Ensemble:
        """Networks of observation and action."""
        return self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)

    def judge(self, rows: Rows) -> tuple[Sequence[Value], Expected]:
        """Values of the actions taken, and the policy's reparameterised action (equation 9)."""
        values = self.critics(rows.now, rows.action)
        # The policy's gradient passes through the critics and leaves none behind: half of their work saved.
        with self.critics.frozen():
            return values, self._expect(rows.now, self.critics)

    def expect_next(self, rows: Rows) -> Expected:
        """Equation 3, the smallest target critic standing for the value."""
        return self._expect(rows.next, self.target_critics)

    def _expect(self, view: View, critics: Ensemble) -> Expected:
        """By one action drawn in each row."""
        action, log_prob = self.pi(view).sample_with_log_prob(self.generator)
        return Expected(smallest(critics(view, action)), -log_prob)

    def entropy_aimed_at(self) -> float:
        """The target entropy, in nats."""
        return -float(self.codec.size) if self.target_entropy is None else self.target_entropy
