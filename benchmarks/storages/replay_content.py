"""The content of the storages in ``beside_peers.py``: the same steps for every library.

The steps of a :class:`Content` follow each other in a circle, the first after the last, so that any number of them can
be inserted without a break. What the numbers are does not matter for time; where episodes end does, because some
libraries keep observations once and ends aside.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

OBSERVATION, ACTION = 17, 6  # HalfCheetah-v5
FRAMES, SIDE = 4, 84  # Atari
GAMMA = 0.99
_EPISODE = 1_000
_TRANSITIONS_AT_HAND = 4_000
"""What environments give has just been made, and lies in a cache: so many transitions, half a megabyte, do."""
_SEED = 1


@dataclass(frozen=True)
class Content:
    """Steps of some environments, each array (steps, environments, ...), and how many transitions to store of them."""

    transitions: int
    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    terminated: Array
    truncated: Array
    stacked_frames: int = 0
    """How many of the last frames an observation is."""

    @property
    def environments(self) -> int:
        """Transitions in a step."""
        return self.observation.shape[1]

    @property
    def steps(self) -> int:
        """How often all environments step until the transitions are there."""
        return self.transitions // self.environments

    @property
    def done(self) -> Array:
        """(steps, environments, 1): the episode ended, of either cause."""
        return self.terminated | self.truncated

    @property
    def starts(self) -> Array:
        """(steps, environments, 1): the step is the first of an episode."""
        return np.roll(self.done, 1, axis=0)

    def stream(self, array: Array) -> Array:
        """All transitions of an array of one environment's steps: (transitions, ...)."""
        assert self.environments == 1
        return np.resize(array[:, 0], (self.transitions, *array.shape[2:]))

    def episodes(self) -> Iterator[int]:
        """Of one environment: how many steps of the circle to take, again and again, until all transitions are there.

        Each time but the last, that is an episode.
        """
        for first in range(0, self.transitions, len(self.observation)):
            yield min(len(self.observation), self.transitions - first)


def states(transitions: int, environments: int = 1) -> Content:
    """Transitions of vectors of numbers; episodes of a thousand steps, whose ends do not fall together."""
    generator = np.random.default_rng(_SEED)
    shape = (min(_EPISODE, _TRANSITIONS_AT_HAND // environments), environments)
    done = _ends(environments)[: shape[0]]
    observation = generator.standard_normal((*shape, OBSERVATION), np.float32)
    next_observation = np.roll(observation, -1, axis=0)
    next_observation[done[..., 0]] = generator.standard_normal((int(done.sum()), OBSERVATION), np.float32)
    return Content(
        transitions,
        observation,
        generator.uniform(-1, 1, (*shape, ACTION)).astype(np.float32),
        generator.standard_normal((*shape, 1), np.float32),
        next_observation,
        *_causes(done),
    )


def stacks(transitions: int) -> Content:
    """Transitions of one environment whose observation is the last four frames, at first the first one four times."""
    generator = np.random.default_rng(_SEED)
    frames = generator.integers(0, 256, (_EPISODE + FRAMES, SIDE, SIDE), np.uint8)
    frames[: FRAMES - 1] = frames[FRAMES - 1]
    stacked = np.moveaxis(np.lib.stride_tricks.sliding_window_view(frames, FRAMES, axis=0), -1, 1)
    return Content(
        transitions,
        np.ascontiguousarray(stacked[:-1])[:, None],
        generator.integers(0, 6, (_EPISODE, 1, 1)),
        generator.standard_normal((_EPISODE, 1, 1), np.float32),
        np.ascontiguousarray(stacked[1:])[:, None],
        *_causes(_ends(1)),
        stacked_frames=FRAMES,
    )


@dataclass(frozen=True)
class Rollout:
    """What advantages are made of, each array (steps, environments), float32 and bool."""

    rewards: Array
    values: Array
    next_values: Array
    """The next step's value; where an episode was cut, that of its last observation; 0 where it terminated."""
    terminated: Array
    ends: Array
    """Where the next step is of another episode."""


def rollout(steps: int, environments: int) -> Rollout:
    """A rollout with an end every thousand steps, all of them terminations, as some libraries know nothing else."""
    generator = np.random.default_rng(_SEED)
    values = generator.standard_normal((steps + 1, environments), np.float32)
    ends = np.resize(_ends(environments)[..., 0], (steps, environments))
    return Rollout(
        generator.standard_normal((steps, environments), np.float32),
        values[:-1].copy(),
        np.where(ends, np.float32(0), values[1:]),
        ends,
        ends,
    )


def _ends(environments: int) -> Array:
    step, environment = np.arange(_EPISODE)[:, None], np.arange(environments)[None]
    return ((step + 37 * environment) % _EPISODE == _EPISODE - 1)[..., None]


def _causes(done: Array) -> tuple[Array, Array]:
    """Every second environment's episodes terminate, the others are cut."""
    even = (np.arange(done.shape[1]) % 2 == 0)[None, :, None]
    return done & even, done & ~even
