"""Buffer of incomplete steps, until every environment has delivered its transition."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey, as_array, leaves, nest
from storages.core.ring.ring import Ring
from storages.core.ring.validation import checked_environments
from storages.transition import DONE2, ERRORS, TRUNC2, Array, Sample

_STEPS_AT_FIRST = 8
_ERRORS: FieldKey = (ERRORS,)
_UNKNOWN: dict[FieldKey, Array] = {_ERRORS: np.full((1, 1), np.nan, np.float32)}


class Staging:
    """Buffers the transitions of environments that are ahead of others, in a growing circular buffer of steps.

    Args:
        ring: stores the complete steps; an environment can be ahead of another by as many transitions as it has steps.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.ahead: NDArray[np.int64] = np.zeros(ring.envs, np.int64)
        """(E,): number of buffered transitions of each environment."""
        self._steps: dict[FieldKey, Array] = {}
        """(steps, E, ...), circular; the oldest incomplete step is at ``_first``."""
        self._first = 0

    def __len__(self) -> int:
        """Number of buffered transitions."""
        return int(self.ahead.sum())

    def insert(
        self, sample: Sample, envs: list[int], errors: Array | None, store: Callable[[Sample], None]
    ) -> NDArray[np.float32] | None:
        """Add the newest transitions of environments, and store the step that they complete, if any.

        Args:
            sample: (N, ...).
            envs: (N,), indices of the environments.
            errors: (N, 1), TD errors of the transitions; None where they are not known.
            store: stores a step; if it raises an error, the sample is not added either.

        Returns:
            (E,): the TD errors of the step, NaN where they are not known; None if no step was completed.

        Raises:
            ValueError: the number of environments is not known.
            IndexError: there is no such environment, or it is named twice.
            SampleError: the sample does not fit.
            RuntimeError: an environment is too far ahead of another.
        """
        ring = self._ring
        if not ring.envs:
            raise ValueError(
                f"{ring.owner}: envs={envs!r} needs a known number of environments; make the storage for "
                f"environments, or insert a step of all of them first"
            )
        if len(checked_environments(envs, ring.envs, ring.owner)) < len(envs):
            raise IndexError(f"{ring.owner}: envs must name each environment at most once, got {envs!r}")
        arrays = ring.checked(sample, envs)
        too_far = self.too_far
        if too_far[envs].any():
            raise RuntimeError(
                f"{ring.owner}: environment {next(env for env in envs if too_far[env])} is {ring.size} transitions "
                f"ahead of environment {self.ahead.argmin()}, and no more are buffered; a step is stored once every "
                f"environment has delivered its transition"
            )
        self._put(arrays | (_UNKNOWN if errors is None else {_ERRORS: errors}), envs)
        if not self.ahead.all():
            return None
        step = {key: array[self._first] for key, array in self._steps.items()}
        of_step: NDArray[np.float32] = step.pop(_ERRORS)[:, 0].copy()
        try:
            store(nest(step))
        except BaseException:
            self.ahead[envs] -= 1
            raise
        self._first = (self._first + 1) % self._room
        self.ahead -= 1
        return of_step

    def end_episodes(self, envs: Sequence[int]) -> list[int]:
        """Truncate episodes at the newest buffered transitions; return the environments without any."""
        waiting = [env for env in envs if self.ahead[env]]
        if waiting:
            newest = self._positions(waiting, -1)
            self._steps[(TRUNC2,)][newest] |= ~self._steps[(DONE2,)][newest]
        return [env for env in envs if not self.ahead[env]]

    @property
    def too_far(self) -> NDArray[np.bool_]:
        """(E,): whether each environment is so far ahead of another that no more of its transitions are buffered."""
        return self.ahead >= self._ring.size

    def refuse(self, ring: Ring, sample: Sample) -> None:
        """Refuse a step of all environments, before it is inserted."""
        raise RuntimeError(
            f"{self._ring.owner}: {len(self)} transitions of incomplete steps wait for environment "
            f"{self.ahead.argmin()}; give envs= with every insertion, as list(range(num_envs)) for a step of all "
            f"environments"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(array.nbytes for array in self._steps.values())

    def state_dict(self) -> list[list[dict[str, Any]]]:
        """Return the buffered transitions of each environment, as tensors."""
        return [
            [self._transition((self._first + step) % self._room, env) for step in range(count)]
            for env, count in enumerate(self.ahead)
        ]

    def load_state_dict(self, state: Sequence[Sequence[Sample]]) -> None:
        """Restore what :meth:`state_dict` returned, for the same number of environments."""
        self.ahead.fill(0)
        for env, transitions in enumerate(state):
            for one in transitions:
                self._put(_UNKNOWN | {key: as_array(leaf, key, "") for key, leaf in leaves(one)}, [env])

    @property
    def _room(self) -> int:
        """Capacity in steps."""
        return len(self._steps[(DONE2,)])

    def _positions(self, envs: Sequence[int], offset: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of the environments' next transitions, shifted by an offset in steps."""
        numbers = np.array(envs, np.int64)
        return (self._first + self.ahead[numbers] + offset) % self._room, numbers

    def _put(self, arrays: Mapping[FieldKey, Array], envs: Sequence[int]) -> None:
        """Add copies of the newest transitions (N, ...) of environments (N,)."""
        if not self._steps:
            shape = _STEPS_AT_FIRST, len(self.ahead)
            self._steps = {key: np.empty((*shape, *array.shape[1:]), array.dtype) for key, array in arrays.items()}
        elif self.ahead[list(envs)].max(initial=0) == self._room:
            order = np.roll(np.arange(self._room), -self._first)
            self._steps = {key: np.concatenate([array[order], array]) for key, array in self._steps.items()}
            self._first = 0
        positions = self._positions(envs)
        for key, array in arrays.items():
            self._steps[key][positions] = array
        self.ahead[list(envs)] += 1

    def _transition(self, position: int, env: int) -> dict[str, Any]:
        columns = dict(self._steps)
        if np.isnan(columns[_ERRORS][position, env]).all():
            del columns[_ERRORS]
        return nest({key: torch.from_numpy(array[position, env : env + 1].copy()) for key, array in columns.items()})
