"""Base class of Q-learning over discrete actions."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.algorithms.value_based.parts.q_learning import QLearning
from pytorchrl.agent.explorers import EpsilonGreedy, Explorer
from storages.component.hyper_parameters import Positive, UnitIntervalOrSchedule
from storages.component.schedule import LinearSchedule


class DiscreteQLearning(QLearning):
    """Q-learning over discrete actions with epsilon-greedy exploration.

    Args:
        epsilon: probability of a random action.
        huber_threshold: error beyond which the Huber loss is linear; None takes the squared loss.
    """

    actions = "discrete"
    unchangeable = QLearning.unchangeable | {"huber_threshold"}

    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2)
    huber_threshold: Positive | None = 1.0

    def head(self) -> Head:
        """Return the head of the Q-network."""
        return Values(self.huber_threshold)

    def default_explorer(self) -> Explorer:
        """Return epsilon-greedy exploration."""
        return EpsilonGreedy(self.epsilon)
