"""Our storages behind the calls that ``persistence.py`` times, and the interface of all libraries."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, cycle, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, TypeAlias

from benchmarks.storages.replay_content import FRAMES, Content
from benchmarks.storages.replay_ours import ALGORITHM, ALPHA, samples_of, slices_of
from storages import PERBuffer, PersistentEpisodicBuffer, ReplayBuffer, Storage

Close: TypeAlias = Callable[[], object]
"""Closes files; is not timed."""


class Opened(NamedTuple):
    """A storage that was opened from disk."""

    transitions: int
    """Number of transitions in it."""
    read_all: Callable[[], object]
    """Reads all transitions into memory, where they are not yet."""
    close: Close


class Keeper(Protocol):
    """Interface of a way to keep transitions on disk, of which the calls are timed."""

    name: str
    promise: str
    """What is recovered after a process was killed, in few words."""
    opens: str
    """What is available once it is open, in few words."""
    opens_lazily: bool
    """Whether transitions are read later."""
    share_of_storing: int
    """Divisor of the number of transitions to store, where all would take minutes."""
    share_of_filling: int
    """Divisor of the number of transitions to open; 0 where opening is not measured."""

    def storing(self, content: Content, folder: Path) -> Callable[[], Close]:
        """Store all transitions into a new folder, a step at a time, until they are on disk."""

    def fill(self, content: Content, folder: Path) -> None:
        """Store all transitions in the quickest way, and close as a run would that is to be resumed."""

    def opening(self, content: Content, folder: Path) -> Callable[[], Opened]:
        """Open what :meth:`fill` wrote."""


@dataclass(frozen=True)
class Ours:
    """One of our storages.

    Args:
        name: of the row.
        storage_class: its class.
        hyper_parameters: beside size and directory.
        on_disk: whether it has a directory.
        steps_a_call: steps that are inserted at once.
    """

    name: str
    storage_class: type[Storage]
    hyper_parameters: dict[str, Any]
    promise: str
    on_disk: bool = True
    steps_a_call: int = 1
    opens: str = "in memory, all checksums compared"
    opens_lazily: bool = False
    share_of_storing: int = 1
    share_of_filling: int = 1

    def storing(self, content: Content, folder: Path) -> Callable[[], Close]:
        """Insert and flush."""
        storage: Any = self._made(content, folder)
        samples = samples_of(content)
        storage.insert_transition(samples[0])
        if self.storage_class is PERBuffer:
            # Priorities are kept from the first batch on.
            next(iter(storage.generate_batches(1, 1)))
        if self.steps_a_call == 1:
            handed = islice(cycle(samples[1:] + samples[:1]), content.steps - 1)
            insert = storage.insert_transition
        else:
            calls, rest = divmod(content.steps - 1, self.steps_a_call)
            slices = cycle(slices_of(content, self.steps_a_call))
            handed = chain(islice(slices, calls), [{key: array[:rest] for key, array in next(slices).items()}])
            insert = storage.insert_data_slice

        def call() -> Close:
            for steps in handed:
                insert(steps)
            storage.flush()
            close: Close = storage.close
            return close

        return call

    def fill(self, content: Content, folder: Path) -> None:
        """Insert and close."""
        self.storing(content, folder)()()

    def opening(self, content: Content, folder: Path) -> Callable[[], Opened]:
        """Open the storage again."""

        def call() -> Opened:
            storage: Any = self._made(content, folder)
            return Opened(len(storage), lambda: None, storage.close)

        return call

    @property
    def keeps_episodes(self) -> bool:
        """Whether it keeps whole episodes."""
        return self.storage_class is PersistentEpisodicBuffer

    def _made(self, content: Content, folder: Path) -> Storage:
        size = content.transitions if self.keeps_episodes else content.steps
        stacked = FRAMES if content.observation.ndim > 4 else 0
        envs = SimpleNamespace(num_envs=content.environments, stacked_frames=stacked)
        where = {"directory": folder} if self.on_disk else {}
        factory = self.storage_class.create_factory(size=size, **where, **self.hyper_parameters)
        return factory("cpu", None, ALGORITHM, envs)


_PROMISE = "all but 1,000 steps, with checksums"
OURS = (
    Ours("ReplayBuffer", ReplayBuffer, {}, _PROMISE),
    Ours("PERBuffer", PERBuffer, {"alpha": ALPHA}, f"{_PROMISE}; errors"),
    Ours("PersistentEpisodicBuffer", PersistentEpisodicBuffer, {}, f"{_PROMISE}; zarr"),
)
AT_ONCE = Ours("ReplayBuffer, 500 steps a call", ReplayBuffer, {}, _PROMISE, steps_a_call=500)
DURABLE = Ours("ReplayBuffer, durable", ReplayBuffer, {"durable": True}, "the same, after a power cut, too")
IN_MEMORY = Ours("ReplayBuffer without directory", ReplayBuffer, {}, "nothing", on_disk=False)
