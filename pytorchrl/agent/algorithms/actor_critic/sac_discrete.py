"""SAC over discrete actions, with exact expectations over them."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Policy, Values
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import ActionValues, Categorical, ScalarValue, Value
from pytorchrl.agent.algorithms.actor_critic.parts.critics import Expected, elementwise_minimum
from pytorchrl.agent.algorithms.actor_critic.parts.soft_actor_critic import SoftActorCritic
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import UnitIntervalOrSchedule


class SACDiscrete(SoftActorCritic):
    """Christodoulou, "Soft Actor-Critic for Discrete Action Settings" (arXiv 1910.07207), equations 10 to 12.

    The paper's share of 0.98 suits a dozen actions and more, and only where many of them are as good. Of two, it asks
    that the better one be taken at most 58 times of 100, and the temperature rises until rewards count for nothing:
    take 0.2 to 0.5 there, or a schedule that falls.

    Args:
        target_entropy_share: entropy that the temperature aims at, as a share of that of uniform actions, log n.
    """

    actions = "discrete"

    target_entropy_share: UnitIntervalOrSchedule = 0.98

    def policy_head(self) -> Head:
        """Probabilities of actions."""
        return Policy()

    def make_critics(self) -> Ensemble:
        """Networks of observations, with a value for each action."""
        return self.actor.make_ensemble("critics", Values(huber_threshold=None), self.num_critics)

    def judge(self, rows: Rows) -> Sequence[ActionValues]:
        """Values of all actions."""
        values: Sequence[ActionValues] = self.critics(rows.now)
        return values

    def values_of_taken(self, judged: Sequence[ActionValues], rows: Rows) -> Sequence[Value]:
        """Those of the actions taken among them."""
        return [critic.of(rows.action) for critic in judged]

    def expect(self, rows: Rows) -> Expected:
        """The policy's expectation over all actions."""
        policy = self.pi(rows.now)
        with torch.no_grad():
            values = [critic.values for critic in self.critics(rows.now)]
        return _expectation(policy, values)

    def expect_next(self, rows: Rows) -> Expected:
        """The policy's expectation of the target critics' values."""
        return _expectation(self.pi(rows.next), [critic.values for critic in self.target_critics(rows.next)])

    def entropy_aimed_at(self) -> float:
        """The share of log n, in nats."""
        return self.current(self.target_entropy_share) * math.log(self.codec.size)


def _expectation(policy: Categorical, values: Sequence[Tensor]) -> Expected:
    """Over all actions, of the smallest of values (N, n); there is no noise of drawn actions in it."""
    value = (policy.probabilities * elementwise_minimum(values)).sum(1, keepdim=True)
    return Expected(ScalarValue(value), policy.entropy())
