"""SVG(0): a stochastic policy with reparameterised gradients through its critic."""

from typing import ClassVar

import torch

from pytorchrl.agent.actors.heads import ActionValue, SquashedGaussianPolicy
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.action_spaces import ActionKind
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, UnitInterval


class SVG0(OffPolicyAlgorithm):
    """Heess et al., "Learning Continuous Control Policies by Stochastic Value Gradients" (arXiv 1510.09142), SVG(0).

    The paper infers the noise of the actions taken. Here, as in later work, noise is sampled anew, so that replayed
    actions need not come from the current policy. Actions are scaled from the bounds of the action space to [-1, 1].

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        polyak: weight that target networks keep in each of their updates.
        num_critics: number of critics; targets take their minimum.
        policy_delay: critic updates per update of the policy.
        target_update_interval: updates between updates of the target networks; None takes ``policy_delay``.
    """

    actions: ClassVar[ActionKind] = "bounded"
    unchangeable = frozenset({"num_critics"})

    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    num_critics: Count = 1
    policy_delay: Count = 1
    target_update_interval: Count | None = None
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """Make policy, critics and their targets."""
        self.pi = self.actor.make("policy", SquashedGaussianPolicy(), acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_pi = self.target(self.pi, every="_target_interval")
        self.target_critics = self.target(self.critics, every="_target_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against rewards plus values of the target policy's sampled actions."""
        with torch.no_grad():
            next_action = self.target_pi(rows.next).sample(self.generator)
            target = smallest(self.target_critics(rows.next, next_action)).backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "q_value": rows.mean(values[0].mean.detach())}
        return Losses({self.train_critics: loss}, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the negative mean value of reparameterised actions by the first critic."""
        if (self.updates + 1) % self.policy_delay:
            return None
        action = self.pi(rows.now).rsample(self.generator)
        with self.critics[0].frozen():
            loss = -rows.mean(self.critics[0](rows.now, action).mean)
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """Return the distribution of actions."""
        policy: Distribution = self.pi(view)
        return policy

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return Sample()

    @property
    def _target_interval(self) -> int:
        return self.policy_delay if self.target_update_interval is None else self.target_update_interval
