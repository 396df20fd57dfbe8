"""The actions of environments since each was last given a seed."""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from storages.transition import Array

STEPS_OF_BLOCK = 512


class ActionLog:
    """The actions of ``E`` environments, as far back as a replay of any of them needs.

    Args:
        num_envs: environments.
        shape: of an action.
        dtype: of all actions.
    """

    def __init__(self, num_envs: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        self._shape, self._dtype = (num_envs, *shape), dtype
        # This runs in every step, so that new actions are only appended, and joined in blocks.
        self._newest: list[bytes] = []
        self._blocks: deque[Array] = deque()
        self._first = 0
        """Number of the first step of the blocks."""
        self._begins: NDArray[np.int64] = np.zeros(num_envs, np.int64)

    def add(self, actions: Array) -> bool:
        """Append the actions of a step (E, *action); return whether it completed a block."""
        self._newest.append(actions.tobytes())
        return len(self._newest) == STEPS_OF_BLOCK and self._close_block()

    def begin(self, env: int) -> None:
        """Discard the actions of an environment so far."""
        self._begins[env] = self.steps

    @property
    def steps(self) -> int:
        """Number of steps that were appended."""
        return self._first + STEPS_OF_BLOCK * len(self._blocks) + len(self._newest)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(E,): steps of each environment since :meth:`begin`."""
        return self.steps - self._begins

    def since(self, env: int) -> Array:
        """Return the actions of an environment since :meth:`begin`, (steps, *action)."""
        rows = np.concatenate([*self._blocks, self._put_together()])
        return rows[self._begins[env] - self._first :, env].copy()

    def restore(self, steps: int, actions: Sequence[Array]) -> None:
        """Restore a log of ``steps`` steps, of which :meth:`since` returned these for each environment."""
        self._begins = steps - np.array([len(given) for given in actions])
        oldest = int(self._begins.min())
        self._first = oldest - oldest % STEPS_OF_BLOCK
        rows = np.zeros((steps - self._first, *self._shape), self._dtype)
        for env, given in enumerate(actions):
            rows[len(rows) - len(given) :, env] = given
        whole = len(rows) - len(rows) % STEPS_OF_BLOCK
        self._blocks = deque(rows[start : start + STEPS_OF_BLOCK] for start in range(0, whole, STEPS_OF_BLOCK))
        self._newest = [row.tobytes() for row in rows[whole:]]

    def _put_together(self) -> Array:
        return np.frombuffer(b"".join(self._newest), self._dtype).reshape(-1, *self._shape)

    def _close_block(self) -> bool:
        self._blocks.append(self._put_together())
        self._newest = []
        needed = int(self._begins.min())
        while self._blocks and self._first + STEPS_OF_BLOCK <= needed:
            self._blocks.popleft()
            self._first += STEPS_OF_BLOCK
        return True
