"""Munchausen-IQN: the logarithm of the policy is added to the reward, and quantiles of returns are learnt."""

from pytorchrl.agent.algorithms.value_based.iqn import IQN
from pytorchrl.agent.algorithms.value_based.munchausen_dqn import MunchausenDQN


class MunchausenIQN(MunchausenDQN, IQN):
    """Vieillard et al., "Munchausen Reinforcement Learning" (arXiv 2007.14430), appendix B.1.

    The policy is the softmax of the target network's means over fractions drawn to choose actions; the target is made
    of other fractions, each of its quantiles the mean over the policy's actions.
    """
