"""The content of the storages in ``beside_peers.py``: the same steps for every library.

The steps of a :class:`Content` are cyclic, the first follows the last, so that any number of them can be inserted. The
values do not matter for the time; the ends of episodes do, because some libraries store each observation once and final
observations apart.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]

OBSERVATION, ACTION = 17, 6  # HalfCheetah-v5
FRAMES, SIDE = 4, 84  # Atari
GAMMA = 0.99
_EPISODE = 1_000
_TRANSITIONS_AT_HAND = 4_000
"""Few enough to stay in a cache, half a megabyte, as new transitions of an environment do."""
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
    """Number of frames that an observation stacks."""

    @property
    def environments(self) -> int:
        """Number of environments, which is that of transitions in a step."""
        return self.observation.shape[1]

    @property
    def steps(self) -> int:
        """Number of steps of all environments."""
        return self.transitions // self.environments

    @property
    def done(self) -> Array:
        """(steps, environments, 1): the episode was terminated or truncated."""
        return self.terminated | self.truncated

    @property
    def starts(self) -> Array:
        """(steps, environments, 1): the step is the first of an episode."""
        return np.roll(self.done, 1, axis=0)

    def stream(self, array: Array) -> Array:
        """Return all transitions of an array of a single environment: (transitions, ...)."""
        assert self.environments == 1
        return np.resize(array[:, 0], (self.transitions, *array.shape[2:]))

    def episodes(self) -> Iterator[int]:
        """Yield the numbers of steps to take from the cycle until there are all transitions of one environment.

        Each but the last is an episode.
        """
        for first in range(0, self.transitions, len(self.observation)):
            yield min(len(self.observation), self.transitions - first)


def states(transitions: int, environments: int = 1) -> Content:
    """Return transitions of vectors of numbers; episodes of a thousand steps, which end at different steps."""
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
    """Return transitions of one environment whose observation is the last four frames, padded by the first."""
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
    """Inputs of advantages, each array (steps, environments), float32 or bool."""

    rewards: Array
    values: Array
    next_values: Array
    """Value of the next observation; of the final one where an episode was truncated; 0 where it terminated."""
    terminated: Array
    ends: Array
    """Whether the next step belongs to another episode."""


def rollout(steps: int, environments: int) -> Rollout:
    """Return a rollout with a termination every thousand steps; some libraries support no truncation."""
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
    """Split ends into terminations, in every second environment, and truncations, in the others."""
    even = (np.arange(done.shape[1]) % 2 == 0)[None, :, None]
    return done & even, done & ~even


PEERS_IN_MEMORY = {
    "cpprb": "benchmarks.storages.peer_cpprb",
    "rlox": "benchmarks.storages.peer_rlox",
    "tianshou": "benchmarks.storages.peer_tianshou",
    "torchrl": "benchmarks.storages.peer_torchrl",
    "stable-baselines3": "benchmarks.storages.peer_stable_baselines3",
}
PEERS_ON_DISK = {
    "PFRL": "benchmarks.persistence.disk_pfrl",
    "torchrl": "benchmarks.persistence.disk_torchrl",
    "Minari": "benchmarks.persistence.disk_minari",
}


def load_peers(modules: Mapping[str, str]) -> tuple[list[Any], list[str]]:
    """Return the libraries that are installed, and a sentence for each that is not, or only in part.

    Args:
        modules: the modules of the peers, by the libraries' names.
    """
    peers: list[Any] = []
    remarks: list[str] = []
    for name, module_name in modules.items():
        try:
            module = import_module(module_name)
        except Exception as error:  # One library that fails does not stop the others.
            reason = str(error).strip().partition("\n")[0]
            remarks.append(f"{name} is left out: {type(error).__name__}: {reason}")
        else:
            peers.extend(module.PEERS)
            if remark := getattr(module, "REMARK", ""):
                remarks.append(remark)
    return peers, remarks
