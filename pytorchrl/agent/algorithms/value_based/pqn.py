"""PQN: Q-learning on the lambda returns of many environments, without replay buffer and target network."""

from collections.abc import Iterator
from typing import ClassVar

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.value_based.parts.rollout_q_learning import RolloutQLearning
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule, Positive, UnitIntervalOrSchedule
from storages.component.schedule import LinearSchedule
from storages.storage import Storage
from storages.transition import Batch


class PQN(RolloutQLearning):
    """Gallici et al., "Simplifying Deep Temporal Difference Learning" (arXiv 2407.04811), algorithm 1.

    Normalised layers take the place of a target network: give the actor ``layer_norm=True``. Returns are computed once
    for each rollout, from the values with which its actions were chosen, and bootstrap on the largest of the next step.

    Args:
        num_epochs: passes over a rollout.
        num_mini_batch: batches of an epoch.
    """

    polyak: ClassVar[float] = 0.0  # type: ignore[misc]  # there is no target network
    lr: NonNegativeOrSchedule = 2.5e-4
    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.5)
    huber_threshold: Positive | None = None
    num_epochs: Count = 4
    num_mini_batch: Count = 4

    def target_network(self) -> Network:
        """Return the online network itself."""
        return self.q

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield the batches of all epochs."""
        return source.generate_batches(self.num_mini_batch, None, self.num_epochs)
