"""States of storages, whose transitions are in the state, in a directory, or kept by the caller."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from storages.checks import refuse_incomplete
from storages.core.ring.state import load_state, saved_layout
from storages.protocols import StorageLog

if TYPE_CHECKING:
    from storages.storage import Storage


@contextmanager
def undoing_changes(storage: "Storage") -> Iterator[None]:
    """Return the hyper-parameters of a storage to their values where the context ends with an exception."""
    before = storage.changed_parameters
    try:
        yield
    except BaseException:
        storage.take_changes(before)
        raise


def state_without_contents(storage: "Storage") -> dict[str, Any]:
    """Return the state of a storage without the transitions, for callers that keep these elsewhere."""
    state = storage.extra_state() | storage._changes_to_save() | storage.observers.tensors()
    priorities = storage.priorities
    return state if priorities is None else state | {"priorities": priorities.state_dict()}


def load_state_without_contents(storage: "Storage", state: Mapping[str, Any]) -> None:
    """Restore what :func:`state_without_contents` returned; the transitions are stored already."""
    with undoing_changes(storage):
        storage._load_changes(state)
        storage.observers.before_change()
        storage.load_extra_state(state)


def directory_log(storage: "Storage", use: str) -> StorageLog:
    """Return the log of a storage that has a directory.

    Raises:
        ValueError: it has none.
    """
    if storage.observers.log is None:
        raise ValueError(f"{type(storage).__name__}: there is no directory to {use}; make it with directory=")
    return storage.observers.log


def load_contents(storage: "Storage", state: Mapping[str, Any]) -> None:
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
