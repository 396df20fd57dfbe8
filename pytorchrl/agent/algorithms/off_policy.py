"""Base class of off-policy algorithms, and presets with the hyper-parameters of a paper."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypedDict

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.update_plan import EveryTransitions, UpdatePlan
from pytorchrl.agent.explorers import Explorer, UniformUntil
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count, CountOrZero
from storages.storage import Storage
from storages.transition import Batch


class OffPolicyAlgorithm(Algorithm):
    """Base class of algorithms that learn from replayed transitions at regular intervals.

    Args:
        explorer: exploration strategy; None takes the algorithm's own.
        start_steps: environment transitions before the first update; actions are random until then.
        burn_in_explorer: exploration strategy until then; None draws uniformly random actions.
        update_every: environment transitions between update phases.
        num_mini_batch: batches per update phase.
        mini_batch_size: transitions, or sequences, per batch.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay")}

    explorer: Explorer | None = None
    start_steps: CountOrZero = 1_000
    burn_in_explorer: Explorer | None = None
    update_every: Count = 1
    num_mini_batch: Count = 1
    mini_batch_size: Count = 256

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse frequencies of other libraries: a pair with a unit, a plan, and -1 for as many as transitions."""
        super().check_arguments(arguments)
        every = arguments.get("update_every")
        if isinstance(every, list | tuple | UpdatePlan):
            raise ValueError(
                f"{cls.__name__}: update_every must be a number of environment transitions, got {every!r}; phases "
                f"after episodes are those of a subclass whose update_plan returns prl.EveryEpisodes(1) "
                f"(docs/parts/updates.md), and update_every=1 makes an update after each transition"
            )
        if arguments.get("num_mini_batch") == -1:
            raise ValueError(
                f"{cls.__name__}: num_mini_batch must be at least 1, got -1; as many updates as transitions are made "
                f"where num_mini_batch equals update_every, such as 1 and 1, the defaults of most algorithms"
            )

    def make_explorer(self) -> Explorer:
        """Return uniform actions, or those of ``burn_in_explorer``, until the first update, then the explorer."""
        explorer = self.default_explorer() if self.explorer is None else self.explorer
        return UniformUntil(self.start_steps, explorer, self.burn_in_explorer) if self.start_steps else explorer

    @property
    def explorer_of_policy(self) -> Explorer:
        """The explorer that follows the initial uniform actions."""
        explorer = self._explorer
        while isinstance(explorer, UniformUntil):
            explorer = explorer.then
        return explorer

    @abstractmethod
    def default_explorer(self) -> Explorer:
        """Return the algorithm's own exploration strategy."""

    def update_plan(self) -> UpdatePlan:
        """Return a phase every ``update_every`` environment transitions."""
        return EveryTransitions(self.update_every, self.start_steps)

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield ``num_mini_batch`` batches of ``mini_batch_size``."""
        return source.generate_batches(self.num_mini_batch, self.mini_batch_size)


class Preset(TypedDict):
    """Arguments of a scheme: ``prl.Scheme(**preset, train_envs_factory=...)``; ``preset | {...}`` changes some."""

    algo_factory: Factory[Any]
    actor_factory: Factory[Any]
    storage_factory: Factory[Any]
