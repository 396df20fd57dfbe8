"""An environment that comes back to where it was, in another process too: by a seed and its actions since."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.checks import CHECKED_STEPS, check_reset, check_step
from pytorchrl.agent.envs.copies.episode_recorder import FINISHED, EpisodeRecorder
from pytorchrl.agent.envs.copies.lasting_state import lasting_state, layers_that_last, layers_with, load_lasting_state

SEEDED = "pytorchrl/seeded"
"""Key of the ``info`` of a reset, where a seed that was due was given."""


class Replayable(gym.Wrapper[Any, Any, Any, Any]):
    """Knows the seed that its environment was given last, and comes back to where actions since then had led.

    After a reset with a seed, it is reset without one where an episode has ended, as gymnasium's vector environments
    do. A wrapper that says by ``goes_on_at_reset`` that an episode of the environment outlasts the next reset gets its
    seed later: with one, the environment would have to begin anew.

    Args:
        env: with all its wrappers.
        recorder: of the environment below the wrappers; episodes that finished are reported in ``info``.
        replays: False repeats nothing: it comes back to a new episode.
    """

    def __init__(self, env: gym.Env[Any, Any], recorder: EpisodeRecorder, replays: bool = True) -> None:
        super().__init__(env)
        if env is recorder.env:
            # Each of its episodes ends in a reset, which reports it: not one call more in every step.
            self.step = env.step  # type: ignore[method-assign]
        self._unchecked = 0 if env is recorder.env else CHECKED_STEPS
        self.seed_due = False
        """Whether the next episode gets a seed, or the one after, where the environment's own goes on."""
        self.saved: Mapping[str, Any] = {}
        """What :meth:`replay` comes back to: what :meth:`history` said, the ``actions`` since the seed (steps, *action)
        and, as the vector environment showed them, the ``observation`` and ``reward`` that they led to."""
        self._recorder = recorder
        self._replays = replays
        self._layers = layers_that_last(env)
        self._outlasting = layers_with(env, "goes_on_at_reset")
        self._lasting: list[Any] = []
        self._seeds = np.random.default_rng()
        self._seed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; all seeds that are due later follow from one that is given."""
        if seed is not None:
            self._seeds = seeds_after(seed)
        is_due = seed is None and self.seed_due and not any(layer.goes_on_at_reset for layer in self._outlasting)
        if is_due:
            seed = self._draw_seed()
        result = self.env.reset(options=options) if seed is None else self._begin(seed, options)
        if self._unchecked:
            check_reset(result, self.env)
        observation, info = result
        return observation, self._with_finished(info | {SEEDED: True} if is_due else info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step; reports episodes that a wrapper goes on from."""
        result = self.env.step(action)
        if self._unchecked:
            check_step(result, self.env)
            self._unchecked -= 1
        observation, reward, terminated, truncated, info = result
        if terminated or truncated:
            # The reset that follows may write into what is observed now.
            return deepcopy(observation), reward, terminated, truncated, info
        return observation, reward, terminated, truncated, self._with_finished(info)

    def history(self) -> dict[str, Any]:
        """The seed, what lasted over episodes when it was given, and where later seeds come from."""
        return {
            "seed": self._seed,
            "seed_due": self.seed_due,
            "lasting": self._lasting if self._replays else lasting_state(self._layers),
            "seeds": self._seeds.bit_generator.state,
        }

    def running_episode(self) -> tuple[float, int]:
        """Return and length so far of the environment's own episode that is running."""
        return self._recorder.episode_return, self._recorder.length

    def replay(self) -> tuple[Any, bool]:
        """Come back to :attr:`saved`; begin a new episode where that does not lead to what was seen then.

        Returns:
            What is observed now, and whether it is what was observed then.
        """
        saved, self.saved = self.saved, {}
        self._seeds.bit_generator.state = saved["seeds"]
        load_lasting_state(self._layers, saved["lasting"])
        if self._replays:
            observation, _ = self._begin(saved["seed"], None)
            reward: Any = saved["reward"]
            for action in saved["actions"]:
                observation, reward, terminated, truncated, _ = self.step(action)
                if terminated or truncated:
                    observation, _ = self.reset()
            if shows(observation, saved["observation"]) and shows(reward, np.float64(saved["reward"])):
                self.seed_due = saved["seed_due"]
                # The return so far was summed again; episodes that finished on the way were reported then.
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
    """What the later seeds of an environment are drawn with that was given one, see :func:`drawn_seed`."""
    # Another stream than the one that environments make of the seed.
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))


def drawn_seed(seeds: np.random.Generator) -> int:
    """The next seed of an environment."""
    return int(seeds.integers(2**32))


def shows(observation: Any, expected: Any) -> bool:
    """Whether an observation or a reward is, to the bit, the one that was shown, of whatever dtype it was then."""
    if isinstance(expected, Mapping):
        return all(shows(observation[name], part) for name, part in expected.items())
    shown: NDArray[Any] = np.asarray(observation, expected.dtype)
    same: bool = shown.tobytes() == expected.tobytes()
    return same
