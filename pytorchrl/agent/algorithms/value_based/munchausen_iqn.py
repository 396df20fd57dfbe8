"""Munchausen-IQN: IQN with the scaled log-policy added to the reward."""

from typing import Any

from pytorchrl.agent.algorithms.value_based.iqn import IQN
from pytorchrl.agent.algorithms.value_based.munchausen_dqn import MunchausenDQN
from pytorchrl.agent.preset import Preset
from storages.component.factory import make_factory
from storages.component.schedule import PiecewiseSchedule

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
