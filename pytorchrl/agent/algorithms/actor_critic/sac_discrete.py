"""SAC for discrete actions, with exact expectations over them."""

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

    The paper's target of 0.98 suits a dozen actions or more, many of them equally good. With two actions, the better
    one would have a probability of at most 0.58, and the temperature would rise until rewards no longer matter: use 0.2
    to 0.5 there, or a decreasing schedule.

    Args:
        target_entropy_share: target entropy as a share of the largest one, the mean of log n over a batch, where n
            actions are allowed.
    """

    actions = "discrete"

    target_entropy_share: UnitIntervalOrSchedule = 0.98

    def policy_head(self) -> Head:
        """Return a categorical head."""
        return Policy()

    def make_critics(self) -> Ensemble:
        """Make Q-networks with a value for each action."""
        return self.actor.make_ensemble("critics", Values(huber_threshold=None), self.num_critics)

    def critic_outputs(self, rows: Rows) -> Sequence[ActionValues]:
        """Return the values of all actions."""
        values: Sequence[ActionValues] = self.critics(rows.now)
        return values

    def values_of_taken(self, outputs: Sequence[ActionValues], rows: Rows) -> Sequence[Value]:
        """Return the values of the actions taken."""
        return [critic.of(rows.action) for critic in outputs]

    def expect(self, rows: Rows) -> Expected:
        """Return the policy's expected value and its entropy."""
        policy = self.pi(rows.now)
        with torch.no_grad():
            values = [critic.values for critic in self.critics(rows.now)]
        return _expectation(policy, values)

    def expect_next(self, rows: Rows) -> Expected:
        """Return the policy's expected value by the target critics, and its entropy, in the next states."""
        return _expectation(self.pi(rows.next), [critic.values for critic in self.target_critics(rows.next)])

    def entropy_aimed_at(self, rows: Rows) -> float | Tensor:
        """Return the target of the mean entropy, in nats."""
        share, allowed = self.current(self.target_entropy_share), self.allowed_actions(rows.now)
        if allowed is None:
            return share * math.log(self.codec.size)
        return share * rows.mean(allowed.flags.sum(1, keepdim=True).log())


def _expectation(policy: Categorical, values: Sequence[Tensor]) -> Expected:
    """Return the exact expectation over actions of the minimum of values (N, n)."""
    value = (policy.probabilities * elementwise_minimum(values)).sum(1, keepdim=True)
    return Expected(ScalarValue(value), policy.entropy())
