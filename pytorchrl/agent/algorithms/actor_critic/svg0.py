"""SVG(0): a stochastic policy that climbs its critic's values through the actions drawn from it."""

from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import SquashedGaussianPolicy
from pytorchrl.agent.algorithms.actor_critic.parts.policy_and_critics import PolicyAndCritics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Explorer, Sample


class SVG0(PolicyAndCritics):
    """Heess et al., "Learning Continuous Control Policies by Stochastic Value Gradients" (arXiv 1510.09142), SVG(0).

    The paper's gradients pass through noise of the policy that is inferred from the actions taken; here, as those who
    follow it do, through fresh noise, so that replayed actions need not be the present policy's.
    """

    def policy_head(self) -> Head:
        """A squashed normal distribution."""
        return SquashedGaussianPolicy()

    def default_explorer(self) -> Explorer:
        """Draw actions from the policy."""
        return Sample()

    def next_action(self, rows: Rows) -> Tensor:
        """(N, *action): drawn from the target policy after the rows' actions."""
        action: Tensor = self.target_pi(rows.next).sample(self.generator)
        return action

    def policy_loss(self, rows: Rows) -> Tensor:
        """(): the negative value of drawn actions by the first critic, whose gradient passes through the drawing."""
        action = self.pi(rows.now).rsample(self.generator)
        with self.critics[0].frozen():
            return -rows.mean(self.critics[0](rows.now, action).mean)
