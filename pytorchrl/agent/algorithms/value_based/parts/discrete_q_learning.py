"""Base class of Q-learning over discrete actions."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.algorithms.value_based.parts.epsilon_greedy_q_learning import EpsilonGreedyQLearning


class DiscreteQLearning(EpsilonGreedyQLearning):
    """Q-learning over discrete actions, whose Q-network returns the values of all of them."""

    actions = "discrete"

    def head(self) -> Head:
        """Return the head of the Q-network."""
        return Values(self.huber_threshold)
