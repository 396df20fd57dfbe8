"""SAC: a stochastic policy over bounded actions that is rewarded for its entropy, and critics of it."""

from collections.abc import Sequence

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue, SquashedGaussianPolicy
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import Expected, smallest
from pytorchrl.agent.algorithms.actor_critic.soft_actor_critic import SoftActorCritic
from pytorchrl.agent.algorithms.rows import Rows


class SAC(SoftActorCritic):
    """Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905), equations 5, 7 and 18.

    Entropies are those of actions scaled to (-1, 1), not of the bounds of the Box.

    Args:
        target_entropy: nats that the temperature aims at; None takes the negative number of an action's numbers.
    """

    actions = "bounded"

    target_entropy: float | None = None

    def policy_head(self) -> Head:
        """A normal, squashed into the bounds."""
        return SquashedGaussianPolicy()

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
