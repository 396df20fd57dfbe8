"""SVG(0): a stochastic policy with reparameterised gradients through its critic."""

from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import SquashedGaussianPolicy
from pytorchrl.agent.algorithms.actor_critic.parts.target_actor_critic import TargetActorCritic
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Explorer, Sample


class SVG0(TargetActorCritic):
    """Heess et al., "Learning Continuous Control Policies by Stochastic Value Gradients" (arXiv 1510.09142), SVG(0).

    The paper infers the noise of the actions taken. Here, as in later work, noise is sampled anew, so that replayed
    actions need not come from the current policy.
    """

    def policy_head(self) -> Head:
        """Return a squashed Gaussian head."""
        return SquashedGaussianPolicy()

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return Sample()

    def next_action(self, rows: Rows) -> Tensor:
        """Return actions (N, *action) sampled from the target policy in the next states."""
        action: Tensor = self.target_pi(rows.next).sample(self.generator)
        return action

    def policy_loss(self, rows: Rows) -> Tensor:
        """Return the negative mean Q-value () of reparameterised actions by the first critic."""
        action = self.pi(rows.now).rsample(self.generator)
        with self.critics[0].frozen():
            return -rows.mean(self.critics[0](rows.now, action).mean)
