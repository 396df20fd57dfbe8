"""Buffer of incomplete steps, until every environment has delivered its transition."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey, as_array, leaves, nest
from storages.core.ring.ring import Ring
from storages.core.ring.validation import checked_environments
from storages.transition import DONE2, TRUNC2, Array, Sample

_STEPS_AT_FIRST = 8


class Staging:
    """Buffers the transitions of environments that are ahead of others, in a growing circular buffer of steps.

    Args:
        num_envs: environments in a step.
    """

    def __init__(self, num_envs: int) -> None:
        self.ahead: NDArray[np.int64] = np.zeros(num_envs, np.int64)
        """(E,): number of buffered transitions of each environment."""
        self._steps: dict[FieldKey, Array] = {}
        """(steps, E, ...), circular; the oldest incomplete step is at ``_first``."""
        self._first = 0

    def __len__(self) -> int:
        """Number of buffered transitions."""
        return int(self.ahead.sum())

    def insert(self, ring: Ring, sample: Sample, envs: list[int], store: Callable[[Sample], None]) -> None:
        """Add the newest transitions of environments, and store the step that they complete, if any.

        Args:
            ring: the storage's.
            sample: (N, ...).
            envs: (N,), indices of the environments.
            store: stores a step; if it raises an error, the sample is not added either.

        Raises:
            ValueError: the number of environments is not known.
            IndexError: there is no such environment, or it is named twice.
            SampleError: the sample does not fit.
            RuntimeError: an environment is too far ahead of another.
        """
        if not ring.envs:
            raise ValueError(
                f"{ring.owner}: envs={envs!r} needs a known number of environments; make the storage for "
                f"environments, or insert a step of all of them first"
            )
        if len(checked_environments(envs, ring.envs, ring.owner)) < len(envs):
            raise IndexError(f"{ring.owner}: envs must name each environment at most once, got {envs!r}")
        arrays = ring.checked(sample, envs)
        too_far = [env for env in envs if self.ahead[env] == ring.size]
        if too_far:
            raise RuntimeError(
                f"{ring.owner}: environment {too_far[0]} is {ring.size} transitions ahead of environment "
                f"{self.ahead.argmin()}, as many as size; a step is stored once every environment has delivered its "
                f"transition"
            )
        self._put(arrays, envs)
        try:
            if self.ahead.all():
                store(nest({key: array[self._first] for key, array in self._steps.items()}))
                self._first = (self._first + 1) % self._room
                self.ahead -= 1
        except BaseException:
            self.ahead[envs] -= 1
            raise

    def end_episodes(self, envs: Sequence[int]) -> list[int]:
        """Truncate episodes at the newest buffered transitions; return the environments without any."""
        waiting = [env for env in envs if self.ahead[env]]
        if waiting:
            newest = self._positions(waiting, -1)
            self._steps[(TRUNC2,)][newest] |= ~self._steps[(DONE2,)][newest]
        return [env for env in envs if not self.ahead[env]]

    def refuse(self, ring: Ring, sample: Sample) -> None:
        """Refuse a step of all environments, before it is inserted."""
        raise RuntimeError(
            f"{ring.owner}: {len(self)} transitions of incomplete steps wait for environment {self.ahead.argmin()}; "
            f"give envs= with every insertion, as list(range(num_envs)) for a step of all environments"
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
                self._put({key: as_array(leaf, key, "") for key, leaf in leaves(one)}, [env])

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
        return nest(
            {key: torch.from_numpy(array[position, env : env + 1].copy()) for key, array in self._steps.items()}
        )
