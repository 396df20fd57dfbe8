"""A storage that is kept on disk too, if a directory is named: what all storages of replay have of it."""

import atexit
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from storages.core.ring.layout import Layout, text
from storages.core.ring.ring import saved_layout
from storages.core.sampling.prioritized import Priorities
from storages.errors import DamageError, PersistenceError
from storages.persistent.replay.write_ahead_log import Journal, Position
from storages.storage import Discounting, Environments, Storage
from storages.transition import Leaf, Sample

_open: "weakref.WeakSet[JournalledStorage]" = weakref.WeakSet()


class JournalledStorage(Storage):
    """Commits what is inserted to a directory, and is what was committed when it is made again.

    :mod:`storages.persistent` says what is promised. What is read from the directory needs all attributes, so a class
    that extends this calls ``super().__init__`` last.

    Args:
        directory: where it is kept; None keeps it in memory alone.
        commit_every: steps that a process which is killed loses at most.
        durable: whether that holds for a power cut as well.
    """

    unchangeable = frozenset({"size", "directory", "commit_every", "durable"})
    states_kept = 2
    """With a directory, how many of the states that ``state_dict`` gave can be loaded: the newest."""

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: int,
        directory: str | Path | None,
        commit_every: int,
        durable: bool,
        allow_nonfinite: bool,
    ) -> None:
        super().__init__(device, actor, algorithm, envs, size, allow_nonfinite)
        self.directory, self.commit_every, self.durable = directory, commit_every, durable
        self._journal: Journal | None = None
        if directory is not None:
            self._state_as_made = self._state_beside_the_ring()
            self._open_journal(Journal(Path(directory), type(self).__name__, self._ring, commit_every, durable))

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse a directory that is a file, and a promise about none."""
        super().check_hyper_parameters(hyper_parameters)
        directory = hyper_parameters["directory"]
        if directory is None and hyper_parameters["durable"]:
            raise ValueError(f"{cls.__name__}: durable=True needs a directory=, in which commits survive a power cut")
        if directory is not None and Path(directory).is_file():
            raise ValueError(
                f"{cls.__name__}: directory must be a directory, or not be there yet; {directory} is a file"
            )

    # What the learner calls

    def insert_single_tensor_slice(self, key: str, values: Leaf, start: int = 0) -> None:
        """As of every storage; committed at once."""
        if self._journal is not None:
            self._journal.wait()
        super().insert_single_tensor_slice(key, values, start)
        if self._journal is not None:
            self._journal.changed()
            self.flush()

    def reset(self) -> None:
        """Empty, ready, memory kept."""
        if self._journal is not None:
            self._journal.wait()
        super().reset()
        if self._journal is not None:
            self._journal.changed()

    # On disk

    @property
    def position(self) -> Position | None:
        """The last commit, as plain data that :meth:`roll_back` takes; None without a directory.

        Raises:
            PersistenceError: what was on its way could not be written.
        """
        return None if self._journal is None else self._journal.position

    def flush(self) -> None:
        """Commit what there is, and wait until it is on disk; does nothing without a directory.

        Raises:
            PersistenceError: it could not be written; what is in memory stays usable.
        """
        if self._journal is not None:
            self._journal.flush(self._ring, self._state_beside_the_ring(), self._kept_priorities())

    def roll_back(self, position: Position) -> None:
        """Be as of a commit, and drop what was committed later.

        Older commits go with the steps that they hold, once these were overwritten, unless :meth:`pin` keeps them.

        Raises:
            PersistenceError: the directory does not have it; nothing was changed.
            ValueError: there is no directory.
        """
        if self._journal is None:
            raise ValueError(f"{type(self).__name__}: there is no directory to roll back in; make it with directory=")
        self._before_change()
        state = self._journal.roll_back(self._ring, position)
        self._load_beside_the_ring(self._state_as_made if state is None else state)

    def pin(self, position: Position) -> None:
        """Keep what is needed to roll back to a commit, instead of what was pinned before.

        ``state_dict`` pins the commit that it refers to, and keeps those pinned that it referred to before, as many as
        :attr:`states_kept` says.

        Raises:
            PersistenceError: the directory does not have it.
            ValueError: there is no directory.
        """
        if self._journal is None:
            raise ValueError(f"{type(self).__name__}: there is no directory to pin in; make it with directory=")
        self._journal.pin(position)
        self.flush()

    def close(self) -> None:
        """Flush, and let others have the directory; what is in memory can still be read.

        Raises:
            PersistenceError: not everything could be written; the directory is let go all the same.
        """
        journal = self._journal
        if journal is not None and not journal.closed:
            try:
                self.flush()
            finally:
                journal.close()
                _open.discard(self)

    def __del__(self) -> None:
        if getattr(self, "_journal", None) is not None:
            self.close()

    def state_dict(self) -> dict[str, Any]:
        """Everything, the random generator too, as tensors and plain data: the next batch is the same batch.

        With a directory, the position in it instead of what it holds.
        """
        if self._journal is None:
            return super().state_dict()
        beside = self._state_beside_the_ring()
        self._journal.flush(self._ring, beside, self._kept_priorities(), pin=self.states_kept)
        return {"position": dict(self._journal.position)} | beside

    def state_without_contents(self) -> dict[str, Any]:
        """What :meth:`state_dict` returns, without the transitions: for those that are kept elsewhere."""
        state, priorities = super().state_without_contents(), self._kept_priorities()
        return state if priorities is None else state | {"priorities": priorities.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what was saved; of a storage with a directory, be as of the commit that the state refers to.

        Raises:
            PersistenceError: the directory does not have that commit, or was made for other fields; nothing was
                changed.
            ValueError: it was saved with another size or number of environments, or with a directory.
        """
        if "position" in state:
            if self._journal is None:
                raise ValueError(
                    f"{type(self).__name__}: the state refers to commit {state['position']['commit']} in the directory "
                    f"of the storage that it was saved of; make this one with that directory=, or load what "
                    f"storages.persistent.read_state reads there"
                )
            self.roll_back(state["position"])
            if not state["position"]["commit"]:
                self._load_beside_the_ring(state)
            return
        self._refuse_incomplete(state)
        if self._journal is None:
            super().load_state_dict(state)
        elif not state["ring"]["leaves"]:
            self.roll_back({"commit": 0, "checksum": 0})
            self._load_beside_the_ring(state)
        else:
            self._journal.wait()
            self._refuse_other_fields(saved_layout(state["ring"]))
            super().load_state_dict(state)
            self._journal.changed()
            self.flush()

    # Inside

    def _before_insertion(self, sample: Sample) -> None:
        journal = self._journal
        if journal is not None and self._ring.steps >= journal.due:
            journal.commit_soon(self._ring, self._state_beside_the_ring, self._kept_priorities())

    def _steps_at_once(self) -> int:
        most = super()._steps_at_once()
        return most if self._journal is None else min(most, self._journal.due - self._ring.steps)

    def _kept_priorities(self) -> Priorities | None:
        """The priorities that are kept, of storages that have any."""
        return None

    def _refuse_other_fields(self, saved: Layout) -> None:
        if self._ring.layout not in ({}, saved):
            here, there = (
                ", ".join(f"{text(path)} {leaf.dtype}{leaf.shape}" for path, leaf in layout.items())
                for layout in (self._ring.layout, saved)
            )
            raise PersistenceError(
                f"{type(self).__name__}: {self.directory} holds {here}; what is to be loaded is {there}. Make the "
                f"storage with another directory"
            )

    def _open_journal(self, journal: Journal) -> None:
        try:
            state = journal.recover(self._ring)
            if state is not None:
                self._load_beside_the_ring(state)
        except (LookupError, TypeError, AttributeError) as error:
            journal.close()
            raise DamageError(
                f"{journal.directory} is damaged, or was not written by this package: its last commit says of what "
                f"stands beside the steps what no {type(self).__name__} does: {error!r}"
            ) from error
        except BaseException:
            journal.close()
            raise
        self._journal = journal
        close_at_exit(self)


def close_at_exit(storage: JournalledStorage) -> None:
    """Have a storage closed when the process ends, if it is still there."""
    _open.add(storage)


@atexit.register
def _close_all() -> None:
    for storage in list(_open):
        storage.close()
