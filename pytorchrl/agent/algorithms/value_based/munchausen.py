"""Munchausen reinforcement learning, on DQN and IQN.

MunchausenDQN: soft DQN with the scaled log-policy added to the reward.
MunchausenIQN: IQN with the scaled log-policy added to the reward.
"""

from typing import Annotated, Any, ClassVar

from torch import Tensor

from pytorchrl.agent.actors.outputs import ActionValues, Value
from pytorchrl.agent.algorithms.off_policy import Preset
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.algorithms.value_based.iqn import IQN
from storages.component.factory import make_factory
from storages.component.hyper_parameters import Positive, UnitInterval, Within
from storages.component.schedule import PiecewiseSchedule


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


_UNLIKE_IQN: dict[str, Any] = {
    "epsilon": PiecewiseSchedule(((20_000, 1.0), (270_000, 0.01)), positions="steps"),
    "target_update_interval": 2_000,
}


class MunchausenIQN(MunchausenDQN, IQN):
    """Vieillard et al., "Munchausen Reinforcement Learning" (arXiv 2007.14430), appendix B.1.

    The policy is the softmax of the target network's mean values over the fractions sampled for action selection. The
    target uses other fractions; each of its quantiles is the expectation over the policy's actions.
    """

    @classmethod
    def paper(cls, capacity: int = 1_000_000, num_envs: int = 1) -> Preset:
        """The paper's settings for Atari with clipped rewards and stacks of 4 frames, and 50 million transitions.

        Those of :meth:`IQN.paper`, but for the intervals of its authors' code (based on Dopamine): epsilon falls within
        250,000 transitions, and the target network is copied every 8,000 transitions, or 2,000 updates. Its agent
        samples actions from the policy where it does not explore by epsilon; here they are greedy. Arguments as of
        :meth:`DQN.nature`.
        """
        preset = super().paper(capacity, num_envs)
        settings = preset["algo_factory"].hyper_parameters | _UNLIKE_IQN
        return Preset(
            algo_factory=make_factory(cls, (), settings),
            actor_factory=preset["actor_factory"],
            storage_factory=preset["storage_factory"],
        )
