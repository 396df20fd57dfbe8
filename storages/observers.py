"""The observers of a storage's ring, called in the order in which they were added."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring
from storages.protocols import StorageLog
from storages.transition import Sample

BeforeInsert: TypeAlias = Callable[[Ring, Sample], None]
AfterInsert: TypeAlias = Callable[[Ring, int], None]


class Observers:
    """Passes changes of a ring on to its observers.

    Args:
        ring: the storage's.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._observers: list[RingObserver] = []
        self.log: StorageLog | None = None
        """The observer that persists the storage in a directory, if there is one."""
        self._refuse: BeforeInsert | None = None
        self.before_insert: list[BeforeInsert] = []
        """Called before every insertion: methods of the observers that define one, since the others would cost time."""
        self.after_insert: list[AfterInsert] = []
        """Called after every insertion, likewise."""

    def __iter__(self) -> Iterator[RingObserver]:
        return iter(self._observers)

    def add(self, observer: RingObserver) -> None:
        """Register an observer, to be called after those registered before."""
        self._observers.append(observer)
        self._find_methods()

    def attach(self, log: StorageLog) -> None:
        """Register a log that persists the storage and has restored its contents already."""
        self.log = log
        self.add(log)

    def refuse_insertions(self, refuse: BeforeInsert | None) -> None:
        """Call a function that raises an error before every insertion; None allows insertions again."""
        self._refuse = refuse
        self._find_methods()

    def before_change(self, *, rows: bool = False) -> None:
        """Announce a change; ``rows`` says whether rows of the ring are overwritten, dropped or loaded."""
        for observer in self._observers:
            observer.before_change(self._ring, rows)

    def after_change(self) -> None:
        """Report that rows of the ring were overwritten, dropped or loaded."""
        for observer in self._observers:
            observer.after_change(self._ring)

    def after_states(self, transitions: NDArray[np.int64]) -> None:
        """Report that the recurrent states before some transitions were replaced."""
        for observer in self._observers:
            observer.after_states(self._ring, transitions)

    def after_end(self, envs: NDArray[np.int64]) -> None:
        """Report that the running episodes of some environments were truncated."""
        for observer in self._observers:
            observer.after_end(self._ring, envs)

    def after_resize(self) -> None:
        """Report that the capacity of the ring has changed."""
        for observer in self._observers:
            observer.after_resize(self._ring)

    def take_errors(self, first: int, errors: NDArray[np.floating]) -> None:
        """Pass on TD errors (N,), NaN if unknown, of the newest transitions, from number ``first`` on."""
        for observer in self._observers:
            observer.take_errors(first, errors)

    def steps_at_once(self) -> int:
        """Return how many steps may be inserted by one call."""
        return min([self._ring.size, *(observer.steps_at_once(self._ring) for observer in self._observers)])

    @property
    def nbytes(self) -> int:
        """Bytes of memory of all observers."""
        return sum(observer.nbytes for observer in self._observers)

    def state_dict(self) -> dict[str, Any]:
        """Return the entries of the storage's state that are plain data, from all observers but the log."""
        others = (observer for observer in self._observers if observer is not self.log)
        return {name: value for observer in others for name, value in observer.state_dict().items()}

    def tensors(self) -> dict[str, Any]:
        """Return the entries of the storage's state that are tensors, from all observers."""
        return {name: value for observer in self._observers for name, value in observer.tensors().items()}

    def load_state_dict(self, state: Mapping[str, Any], *, tensors_only: bool = False) -> None:
        """Restore the observers from the storage's state; ``tensors_only``, those alone that save tensors."""
        for observer in self._observers:
            if not tensors_only or observer.tensors():
                observer.load_state_dict(self._ring, state)

    def _find_methods(self) -> None:
        refuse = [] if self._refuse is None else [self._refuse]
        self.before_insert = [*refuse, *self._defined("before_insert")]
        self.after_insert = self._defined("after_insert")

    def _defined(self, name: str) -> list[Callable[..., None]]:
        default = getattr(RingObserver, name)
        return [getattr(one, name) for one in self._observers if getattr(type(one), name) is not default]
