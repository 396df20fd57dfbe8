"""What algorithms have in common that learn one network of action values from replayed transitions."""

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValueFunction, Value
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.parts.q_learning import QLearning
from storages.component.hyper_parameters import Count


class ReplayedQLearning(QLearning, OffPolicyAlgorithm):
    """Moves the values of actions to reward plus discounted target values of what followed.

    Args:
        target_update_interval: batches between updates of the target network.
    """

    mini_batch_size: Count = 128
    target_update_interval: Count = 1

    def target_network(self) -> Network:
        """A copy that follows every so many batches."""
        target: Network = self.target(self.q, every="target_update_interval")
        return target

    def target_value(self, rows: Rows) -> Value:
        """What the values of the actions taken are to become: reward plus the discounted value of what followed."""
        return self.next_value(rows).backup(rows.reward, rows.discount)

    def next_value(self, rows: Rows) -> Value:
        """The target network's values of the actions that it finds best."""
        values: ActionValueFunction = self.q_target(rows.next)
        return values.best()
