"""A simple reference model of a storage: a list of complete transitions; and streams of steps for both."""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from storages import ReplayBuffer, Storage
from storages.transition import (
    ACT,
    DISCOUNT,
    DONE,
    DONE2,
    FLAGS,
    INDICES,
    OBS,
    OBS2,
    REW,
    REWC,
    RHS,
    RHS2,
    TRUNC2,
    WEIGHTS,
)

GAMMA = 0.9
ALGORITHM = SimpleNamespace(gamma=GAMMA)
KINDS = ("vector", "double", "image", "discrete", "bits", "dict", "frames", "dict of frames")
DEPTH = 3
STACKED_FRAMES: dict[str, Any] = {"frames": DEPTH, "dict of frames": {"pixels": DEPTH, "touch": DEPTH}}
Sample = dict[str, Any]


def environments(kind: str, num_envs: int) -> Any:
    """The environments that a storage is made with; None if it does not need them."""
    if kind not in STACKED_FRAMES:
        return None
    return SimpleNamespace(num_envs=num_envs, stacked_frames=STACKED_FRAMES[kind])


def replay_buffer(size: int, seed: int = 0, envs: Any = None, **hyper_parameters: Any) -> ReplayBuffer:
    storage = ReplayBuffer.create_factory(size=size, **hyper_parameters)("cpu", None, ALGORITHM, envs)
    storage.seed(seed)
    return storage


@dataclass
class Stream:
    """Steps of environments as a collector inserts them: episodes end at random, and some are interrupted."""

    num_envs: int
    kind: str
    recurrent: bool
    generator: np.random.Generator
    continued: Any = None
    rhs: Any = None
    ended: NDArray[np.bool_] | None = None
    components: int = 0
    """Number of components of rewards."""

    def observe(self) -> Any:
        draw, envs = self.generator, self.num_envs
        kinds: dict[str, Callable[[], Any]] = {
            "vector": lambda: draw.normal(size=(envs, 3)).astype(np.float32),
            "double": lambda: draw.normal(size=(envs, 2, 2)),
            # Few values, so that different observations are often equal.
            "image": lambda: draw.integers(0, 2, (envs, 2, 2), np.uint8),
            "discrete": lambda: draw.integers(0, 3, envs),
            "bits": lambda: draw.random((envs, 2)) < 0.5,
            "dict": lambda: {
                "a": draw.normal(size=(envs, 2)).astype(np.float32),
                "b": draw.integers(0, 255, (envs, 1, 3), np.uint8),
            },
            "frames": lambda: self._padded(self._frame()),
            "dict of frames": lambda: {
                "pixels": self._padded(self._frame()),
                "speed": draw.normal(size=(envs, DEPTH)),
                "touch": self._padded(draw.normal(size=(envs, 1, 2)).astype(np.float32)),
            },
        }
        return kinds[self.kind]()

    def follow(self, obs: Any) -> Any:
        """A possible next observation."""
        if self.kind == "frames":
            return np.concatenate([obs[:, 1:], self._frame()], axis=1)
        new = self.observe()
        if self.kind == "dict of frames":
            for name in STACKED_FRAMES[self.kind]:
                new[name] = np.concatenate([obs[name][:, 1:], new[name][:, -1:]], axis=1)
        return new

    def _frame(self) -> Any:
        return self.generator.integers(0, 2, (self.num_envs, 1, 2, 1), np.uint8)

    def _padded(self, frame: Any) -> Any:
        """First stacks of episodes: padded with the frame, with zeros, or with random numbers."""
        stacks = np.repeat(frame, DEPTH, axis=1)
        for env, way in enumerate(self.generator.integers(0, 3, self.num_envs)):
            if way > 0:
                stacks[env, :-1] = 0 if way == 1 else self.generator.integers(0, 2, stacks[env, :-1].shape)
        return stacks

    def step(self) -> Sample:
        draw, envs = self.generator, self.num_envs
        first = np.ones((envs, 1), bool) if self.ended is None else self.ended
        obs, rhs = self.observe(), draw.normal(size=(envs, 4)).astype(np.float32)
        # An interrupted stream may have another observation, or a flag of a new episode, or both.
        jumps, begins = self._flag(0.05), self._flag(0.05)
        for env in range(envs):
            if not first[env] and not jumps[env]:
                _copy_row(self.continued, obs, env)
                rhs[env] = self.rhs[env]
        terminated, truncated = self._flag(0.15), self._flag(0.15)
        self.continued, self.rhs = self.follow(obs), draw.normal(size=(envs, 4)).astype(np.float32)
        self.ended = terminated | truncated
        sample = {
            OBS: obs,
            DONE: first | begins,
            ACT: draw.integers(0, 5, (envs, 1)),
            REW: draw.normal(size=(envs, 1)).astype(np.float32),
            OBS2: self.continued,
            DONE2: terminated,
            TRUNC2: truncated,
        }
        if self.recurrent:
            sample |= {RHS: rhs, RHS2: self.rhs}
        if self.components:
            sample[REWC] = draw.normal(size=(envs, self.components)).astype(np.float32)
        return sample

    def end_episode(self, envs: Iterable[int]) -> None:
        """Record that environments were reset manually."""
        if self.ended is not None:
            self.ended = self.ended.copy()
            self.ended[list(envs)] = True

    def _flag(self, probability: float) -> NDArray[np.bool_]:
        return self.generator.random((self.num_envs, 1)) < probability


@dataclass
class Model:
    """Every live transition, complete, by the number of its step."""

    size: int
    steps: dict[int, Sample] = field(default_factory=dict)
    next_step: int = 0

    def insert(self, sample: Sample) -> None:
        self.steps[self.next_step] = map_leaves(sample, np.array)
        self.next_step += 1
        self.steps.pop(self.next_step - 1 - self.size, None)

    def end_episode(self, envs: Iterable[int]) -> None:
        newest = self.steps.get(self.next_step - 1)
        for env in envs if newest else ():
            newest[TRUNC2][env] |= ~newest[DONE2][env]

    def reset(self, next_step: int) -> None:
        self.steps.clear()
        self.next_step = next_step

    def live(self) -> list[Sample]:
        return [self.steps[number] for number in sorted(self.steps)]

    def copy(self) -> "Model":
        return Model(self.size, {number: map_leaves(s, np.array) for number, s in self.steps.items()}, self.next_step)


def unchanged(*fields: Any) -> Any:
    """A ``her_function`` that returns its input, so that relabelled steps still equal the inserted ones."""
    return fields[:5]


def dressed(sample: Sample, way: int) -> Sample:
    """The same sample in another form that a collector might use."""
    ways: list[Callable[[Sample], Sample]] = [
        lambda s: s,
        lambda s: map_leaves(s, torch.from_numpy),
        lambda s: dict(reversed(s.items())),
        lambda s: map_leaves(s, lambda leaf: np.asfortranarray(np.repeat(leaf, 2, 0))[::2]),
        lambda s: s | {key: s[key].astype(np.float32) for key in FLAGS & s.keys()},
        lambda s: s | {key: torch.from_numpy(s[key].astype(np.uint8)) for key in FLAGS & s.keys()},
    ]
    return ways[way % len(ways)](sample)


def assert_batch_is_of(model: Model, batch: Sample, num_envs: int) -> None:
    """Assert that every row of a batch exactly equals a live transition of the model."""
    for row, number in enumerate(batch[INDICES][:, 0].tolist()):
        step, env = divmod(number, num_envs)
        assert step in model.steps, f"transition {number} is not live"
        own = {key: value for key, value in batch.items() if key not in (DISCOUNT, WEIGHTS, INDICES)}
        assert_row_equal(own, row, model.steps[step], env)
        terminated = model.steps[step][DONE2][env, 0]
        assert batch[DISCOUNT][row].tolist() == [np.float32(0 if terminated else GAMMA)]
        assert batch[WEIGHTS][row].tolist() == [1]


def assert_row_equal(batch: Sample, row: int, sample: Sample, env: int) -> None:
    assert batch.keys() == sample.keys()
    for key, value in sample.items():
        pairs = (
            [(batch[key][name], leaf) for name, leaf in value.items()]
            if isinstance(value, dict)
            else [(batch[key], value)]
        )
        for tensor, leaf in pairs:
            expected = leaf[env].astype(np.float32) if key in FLAGS else leaf[env]
            found = tensor[row].numpy()
            assert found.dtype == expected.dtype, key
            assert found.shape == expected.shape, key
            assert found.tobytes() == expected.tobytes(), f"{key}: {found} is not {expected}"


def assert_slice_is(data: Sample, steps: list[Sample]) -> None:
    """Assert that data (steps, E, ...) equals these steps in this order."""
    for number, sample in enumerate(steps):
        for env in range(len(sample[DONE])):
            assert_row_equal(map_leaves(data, lambda leaf, number=number: leaf[number]), env, sample, env)
    assert {len(leaf) for leaf in all_leaves(data)} <= {len(steps)}


def all_leaves(nested: Any) -> Iterator[Any]:
    if isinstance(nested, dict):
        for value in nested.values():
            yield from all_leaves(value)
    else:
        yield nested


def map_leaves(nested: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(nested, dict):
        return {key: map_leaves(value, function) for key, value in nested.items()}
    return function(nested)


def contents(storage: Storage) -> Any:
    """All stored data as bytes, for later comparison."""
    return map_leaves(storage.get_all_buffer_data(), lambda tensor: tensor.numpy().tobytes())


def through_a_file(state: Any) -> Any:
    """A state that was saved and loaded like a checkpoint."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def equal(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    return torch.equal(one, two)


def _copy_row(source: Any, target: Any, env: int) -> None:
    if isinstance(source, dict):
        for name in source:
            target[name][env] = source[name][env]
    else:
        target[env] = source[env]
