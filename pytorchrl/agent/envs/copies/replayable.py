"""An environment that is restored, in another process too, by a seed and the actions since."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.checks import CHECKED_STEPS, ShapeCheck, check_reset, check_step
from pytorchrl.agent.envs.copies.episode_recorder import FINISHED, EpisodeRecorder
from pytorchrl.agent.envs.copies.infos import copied_info
from pytorchrl.agent.envs.copies.lasting_state import lasting_state, layers_that_last, layers_with, load_lasting_state

SEEDED = "pytorchrl/seeded"
"""Key of the ``info`` of a reset that was given a new seed."""


class Replayable(gym.Wrapper[Any, Any, Any, Any]):
    """Keep the last seed of an environment, and restore its state by repeating the actions since.

    After a reset with a seed, later resets are without one, as in gymnasium's vector environments, until a new seed is
    due. It is given later where a wrapper says by ``goes_on_at_reset`` that the environment's episode outlasts the next
    reset, since a reset with a seed would end that episode.

    Args:
        env: with all its wrappers.
        recorder: of the environment below the wrappers; episodes that ended are reported in ``info``.
        replays: False repeats no actions: a restored environment begins a new episode.
    """

    def __init__(self, env: gym.Env[Any, Any], recorder: EpisodeRecorder, replays: bool = True) -> None:
        super().__init__(env)
        if env is recorder.env:
            # Each of its episodes ends in a reset, which reports it; this saves a call in every step.
            self.step = env.step  # type: ignore[method-assign]
        self._check_shape = ShapeCheck(env)
        self._unchecked = 0 if env is recorder.env else CHECKED_STEPS
        self.seed_due = False
        """Whether the next reset that begins an episode of the environment itself is given a new seed."""
        self.saved: Mapping[str, Any] = {}
        """State that :meth:`replay` restores: that of :meth:`history`, the ``actions`` since the seed (steps, *action),
        and the ``observation`` and ``reward`` that they led to, as the vector environment returned them."""
        self._recorder = recorder
        self._replays = replays
        self._layers = layers_that_last(env)
        self._outlasting = layers_with(env, "goes_on_at_reset")
        self._lasting: list[Any] = []
        self._seeds = np.random.default_rng()
        self._seed = 0
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; later seeds are drawn from a generator seeded with the given one."""
        if seed is not None:
            self._seeds = seeds_after(seed)
        is_due = seed is None and self.seed_due and not any(layer.goes_on_at_reset for layer in self._outlasting)
        if is_due:
            seed = self._draw_seed()
        result = self.env.reset(options=options) if seed is None else self._begin(seed, options)
        if self._unchecked:
            check_reset(result, self.env)
        observation, info = result
        self._steps = 0
        self._check_shape(observation, 0)
        return observation, self._with_finished(info | {SEEDED: True} if is_due else info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; report episodes of the environment that a wrapper continues."""
        result = self.env.step(action)
        if self._unchecked:
            check_step(result, self.env)
            self._unchecked -= 1
        observation, reward, terminated, truncated, info = result
        self._steps += 1
        self._check_shape(observation, self._steps)
        if terminated or truncated:
            # The reset that follows may write into the memory of these.
            return deepcopy(observation), reward, terminated, truncated, copied_info(info)
        return observation, reward, terminated, truncated, self._with_finished(info)

    def history(self) -> dict[str, Any]:
        """Return the seed, the lasting state when it was given, and the state of the generator of later seeds."""
        return {
            "seed": self._seed,
            "seed_due": self.seed_due,
            "lasting": self._lasting if self._replays else lasting_state(self._layers),
            "seeds": self._seeds.bit_generator.state,
        }

    def running_episode(self) -> tuple[float, int]:
        """Return the return and the length so far of the environment's own running episode."""
        return self._recorder.episode_return, self._recorder.length

    def replay(self) -> tuple[Any, bool]:
        """Restore :attr:`saved` by repeating its actions; begin a new episode if they lead elsewhere.

        Returns:
            The current observation, and whether the state was restored.
        """
        saved, self.saved = self.saved, {}
        self._seeds.bit_generator.state = saved["seeds"]
        load_lasting_state(self._layers, saved["lasting"])
        if self._replays:
            observation, _ = self._begin(saved["seed"], None)
            reward: Any = saved["reward"]
            # A copy, as the environment may change its actions, which the log keeps.
            for action in saved["actions"].copy():
                observation, reward, terminated, truncated, _ = self.step(action)
                if terminated or truncated:
                    observation, _ = self.reset()
            if shows(observation, saved["observation"]) and shows(reward, np.float64(saved["reward"])):
                self.seed_due = saved["seed_due"]
                # The replay summed the running return again; episodes that ended in it were reported before.
                self._recorder.take_finished()
                return observation, True
        observation, _ = self._begin(self._draw_seed(), None)
        self._recorder.take_finished()
        return observation, False

    def _begin(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        self._lasting = lasting_state(self._layers)
        self._seed, self.seed_due = seed, False
        return self.env.reset(seed=seed, options=options)

    def _with_finished(self, info: dict[str, Any]) -> dict[str, Any]:
        finished = self._recorder.take_finished()
        return info | {FINISHED: finished} if finished else info

    def _draw_seed(self) -> int:
        return drawn_seed(self._seeds)


def seeds_after(seed: int) -> np.random.Generator:
    """Return the generator of an environment's later seeds, by the seed it was given; see :func:`drawn_seed`."""
    # A stream independent of the one that environments derive from the seed.
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))


def drawn_seed(seeds: np.random.Generator) -> int:
    """Draw the next seed of an environment."""
    return int(seeds.integers(2**32))


def shows(observation: Any, expected: Any) -> bool:
    """Whether an observation or a reward equals the expected one bit by bit, in the dtype of the latter."""
    if isinstance(expected, Mapping):
        has_all = isinstance(observation, Mapping) and expected.keys() <= observation.keys()
        return has_all and all(shows(observation[name], part) for name, part in expected.items())
    if isinstance(observation, Mapping):
        return False
    shown: NDArray[Any] = np.asarray(observation, expected.dtype)
    same: bool = shown.tobytes() == expected.tobytes()
    return same
