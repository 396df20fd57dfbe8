"""What soft actor-critics of all action spaces have in common."""

from abc import abstractmethod
from collections.abc import Sequence

import torch

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import Distribution, ScalarValue, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import Expected, errors_of_critics, loss_of_critics
from pytorchrl.agent.algorithms.actor_critic.maximum_entropy import MaximumEntropy
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, UnitInterval


class SoftActorCritic(MaximumEntropy):
    """A stochastic policy that is rewarded for its entropy, and critics of it.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        polyak: how much of the target critics stays at each update.
        num_critics: critics, the smallest of whose values counts.
    """

    unchangeable = MaximumEntropy.unchangeable | {"num_critics"}

    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    num_critics: Count = 2
    test_every: CountOrZero = 5_000

    @abstractmethod
    def policy_head(self) -> Head:
        """The distribution of actions."""

    @abstractmethod
    def make_critics(self) -> Ensemble:
        """Networks that value actions."""

    @abstractmethod
    def judge(self, rows: Rows) -> tuple[Sequence[Value], Expected]:
        """The critics' values of the actions taken, and what follows from the policy now, with gradients in it only."""

    @abstractmethod
    def expect_next(self, rows: Rows) -> Expected:
        """What follows from the policy in the next states, by the target critics."""

    def build(self) -> None:
        """A policy, critics with their targets, and the temperature's logarithm."""
        self.pi = self.actor.make("policy", self.policy_head(), acts=True)
        self.critics = self.make_critics()
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics)
        super().build()

    def default_explorer(self) -> Explorer:
        """Draw actions from the policy."""
        return Sample()

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """The distribution of actions."""
        policy: Distribution = self.pi(view)
        return policy

    def losses(self, rows: Rows) -> Losses:
        """The losses of critics, policy and temperature, all at the same weights."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            after = self.expect_next(rows)
            target = ScalarValue(after.value + alpha * after.entropy).backup(rows.reward, rows.discount)
        values, now = self.judge(rows)
        policy_loss = -rows.mean(now.value + alpha * now.entropy)
        critic_loss = loss_of_critics(values, target, rows)
        entropy = rows.mean(now.entropy.detach())
        losses = {self.train_critics: critic_loss, self.train_pi: policy_loss, **self.temperature_loss(entropy)}
        metrics = {
            "critic_loss": critic_loss.detach(),
            "policy_loss": policy_loss.detach(),
            "q_value": rows.mean(now.value.detach()),
            "entropy": entropy,
            "alpha": alpha[0],
        }
        return Losses(losses, metrics, errors_of_critics(values, target, rows))
