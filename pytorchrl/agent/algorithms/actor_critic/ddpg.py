"""DDPG: deterministic policy gradients with a critic, a replay buffer and target networks."""

from typing import Any, ClassVar

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionValue, DeterministicPolicy
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.checks import ActionKind
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, GaussianNoise
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, UnitInterval


class DDPG(OffPolicyAlgorithm):
    """Lillicrap et al., "Continuous control with deep reinforcement learning" (arXiv 1509.02971).

    Actions are scaled from the bounds of the action space to [-1, 1]. Gaussian noise explores as well as the paper's,
    which is ``explorer=prl.OrnsteinUhlenbeck(0.2)``.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        polyak: weight that target networks keep in each of their updates.
        num_critics: number of critics; targets take their minimum.
        policy_delay: critic updates per update of the policy.
        target_update_interval: updates between updates of the target networks; None takes ``policy_delay``.
        exploration_noise: standard deviation of the noise on actions in [-1, 1].
    """

    actions: ClassVar[ActionKind] = "bounded"
    unchangeable = frozenset({"num_critics"})

    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    num_critics: Count = 1
    policy_delay: Count = 1
    target_update_interval: Count | None = None
    exploration_noise: NonNegativeOrSchedule = 0.1
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """Make policy, critics and their targets."""
        self.pi = self.actor.make("policy", self.policy_head(), acts=True)
        self.critics = self.make_critics()
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_pi = self.target(self.pi, every="_target_interval")
        self.target_critics = self.target(self.critics, every="_target_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against rewards plus values of the target policy's actions (equation 5)."""
        with torch.no_grad():
            next_value = smallest(self.target_critics(rows.next, self.target_pi(rows.next)))
            target = next_value.backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the negative mean value of the policy's actions by the first critic (equation 6)."""
        if (self.updates + 1) % self.policy_delay:
            return None
        with self.critics[0].frozen():
            loss = -rows.mean(self.critics[0](rows.now, self.pi(rows.now)).mean)
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})

    def policy_head(self) -> Head:
        """Return a deterministic head."""
        return DeterministicPolicy()

    def make_critics(self) -> Ensemble:
        """Make the critics, of observations and actions."""
        return self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return an action for each row."""
        return self.pi(view)

    def default_explorer(self) -> Explorer:
        """Return Gaussian noise on actions."""
        return GaussianNoise(self.exploration_noise)

    @property
    def _target_interval(self) -> int:
        return self.policy_delay if self.target_update_interval is None else self.target_update_interval
