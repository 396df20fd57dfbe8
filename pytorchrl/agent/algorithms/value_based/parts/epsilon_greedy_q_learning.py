"""Base class of Q-learning with epsilon-greedy exploration."""

from pytorchrl.agent.algorithms.value_based.parts.q_learning import QLearning
from pytorchrl.agent.explorers import EpsilonGreedy, Explorer
from storages.component.hyper_parameters import Positive, UnitIntervalOrSchedule
from storages.component.schedule import LinearSchedule


class EpsilonGreedyQLearning(QLearning):
    """Q-learning of expected returns, with epsilon-greedy exploration.

    Args:
        epsilon: probability of a random action.
        huber_threshold: error beyond which the Huber loss is linear; None takes the squared loss.
    """

    unchangeable = frozenset({"huber_threshold"})

    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2)
    huber_threshold: Positive | None = 1.0

    def default_explorer(self) -> Explorer:
        """Return epsilon-greedy exploration."""
        return EpsilonGreedy(self.epsilon)
