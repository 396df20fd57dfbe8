"""AWAC: advantage-weighted regression of actions, for offline training and online fine-tuning."""

from torch import Tensor

from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.offline.parts.weighted_regression import SampledAdvantage
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, Positive


class AWAC(SampledAdvantage):
    """Nair et al., "AWAC: Accelerating Online RL with Offline Datasets" (arXiv 2006.09359), equation 13.

    As in the authors' code, weights are a softmax over the batch, scaled to a mean of 1.

    Args:
        temperature: divides advantages in the exponential weights (lambda).
    """

    temperature: Positive = 1.0
    mini_batch_size: Count = 1024

    def next_value(self, rows: Rows) -> ScalarValue:
        """Return the value of one action sampled from the policy in each next state."""
        return self.value_of_policy(self.pi(rows.next), rows.next)

    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """Return exponential advantage weights (N, 1), with a mean of 1."""
        return rows.softmax(advantage / self.temperature) * rows.count
