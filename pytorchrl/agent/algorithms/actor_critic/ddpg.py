"""DDPG: deterministic policy gradients with a critic, a replay buffer and target networks."""

from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import DeterministicPolicy
from pytorchrl.agent.algorithms.actor_critic.parts.actor_critic import ActorCritic
from pytorchrl.agent.algorithms.actor_critic.parts.deterministic_gradient import DeterministicGradient
from pytorchrl.agent.algorithms.actor_critic.parts.target_actor_critic import TargetActorCritic
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Explorer, GaussianNoise
from storages.component.hyper_parameters import NonNegativeOrSchedule


class DDPG(TargetActorCritic):
    """Lillicrap et al., "Continuous control with deep reinforcement learning" (arXiv 1509.02971).

    Gaussian noise explores as well as the paper's, which is ``explorer=prl.OrnsteinUhlenbeck(0.2)``.

    Args:
        exploration_noise: standard deviation of the noise on actions in [-1, 1].
    """

    exploration_noise: NonNegativeOrSchedule = 0.1

    def build(self) -> None:
        """Make the networks, and the policy gradient without autograd where possible."""
        super().build()
        with_graph = self.overrides(
            ActorCritic.losses_after_step, TargetActorCritic.policy_losses, DDPG.delayed_losses, DDPG.policy_loss
        )
        self.policy_gradient = DeterministicGradient(self.pi, self.critics[0], self.train_pi, with_graph=with_graph)

    def policy_head(self) -> Head:
        """Return a deterministic head."""
        return DeterministicPolicy()

    def default_explorer(self) -> Explorer:
        """Return Gaussian noise on actions."""
        return GaussianNoise(self.exploration_noise)

    def next_action(self, rows: Rows) -> Tensor:
        """Return the target policy's actions (N, *action) in the next states."""
        action: Tensor = self.target_pi(rows.next)
        return action

    def delayed_losses(self, rows: Rows) -> Losses:
        """Return the policy's loss, with its gradient where that can be computed without autograd."""
        losses = self.policy_gradient(rows)
        return super().delayed_losses(rows) if losses is None else losses

    def policy_loss(self, rows: Rows) -> Tensor:
        """Return the negative mean Q-value () of the policy's actions by the first critic (equation 6)."""
        with self.critics[0].frozen():
            return -rows.mean(self.critics[0](rows.now, self.pi(rows.now)).mean)
