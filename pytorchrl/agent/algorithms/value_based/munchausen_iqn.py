"""Munchausen-IQN: IQN with the scaled log-policy added to the reward."""

from pytorchrl.agent.algorithms.value_based.iqn import IQN
from pytorchrl.agent.algorithms.value_based.munchausen_dqn import MunchausenDQN


class MunchausenIQN(MunchausenDQN, IQN):
    """Vieillard et al., "Munchausen Reinforcement Learning" (arXiv 2007.14430), appendix B.1.

    The policy is the softmax of the target network's mean values over the fractions sampled for action selection. The
    target uses other fractions; each of its quantiles is the expectation over the policy's actions.
    """
