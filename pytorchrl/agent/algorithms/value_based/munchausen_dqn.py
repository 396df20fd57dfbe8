"""Munchausen-DQN: soft DQN with the scaled log-policy added to the reward."""

from typing import Annotated, ClassVar

from torch import Tensor

from pytorchrl.agent.actors.outputs import ActionValues, Value
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Positive, UnitInterval, Within


class MunchausenDQN(DQN):
    """Vieillard et al., "Munchausen Reinforcement Learning" (arXiv 2007.14430).

    The policy is the softmax of the target network's values. With n-step returns, only the first action's log-policy is
    added, because a batch does not hold the observations in between.

    Args:
        alpha: weight of the scaled log-policy in the reward.
        temperature: of the policy (tau), in the unit of the values.
        clip_min: lower bound of the scaled log-policy tau log pi (l_0).
    """

    double: ClassVar[bool] = False  # type: ignore[misc]  # no action is selected
    alpha: UnitInterval = 0.9
    temperature: Positive = 0.03
    clip_min: Annotated[float, Within(float("-inf"), 0)] = -1.0

    def target_value(self, rows: Rows) -> Value:
        """Return equation 1: reward, Munchausen bonus, and the discounted soft value of the next state."""
        _, log_policy = self.scaled_log_policy(self.q_target(rows.now))
        bonus = self.alpha * log_policy.gather(1, rows.action).clamp(self.clip_min, 0)
        next_values: ActionValues = self.q_target(rows.next)
        policy, log_policy = self.scaled_log_policy(next_values)
        entropy = -(policy * log_policy).sum(1, keepdim=True)
        return next_values.expectation(policy).backup(rows.reward + bonus + rows.discount * entropy, rows.discount)

    def scaled_log_policy(self, values: ActionValues) -> tuple[Tensor, Tensor]:
        """Return the softmax policy of action values and its log times the temperature, (N, n) each."""
        # Appendix B.1: subtracting the largest value first keeps exponentials from overflowing.
        expected = values.values
        advantage = expected - expected.max(1, keepdim=True).values
        log_partition = (advantage / self.temperature).logsumexp(1, keepdim=True)
        log_policy = advantage - self.temperature * log_partition
        return (log_policy / self.temperature).exp(), log_policy
