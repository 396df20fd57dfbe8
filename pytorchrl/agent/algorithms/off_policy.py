"""What algorithms that learn from replayed transitions have in common."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.update_plan import EveryTransitions, UpdatePlan
from pytorchrl.agent.explorers import Explorer, UniformUntil
from storages.component.hyper_parameters import Count, CountOrZero
from storages.storage import Storage
from storages.transition import Batch


class OffPolicyAlgorithm(Algorithm):
    """Learns from replayed transitions at regular intervals.

    Args:
        explorer: how to try something new; None takes the algorithm's own way.
        start_steps: environment transitions before the first update; actions are random until then.
        update_every: environment transitions between update phases.
        num_mini_batch: batches of an update phase.
        mini_batch_size: transitions in a batch, or sequences.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay")}

    explorer: Explorer | None = None
    start_steps: CountOrZero = 1_000
    update_every: Count = 1
    num_mini_batch: Count = 1
    mini_batch_size: Count = 256

    def make_explorer(self) -> Explorer:
        """Uniform actions until the first update, then those of the explorer."""
        explorer = self.default_explorer() if self.explorer is None else self.explorer
        return UniformUntil(self.start_steps, explorer) if self.start_steps else explorer

    @property
    def explorer_of_policy(self) -> Explorer:
        """How it explores once actions are no longer uniform."""
        explorer = self._explorer
        while isinstance(explorer, UniformUntil):
            explorer = explorer.then
        return explorer

    @abstractmethod
    def default_explorer(self) -> Explorer:
        """How the algorithm explores where no other way is chosen."""

    def update_plan(self) -> UpdatePlan:
        """Every so many environment transitions."""
        return EveryTransitions(self.update_every, self.start_steps)

    def batches(self, source: Storage) -> Iterator[Batch]:
        """As many as the hyper-parameters say."""
        return source.generate_batches(self.num_mini_batch, self.mini_batch_size)
