"""Munchausen-DQN: the logarithm of the policy is added to the reward."""

from typing import Annotated, ClassVar

from torch import Tensor

from pytorchrl.agent.actors.outputs import ActionValues, Value
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Positive, UnitInterval, Within


class MunchausenDQN(DQN):
    """Vieillard et al., "Munchausen Reinforcement Learning" (arXiv 2007.14430).

    The policy is the softmax of the target network's values. Where rewards of several steps are summed, what is added
    is that of the first action: of those that follow, no observations are stored.

    Args:
        alpha: part of the scaled log-policy that is added to the reward.
        temperature: of the policy (tau), in the unit of the values.
        clip_min: the scaled log-policy (tau log pi) counts as at least this (l_0).
    """

    double: ClassVar[bool] = False  # type: ignore[misc]  # no action is chosen
    alpha: UnitInterval = 0.9
    temperature: Positive = 0.03
    clip_min: Annotated[float, Within(float("-inf"), 0)] = -1.0

    def target_value(self, rows: Rows) -> Value:
        """Equation 1: reward and bonus, plus the discounted value and entropy of the policy that follows."""
        _, log_policy = self.scaled_log_policy(self.q_target(rows.now))
        bonus = self.alpha * log_policy.gather(1, rows.action).clamp(self.clip_min, 0)
        next_values: ActionValues = self.q_target(rows.next)
        policy, log_policy = self.scaled_log_policy(next_values)
        entropy = -(policy * log_policy).sum(1, keepdim=True)
        return next_values.expectation(policy).backup(rows.reward + bonus + rows.discount * entropy, rows.discount)

    def scaled_log_policy(self, values: ActionValues) -> tuple[Tensor, Tensor]:
        """(N, n) each: the softmax policy of action values, and its logarithm times the temperature."""
        # Appendix B.1: the largest value is taken off first, so that no exponential overflows.
        expected = values.values
        advantage = expected - expected.max(1, keepdim=True).values
        log_partition = (advantage / self.temperature).logsumexp(1, keepdim=True)
        log_policy = advantage - self.temperature * log_partition
        return (log_policy / self.temperature).exp(), log_policy
