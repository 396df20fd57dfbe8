"""MinAtar's games as environments of gymnasium; the package itself registers them with the older gym alone."""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.other_packages import missing
from pytorchrl.registered_envs import MINATAR_GAMES


class MinAtar(gym.Env[NDArray[np.bool_], np.int64]):
    """A game of MinAtar: (10, 10, C) bits, six actions, a new episode when the player's life is lost.

    Young and Tian, "MinAtar" (arXiv 1903.03176). ``gymnasium.make("pytorchrl/MinAtar-Breakout-v0")`` makes one, with
    Asterix, Freeway, Seaquest and SpaceInvaders named alike. Episodes have no limit but that of Freeway, 2,500 frames;
    ``max_episode_steps=`` of ``gymnasium.make`` sets one. All random numbers are drawn from the environment's own
    generator, and a sticky action repeats only one of the same episode.

    Args:
        game: "asterix", "breakout", "freeway", "seaquest" or "space_invaders".
        sticky_action_prob: probability that the action before is repeated in place of the one given.
        difficulty_ramping: whether games become faster with time.
        minimal_action_set: leave out the actions that do nothing in this game.

    Raises:
        gymnasium.error.DependencyNotInstalled: the package minatar is not installed.
        ValueError: there is no such game, or the probability does not lie in [0, 1].
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - gymnasium's own way

    def __init__(
        self,
        game: str,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
        minimal_action_set: bool = False,
    ) -> None:
        if game not in MINATAR_GAMES:
            raise ValueError(f"MinAtar: game must be one of {', '.join(MINATAR_GAMES)}, got {game!r}")
        if not 0 <= sticky_action_prob <= 1:
            raise ValueError(f"MinAtar: sticky_action_prob must lie in [0, 1], got {sticky_action_prob}")
        self._game = _module(game).Env(ramping=difficulty_ramping)
        self._sticky_action_prob = sticky_action_prob
        self._actions: list[int] = self._game.minimal_action_set() if minimal_action_set else list(range(6))
        self._last_action = 0
        self._drawn_from: np.random.Generator | None = None
        shape: tuple[int, ...] = tuple(self._game.state_shape())
        self.observation_space: spaces.Space[Any] = spaces.Box(0, 1, shape, np.bool_)
        self.action_space = spaces.Discrete(len(self._actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        """Begin a game."""
        super().reset(seed=seed)
        if self._drawn_from is not self.np_random:
            self._drawn_from = self.np_random
            # The games call numpy's legacy interface; it draws from the same generator.
            self._game.random = np.random.RandomState(self.np_random.bit_generator)
        self._last_action = 0
        self._game.reset()
        return self._game.state(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.bool_], float, bool, bool, dict[str, Any]]:
        """Play a frame; terminated when the game is over, never truncated."""
        if self.np_random.random() >= self._sticky_action_prob:
            self._last_action = self._actions[action]
        reward, terminated = self._game.act(self._last_action)
        return self._game.state(), float(reward), bool(terminated), False, {}


@functools.cache
def _module(game: str) -> Any:
    """Import the module of a game by its path, since the package imports plotting libraries, for a second."""
    package = importlib.util.find_spec("minatar")
    if package is None or not package.submodule_search_locations:
        raise missing("minatar", "MinAtar")
    path = Path(package.submodule_search_locations[0]) / "environments" / f"{game}.py"
    spec = importlib.util.spec_from_file_location(f"minatar.environments.{game}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
