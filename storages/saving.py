"""States of storages, whose transitions are in the state, in a directory, or kept by the caller."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

from storages.checks import refuse_incomplete
from storages.core.ring.ring import Ring
from storages.core.ring.state import load_state, saved_layout
from storages.core.sampling.prioritized import Priorities
from storages.insertion import Insertion
from storages.observers import Observers
from storages.protocols import StorageLog


class HasChanges(Protocol):
    """Attributes of a component whose hyper-parameters may have changed."""

    @property
    def changed_parameters(self) -> dict[str, Any]:
        """Hyper-parameters that differ from those with which the object was made."""

    def take_changes(self, changes: Mapping[str, Any]) -> None:
        """Take the changed hyper-parameters of another object."""

    def _changes_to_save(self) -> dict[str, Any]: ...
    def _load_changes(self, state: Mapping[str, Any]) -> None: ...


class Saved(HasChanges, Protocol):
    """Attributes of a storage that saving uses."""

    ring: Ring
    observers: Observers
    insertion: Insertion
    state_names: ClassVar[tuple[str, ...]]

    def roll_back(self, position: Any) -> None:
        """Restore a commit, and drop later ones."""

    @property
    def priorities(self) -> Priorities | None:
        """Priorities of the stored transitions."""

    def extra_state(self) -> dict[str, Any]:
        """Return the state other than transitions."""

    def load_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore the state other than transitions."""

    def flush(self) -> None:
        """Commit everything."""


@contextmanager
def undoing_changes(component: HasChanges) -> Iterator[None]:
    """Return the hyper-parameters of a component to their values where the context ends with an exception."""
    before = component.changed_parameters
    try:
        yield
    except BaseException:
        component.take_changes(before)
        raise


def state_without_contents(storage: Saved) -> dict[str, Any]:
    """Return the state of a storage without the transitions, for callers that keep these elsewhere."""
    state = storage.extra_state() | storage._changes_to_save() | storage.observers.tensors()
    priorities = storage.priorities
    return state if priorities is None else state | {"priorities": priorities.state_dict()}


def load_state_without_contents(storage: Saved, state: Mapping[str, Any]) -> None:
    """Restore what :func:`state_without_contents` returned; the transitions are stored already."""
    with undoing_changes(storage):
        storage._load_changes(state)
        storage.observers.before_change()
        storage.load_extra_state(state)


def directory_log(storage: Saved, use: str) -> StorageLog:
    """Return the log of a storage that has a directory.

    Raises:
        ValueError: it has none.
    """
    if storage.observers.log is None:
        raise ValueError(f"{type(storage).__name__}: there is no directory to {use}; make it with directory=")
    return storage.observers.log


def load_contents(storage: Saved, state: Mapping[str, Any]) -> None:
    """Restore what ``state_dict`` of a storage returned, except the hyper-parameters."""
    ring, observers, owner = storage.ring, storage.observers, type(storage).__name__
    if "position" in state:
        if observers.log is None:
            raise ValueError(
                f"{owner}: the state refers to commit {state['position']['commit']} in the directory of the storage "
                f"that it was saved from; make this one with that directory=, or load what "
                f"storages.persistent.read_state reads there"
            )
        storage.roll_back(state["position"])
        if not state["position"]["commit"]:
            storage.load_extra_state(state)
        observers.load_state_dict(state, tensors_only=True)
        storage.insertion.load_state_dict(state, ring)
        return
    refuse_incomplete(state, storage.state_names, owner)
    if observers.log is not None and not state["ring"]["leaves"]:
        load_contents(storage, {**state, "position": {"commit": 0, "checksum": 0}})
        return
    observers.before_change(rows=True)
    if observers.log is not None:
        observers.log.refuse_other_fields(saved_layout(state["ring"]))
    load_state(ring, state["ring"])
    storage.load_extra_state(state)
    storage.insertion.load_state_dict(state, ring)
    observers.after_change()
    storage.flush()
