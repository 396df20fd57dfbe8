"""AWAC: a policy that imitates actions by their advantage over its own, which goes on learning online."""

from torch import Tensor

from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.offline.parts.weighted_regression import SampledAdvantage
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, Positive


class AWAC(SampledAdvantage):
    """Nair et al., "AWAC: Accelerating Online RL with Offline Datasets" (arXiv 2006.09359), equation 13.

    As in the authors' code, weights are a softmax over the batch, so that they are 1 on average.

    Args:
        temperature: advantage that makes a weight e times as large (lambda).
    """

    temperature: Positive = 1.0
    mini_batch_size: Count = 1024

    def next_value(self, rows: Rows) -> ScalarValue:
        """Of one action drawn from the policy in each next state."""
        return self.value_of_policy(self.pi(rows.next), rows.next)

    def weights(self, advantage: Tensor, rows: Rows) -> Tensor:
        """(N, 1): the exponentials of advantages, over their mean."""
        return rows.softmax(advantage / self.temperature) * rows.count
