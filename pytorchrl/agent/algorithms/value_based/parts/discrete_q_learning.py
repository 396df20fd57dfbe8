"""What algorithms have in common that learn expected values of discrete actions, and act by them."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.algorithms.value_based.parts.q_learning import QLearning
from pytorchrl.agent.explorers import EpsilonGreedy, Explorer
from storages.component.hyper_parameters import Positive, UnitIntervalOrSchedule
from storages.component.schedule import LinearSchedule


class DiscreteQLearning(QLearning):
    """Takes the action of the largest value, or any.

    Args:
        epsilon: probability of a random action.
        huber_threshold: error from which on the loss is linear (Huber's); None for squares everywhere.
    """

    actions = "discrete"
    unchangeable = QLearning.unchangeable | {"huber_threshold"}

    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2)
    huber_threshold: Positive | None = 1.0

    def head(self) -> Head:
        """How action values are represented."""
        return Values(self.huber_threshold)

    def default_explorer(self) -> Explorer:
        """A random action with probability epsilon."""
        return EpsilonGreedy(self.epsilon)
