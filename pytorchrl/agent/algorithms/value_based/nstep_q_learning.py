"""n-step Q-learning: DQN on the n-step returns of new rollouts, without a replay buffer."""

from collections.abc import Iterator

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.parts.rollout_q_learning import RolloutQLearning
from storages.component.hyper_parameters import Count, Positive, UnitInterval
from storages.storage import Storage
from storages.transition import Batch


class NStepQLearning(RolloutQLearning):
    """Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783), algorithm S2.

    The rollout holds a segment of each environment. Returns bootstrap on the target network's largest value where the
    segment ends or the episode is truncated. Losses are summed over the steps of the rollout, as the paper's workers
    accumulate their gradients.

    Args:
        target_update_interval_steps: environment transitions, over all environments, between updates of the target
            network; 40,000 in the paper.
    """

    polyak: UnitInterval = 0.0
    target_update_interval_steps: Count = 1_000
    max_grad_norm: Positive | None = None

    def target_network(self) -> Network:
        """Return a target network that is updated every ``target_update_interval_steps`` transitions."""
        target: Network = self.target(self.q, every_steps="target_update_interval_steps")
        return target

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield the whole rollout as one batch."""
        return source.generate_batches(1, None)

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the actions' values against n-step returns, summed over all steps."""
        mean = super().losses(rows)
        loss = mean.of[self.trained] * rows.count
        return Losses({self.trained: loss}, mean.metrics | {"loss": loss.detach()})
