"""Transitions that wait until every environment has delivered its part of a step."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from storages.core.ring.layout import FieldKey, as_array, leaves, nest
from storages.core.ring.ring import Ring
from storages.core.ring.validation import checked_environments
from storages.transition import DONE2, TRUNC2, Array, Sample


class Staging:
    """Keeps the transitions of environments that are ahead of others, a queue for each.

    Args:
        num_envs: environments in a step.
    """

    def __init__(self, num_envs: int) -> None:
        self._queues: list[deque[dict[FieldKey, Array]]] = [deque() for _ in range(num_envs)]

    def __len__(self) -> int:
        """Transitions that wait."""
        return sum(map(len, self._queues))

    def ahead(self, env: int) -> int:
        """Return how many transitions of an environment wait."""
        return len(self._queues[env])

    @property
    def slowest(self) -> int:
        """The environment of which the fewest transitions wait."""
        return min(range(len(self._queues)), key=self.ahead)

    def insert(self, ring: Ring, sample: Sample, envs: list[int], store: Callable[[Sample], None]) -> None:
        """Add the newest transitions of environments, and store the step that they complete, if they do.

        Args:
            ring: the storage's.
            sample: (N, ...).
            envs: (N,), numbers of the environments.
            store: stores a step; where it refuses it, nothing of the sample was added.

        Raises:
            ValueError: the number of environments is not known.
            IndexError: there is no such environment, or it is named twice.
            SampleError: the sample does not fit.
            RuntimeError: an environment is too far ahead of another.
        """
        if not ring.envs:
            raise ValueError(
                f"{ring.owner}: envs={envs!r} needs a number of environments; make the storage for environments, or "
                f"insert a step of all of them first"
            )
        if len(checked_environments(envs, ring.envs, ring.owner)) < len(envs):
            raise IndexError(f"{ring.owner}: envs names each environment once, got {envs!r}")
        arrays = ring.checked(sample, envs)
        for env in envs:
            if self.ahead(env) == ring.size:
                raise RuntimeError(
                    f"{ring.owner}: environment {env} is {ring.size} transitions ahead of environment {self.slowest}, "
                    f"as many as size; steps are stored when every environment has delivered its part"
                )
        self.put(arrays, envs)
        try:
            step = self.complete_step()
            if step is not None:
                store(step)
                self.drop_step()
        except BaseException:
            self.take_back(envs)
            raise

    def put(self, arrays: Mapping[FieldKey, Array], envs: Sequence[int]) -> None:
        """Add copies of the newest transitions (N, ...) of environments (N,)."""
        for row, env in enumerate(envs):
            self._queues[env].append({key: array[row : row + 1].copy() for key, array in arrays.items()})

    def take_back(self, envs: Sequence[int]) -> None:
        """Undo the last :meth:`put`."""
        for env in envs:
            self._queues[env].pop()

    def complete_step(self) -> Sample | None:
        """The oldest step, if every environment has delivered its part."""
        if not all(self._queues):
            return None
        oldest = [queue[0] for queue in self._queues]
        return nest({key: np.concatenate([transition[key] for transition in oldest]) for key in oldest[0]})

    def drop_step(self) -> None:
        """Forget the oldest step."""
        for queue in self._queues:
            queue.popleft()

    def end_episodes(self, envs: Sequence[int]) -> list[int]:
        """End the episodes of environments with their newest transitions; returns those that none waits of."""
        for env in envs:
            if self._queues[env]:
                newest = self._queues[env][-1]
                newest[(TRUNC2,)] = newest[(TRUNC2,)] | ~newest[(DONE2,)]
        return [env for env in envs if not self._queues[env]]

    def refuse(self, ring: Ring, sample: Sample) -> None:
        """Refuse a step of all environments, before it is inserted."""
        raise RuntimeError(
            f"{ring.owner}: {len(self)} transitions wait for those of environment {self.slowest}; give envs= with "
            f"every insertion, as list(range(num_envs)) for a step of all environments"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return sum(array.nbytes for queue in self._queues for one in queue for array in one.values())

    def state_dict(self) -> list[list[dict[str, Any]]]:
        """Return the transitions that wait, of each environment, as tensors."""
        return [
            [nest({key: torch.from_numpy(array) for key, array in transition.items()}) for transition in queue]
            for queue in self._queues
        ]

    def load_state_dict(self, state: Sequence[Sequence[Sample]]) -> None:
        """Restore what :meth:`state_dict` returned, of as many environments."""
        for queue, transitions in zip(self._queues, state, strict=True):
            queue.clear()
            queue.extend({key: as_array(leaf, key, "").copy() for key, leaf in leaves(one)} for one in transitions)
