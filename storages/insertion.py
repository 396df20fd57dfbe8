"""Insertion of steps that environments deliver in part, and of slices of steps."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey, as_array, leaves, nest, text
from storages.core.ring.ring import Ring
from storages.core.ring.staging import Staging
from storages.core.ring.validation import checked_environments
from storages.observers import Observers
from storages.slices import slice_errors
from storages.transition import ERRORS, SKIPPED, Array, Leaf, Sample

if TYPE_CHECKING:
    from storages.persistent.episodes.memtable import Memtable
    from storages.storage import Storage


class Insertion:
    """Collects the transitions of a step until every environment has delivered its own, and stores slices.

    Args:
        ring: the storage's.
        observers: of the ring; while there are incomplete steps, they refuse steps of all environments.
    """

    def __init__(self, ring: Ring, observers: Observers) -> None:
        self._ring, self._observers = ring, observers
        self.memtable: Callable[[], Memtable] | None = None
        """Returns where inserted steps go to, if it is not the storage's ring."""
        self.staging: Staging | None = None
        """Buffer of incomplete steps; None where there are none."""
        self._errors_of_slice: list[NDArray[np.float32]] | None = None
        """TD errors (E,) of the steps that the slice being inserted has completed; None outside of such insertions."""

    @property
    def ring(self) -> Ring:
        """The ring that inserted steps go to."""
        return self._ring if self.memtable is None else self.memtable().ring

    # Incomplete steps

    def insert_in_part(self, sample: Sample, envs: Sequence[int], store: Callable[[Sample], None]) -> None:
        """Store the transitions of some environments once every environment has delivered as many.

        Args:
            sample: (N, ...); one of a slice may have ERRORS (N, 1).
            envs: (N,), indices of the environments.
            store: stores a step of all environments.
        """
        ring = self.ring
        staging, first, errors = self.staging or Staging(ring), ring.steps * ring.envs, None
        if self._errors_of_slice is not None and ERRORS in sample:
            sample = dict(sample)
            errors = as_array(sample.pop(ERRORS), (ERRORS,), ring.owner)
        self.stage(None)
        try:
            of_step = staging.insert(sample, list(envs), errors, store)
        finally:
            self.stage(staging if len(staging) else None)
        if of_step is None:
            return
        if self._errors_of_slice is not None:
            self._errors_of_slice.append(of_step)
        else:
            self._take_errors(first, of_step)

    def insert_masked(self, storage: "Storage", sample: Sample, mask: NDArray[np.bool_]) -> None:
        """Store a step as :meth:`Storage.insert_masked`."""
        given, mask, num_envs = np.shape(mask), np.asarray(mask, np.bool_).reshape(-1), storage.num_envs
        if given not in ((len(mask),), (len(mask), 1)) or (num_envs and len(mask) != num_envs):
            raise ValueError(
                f"{self._ring.owner}: a mask has a value for each environment, ({num_envs or 'E'},), got the "
                f"shape {given}"
            )
        if self.staging is not None:
            too_far = mask & self.staging.too_far
            if too_far.any():
                storage.end_episode(np.flatnonzero(too_far).tolist())
                mask = mask & ~too_far
        envs = np.flatnonzero(mask)
        if len(envs):
            storage.insert_transition(nest({path: leaf[envs] for path, leaf in leaves(sample)}), envs.tolist())

    def end_episodes(self, envs: Sequence[int] | None, num_envs: int) -> NDArray[np.int64] | None:
        """Truncate the episodes of environments with buffered transitions there; return the other environments.

        Raises:
            IndexError: there is no such environment; nothing was changed.
        """
        numbers = None if envs is None else checked_environments(envs, num_envs, self._ring.owner)
        if self.staging is None:
            return numbers
        given = range(num_envs) if numbers is None else numbers.tolist()
        return np.array(self.staging.end_episodes(given), np.int64)

    def stage(self, staging: Staging | None) -> None:
        """Set the buffer of incomplete steps; while there is one, steps of all environments are refused."""
        self.staging = staging
        self._observers.refuse_insertions(None if staging is None else staging.refuse)

    @property
    def nbytes(self) -> int:
        """Bytes of incomplete steps."""
        return 0 if self.staging is None else self.staging.nbytes

    def state_dict(self) -> dict[str, Any]:
        """Return the incomplete steps as an entry of the storage's state, if there are any."""
        return {} if self.staging is None else {"staged": self.staging.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], ring: Ring) -> None:
        """Restore the incomplete steps of a storage's state; ``ring`` receives the complete ones."""
        staging = None
        if "staged" in state:
            staging = Staging(ring)
            staging.load_state_dict(state["staged"])
        self.stage(staging)

    # Slices

    def insert_slice(self, storage: "Storage", data: Mapping[str, Any]) -> None:
        """Store consecutive steps as :meth:`Storage.insert_data_slice`."""
        ring, owner = self._ring, self._ring.owner
        arrays = {
            path: as_array(leaf, path, owner)
            for path, leaf in leaves(data)
            if path[0] not in storage.computed_fields and path[0] != ERRORS
        }
        lengths = {text(path): len(array) if array.ndim else 0 for path, array in arrays.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{owner}: fields of a slice must be equally long, got {lengths}")
        errors, first_step = slice_errors(data, arrays, owner), ring.steps
        if not storage.on_policy and (SKIPPED,) in arrays:
            self._insert_masked_steps(storage, arrays, errors)
            return
        try:
            self._insert_steps(storage, arrays, next(iter(lengths.values()), 0))
        finally:
            if errors is not None and (stored := ring.steps - first_step):
                self._take_errors(first_step * ring.envs, errors[: stored * ring.envs])

    def overwrite(self, key: str, values: Leaf, start: int) -> int:
        """Overwrite a field as :meth:`Storage.insert_single_tensor_slice`."""
        owner = self._ring.owner
        if not isinstance(key, str):
            raise TypeError(f"{owner}.insert_single_tensor_slice: key must be a str, got {key!r}")
        array = as_array(values, (key,), owner)
        self._observers.before_change(rows=True)
        self._ring.overwrite((key,), array, start)
        self._observers.after_change()
        return len(array)

    def _insert_masked_steps(
        self, storage: "Storage", arrays: dict[FieldKey, Array], errors: NDArray[np.floating] | None
    ) -> None:
        """Store the steps of a slice with SKIPPED, and use its errors as those of one slice."""
        made, first = ~arrays.pop((SKIPPED,))[..., 0].astype(bool), self._ring.steps * self._ring.envs
        if errors is not None:
            arrays[(ERRORS,)] = errors.reshape(*made.shape, 1)
        if len(made) and not self._ring.layout:
            # Steps of some of the environments do not show how many there are.
            storage.init_tensors(nest({path: array[0] for path, array in arrays.items() if path[0] != ERRORS}))
        stored: list[NDArray[np.float32]] = []
        self._errors_of_slice = stored
        try:
            for step, mask in enumerate(made):
                storage.insert_masked(nest({path: array[step] for path, array in arrays.items()}), mask)
        finally:
            self._errors_of_slice = None
            if stored:
                self._take_errors(first, np.concatenate(stored))

    def _insert_steps(self, storage: "Storage", arrays: Mapping[FieldKey, Array], steps: int) -> None:
        """Store the steps of a slice, as many per call as the observers allow."""
        ring, observers, step, block = self._ring, self._observers, 0, None
        while step < steps:
            sample = nest({path: array[step] for path, array in arrays.items()})
            stored = 0
            if block is not None:
                for before_insert in observers.before_insert:
                    before_insert(ring, sample)
                stored = ring.insert_block(block, step, observers.steps_at_once())
                if stored:
                    storage.__dict__["inserted"] += stored * ring.envs
                    for after_insert in observers.after_insert:
                        after_insert(ring, stored)
            if not stored:
                storage.insert_transition(sample)
                stored = 1
            if step == 0 and storage.stores_slices_whole:
                # The first may have fixed the layout.
                block = ring.block_of(arrays)
            step += stored

    def _take_errors(self, first: int, errors: NDArray[np.floating]) -> None:
        """Pass on TD errors (N,), NaN if unknown, of transitions from number ``first`` on.

        A memtable stores episodes when they end, not in the order of their steps: errors there are ignored.
        """
        if self.memtable is None and np.isfinite(errors).any():
            self._observers.take_errors(first, errors)
