"""Base class of off-policy Q-learning with a replay buffer."""

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValueFunction, Value
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.parts.q_learning import QLearning
from storages.component.hyper_parameters import Count


class ReplayedQLearning(QLearning, OffPolicyAlgorithm):
    """Q-learning from replayed transitions, with TD targets of a target network.

    Args:
        target_update_interval: batches between updates of the target network.
    """

    mini_batch_size: Count = 128
    target_update_interval: Count = 1

    def target_network(self) -> Network:
        """Return a target network that is updated every ``target_update_interval`` batches."""
        target: Network = self.target(self.q, every="target_update_interval")
        return target

    def target_value(self, rows: Rows) -> Value:
        """Return the TD targets: reward plus discounted value of the next state."""
        return self.next_value(rows).backup(rows.reward, rows.discount)

    def next_value(self, rows: Rows) -> Value:
        """Return the target network's values of its greedy next actions."""
        values: ActionValueFunction = self.q_target(rows.next)
        return values.best()
