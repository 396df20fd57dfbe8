"""Steps whose numbers identify them, so that all data of a storage can be checked by itself.

Each environment's observations count up from another large number; one number is skipped between the last observation
of an episode and the first one of the next. The reward is the number observed before the step.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from storages.transition import ACT, DISCOUNT, DONE, DONE2, MASK, OBS, OBS2, REW, TRUNC2
from tests.support.model import ALGORITHM, GAMMA

NUM_ENVS, DEPTH = 2, 3
_OF_AN_ENVIRONMENT = 10_000
LENGTHS = (7, 3, 11, 5, 1, 8)
"""Lengths of episodes, in turn."""
ENVIRONMENTS = SimpleNamespace(num_envs=NUM_ENVS, stacked_frames=DEPTH)


class Numbered:
    """A stream of such steps; if ``stacked``, observations are stacks of the last frames."""

    def __init__(self, stacked: bool) -> None:
        self.stacked = stacked
        self._at = [(env + 1) * _OF_AN_ENVIRONMENT for env in range(NUM_ENVS)]
        self._begun = list(self._at)
        self._episodes = list(range(NUM_ENVS))
        self.begins: dict[int, int] = {}
        """The first number of the episode of each number."""
        self.ends: dict[int, str] = {}
        """The flag of the end, for the last number of each episode."""

    def step(self) -> dict[str, Any]:
        seen = [(at, begun) for at, begun in zip(self._at, self._begun, strict=True)]
        flags = {DONE: [at == begun for at, begun in seen], DONE2: [], TRUNC2: []}
        for env, (at, begun) in enumerate(seen):
            self.begins[at] = self.begins[at + 1] = begun
            ended = at + 1 - begun == LENGTHS[self._episodes[env] % len(LENGTHS)]
            flag = DONE2 if self._episodes[env] % 2 else TRUNC2
            flags[DONE2].append(ended and flag == DONE2)
            flags[TRUNC2].append(ended and flag == TRUNC2)
            self._at[env] += 2 if ended else 1
            if ended:
                self.ends[at] = flag
                self._episodes[env] += 1
                self._begun[env] = self._at[env]
        numbers = np.array([at for at, _ in seen])
        return {
            OBS: self.observation(numbers),
            ACT: numbers[:, None] % 7,
            REW: numbers[:, None].astype(np.float32),
            OBS2: self.observation(numbers + 1),
            **{key: np.array(flag)[:, None] for key, flag in flags.items()},
        }

    def observation(self, numbers: Any) -> Any:
        """(N, 1) or (N, depth, 1): the observation at each number."""
        numbers = np.asarray(numbers, np.int64)
        if not self.stacked:
            return numbers[:, None].astype(np.float32)
        begun = np.array([self.begins[number] for number in numbers.tolist()])
        older = numbers[:, None] - np.arange(DEPTH - 1, -1, -1)
        return np.maximum(older, begun[:, None])[..., None].astype(np.float32)

    # Checks

    def assert_true(self, rows: dict[str, Any]) -> None:
        """Assert that each of the rows (N, ...) is an inserted transition."""
        numbers = rows[REW][:, 0].astype(np.int64)
        assert set(numbers.tolist()) <= self.begins.keys()
        assert np.array_equal(rows[OBS], self.observation(numbers))
        assert np.array_equal(rows[OBS2], self.observation(numbers + 1))
        assert np.array_equal(rows[ACT][:, 0], numbers % 7)
        stored = set(numbers.tolist())
        for number, first in zip(numbers.tolist(), rows[DONE][:, 0].astype(bool).tolist(), strict=True):
            # The first row after missing steps is marked as a start, too.
            assert first == (self.begins[number] == number) or (first and number - 1 not in stored)
        for flag in (DONE2, TRUNC2):
            ended = [self.ends.get(one) == flag for one in numbers.tolist()]
            assert rows[flag][:, 0].astype(bool).tolist() == ended

    def assert_windows_true(self, batch: Any, n_step: int) -> None:
        """Assert that each row of a batch sums up the rewards of consecutive steps."""
        rows = {key: value.numpy() for key, value in batch.items() if isinstance(value, torch.Tensor)}
        newest, following = (_newest(rows[key])[:, 0].astype(np.int64) for key in (OBS, OBS2))
        assert np.array_equal(rows[OBS], self.observation(newest))
        assert np.array_equal(rows[OBS2], self.observation(following))
        steps = following - newest
        assert ((steps >= 1) & (steps <= n_step)).all()
        for row, (first, count) in enumerate(zip(newest.tolist(), steps.tolist(), strict=True)):
            assert self.begins[first] == self.begins[first + count]
            reward = sum(GAMMA**later * (first + later) for later in range(count))
            assert np.isclose(rows[REW][row, 0], reward, rtol=1e-5)
            terminated = self.ends.get(first + count - 1) == DONE2
            assert np.isclose(rows[DISCOUNT][row, 0], 0 if terminated else GAMMA**count)

    def assert_sequences_true(self, batch: Any) -> None:
        """Assert that each sequence (T, B, ...) has consecutive steps of one episode."""
        seen, real = _newest(batch[OBS].numpy())[..., 0].astype(np.int64), batch[MASK].numpy()[..., 0] == 1
        assert ((seen[1:] == seen[:-1] + 1) | ~real[1:]).all()
        for sequence in range(seen.shape[1]):
            numbers = seen[real[:, sequence], sequence].tolist()
            assert len({self.begins[number] for number in numbers}) == 1


def _newest(observation: Any) -> Any:
    return observation[..., -1, :] if observation.shape[-2:] == (DEPTH, 1) else observation


def environments(stacked: bool) -> Any:
    return ENVIRONMENTS if stacked else SimpleNamespace(num_envs=NUM_ENVS)


__all__ = ["ALGORITHM", "Numbered", "environments"]
