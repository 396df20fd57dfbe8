"""DQN: values of discrete actions, learnt from replayed transitions."""

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.q_learning import QLearning
from pytorchrl.agent.explorers import EpsilonGreedy, Explorer
from storages.hyper_parameters import Count, Positive, UnitIntervalOrSchedule
from storages.schedule import LinearSchedule


class DQN(QLearning):
    """Mnih et al., "Human-level control through deep reinforcement learning" (Nature 518, 2015).

    Args:
        epsilon: probability of a random action.
        double: choose the next action by the online network and value it by the target network (van Hasselt et al.,
            arXiv 1509.06461).
        huber_threshold: error from which on the loss is linear (Huber's); None for squares everywhere.
    """

    actions = "discrete"
    unchangeable = QLearning.unchangeable | {"huber_threshold"}

    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2)
    update_every: Count = 4
    double: bool = True
    huber_threshold: Positive | None = 1.0

    def head(self) -> Head:
        """How action values are represented."""
        return Values(self.huber_threshold)

    def default_explorer(self) -> Explorer:
        """A random action with probability epsilon."""
        return EpsilonGreedy(self.epsilon)

    def next_value(self, rows: Rows) -> Value:
        """The target network's values of the best next actions."""
        if not self.double:
            return super().next_value(rows)
        value: Value = self.q_target(rows.next).of(self.q(rows.next).greedy())
        return value
