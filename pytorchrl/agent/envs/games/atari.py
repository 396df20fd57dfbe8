"""Atari games with preprocessing and frame skip in one environment."""

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.envs.other_packages import require
from pytorchrl.agent.envs.shrinking import Shrinking


class Atari(gym.Env[NDArray[np.uint8], np.int64]):
    """A game of the Arcade Learning Environment with frame skip; observations are (84, 84) greyscale frames.

    Preprocessing of Mnih et al., "Human-level control through deep reinforcement learning" (2015) and Machado et al.,
    "Revisiting the Arcade Learning Environment" (arXiv 1709.06009): the maximum of the last two skipped frames, since
    some sprites appear only in every other frame; their luminance, downscaled by area averaging. But for rounding, it
    equals gymnasium's ``AtariPreprocessing``, and it is faster: frames that are not observed are not converted. Sticky
    actions are drawn by the environment's own generator, since the emulator takes a seed only where it loads a game,
    for a tenth of a second.

    Rewards are the game's, an episode is a whole game. In games that have a fire button, it is pressed for one step at
    the beginning of each life, since some games wait for it: an agent trained with the loss of a life as the end of an
    episode need not learn to press it, and can be evaluated in whole games.

    Args:
        game: as the emulator names it, "pong" or "space_invaders".
        frame_skip: frames for which an action is repeated.
        repeat_action_probability: probability in each frame of repeating the action of the last one ("sticky actions").
        noop_max: a game begins with 1 to this many no-op frames; 0 for none.
        fire: whether fire is pressed at the beginning of a life.
        screen_size: height and width of an observation in pixels.
        full_action_space: all 18 actions instead of those that have an effect in the game.
        max_frames: a longer game is truncated; 108,000 are half an hour.
        game_mode: a variant of the game, as numbered by the emulator.
        game_difficulty: as numbered by the emulator.
        render_mode: "human" shows the game, "rgb_array" lets ``render()`` return the screen.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py is not installed.
        ValueError: a setting is out of its range.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 15}  # noqa: RUF012 - gymnasium's own way

    def __init__(
        self,
        game: str,
        *,
        frame_skip: int = 4,
        repeat_action_probability: float = 0.25,
        noop_max: int = 30,
        fire: bool = True,
        screen_size: int = 84,
        full_action_space: bool = False,
        max_frames: int = 108_000,
        game_mode: int | None = None,
        game_difficulty: int | None = None,
        render_mode: Literal["human", "rgb_array"] | None = None,
    ) -> None:
        whole = {"frame_skip": (frame_skip, 1), "noop_max": (noop_max, 0), "screen_size": (screen_size, 1)}
        for name, (value, lowest) in whole.items():
            if value < lowest:
                raise ValueError(f"Atari: {name} must be at least {lowest}, got {value}")
        if not 0 <= repeat_action_probability <= 1:
            raise ValueError(f"Atari: repeat_action_probability must lie in [0, 1], got {repeat_action_probability}")
        ale_py, roms = require("ale_py", "Atari"), require("ale_py.roms", "Atari")
        if game not in roms.get_all_rom_ids():
            raise ValueError(f"Atari: there is no game {game!r}; their names are like 'space_invaders'")
        self._noop, self._fire = ale_py.Action.NOOP, None
        # Before an interface is made, which would print its name.
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale = ale_py.ALEInterface()
        ale.setFloat("repeat_action_probability", 0.0)
        ale.setInt("random_seed", 0)
        ale.setInt("max_num_frames_per_episode", max_frames)
        if render_mode == "human":
            ale.setBool("display_screen", True)
            ale.setBool("sound", True)
        ale.loadROM(roms.get_rom_path(game))
        if game_mode is not None:
            ale.setMode(game_mode)
        if game_difficulty is not None:
            ale.setDifficulty(game_difficulty)
        self._loaded = ale.cloneSystemState()
        self._actions = ale.getLegalActionSet() if full_action_space else ale.getMinimalActionSet()
        if fire and ale_py.Action.FIRE in self._actions:
            self._fire = ale_py.Action.FIRE
        self._sticky = repeat_action_probability
        self._last_action = self._noop
        self._frame_skip, self._noop_max, self._size = frame_skip, noop_max, (screen_size, screen_size)
        dimensions = ale.getScreenDims()
        if screen_size > min(dimensions):
            raise ValueError(f"Atari: screen_size must be at most {min(dimensions)}, got {screen_size}")
        self._screens = np.zeros((2, *dimensions), np.uint8)
        self._shrink = Shrinking(dimensions, self._size)
        self._lives = 0
        self.render_mode = render_mode
        self.observation_space: spaces.Space[Any] = spaces.Box(0, 255, self._size, np.uint8)
        self.action_space = spaces.Discrete(len(self._actions))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin a game; with a seed, from the emulator's state when the game was loaded."""
        super().reset(seed=seed)
        ale = self.ale
        if seed is not None:
            ale.restoreSystemState(self._loaded)
        ale.reset_game()
        self._last_action = self._noop
        noops = int(self.np_random.integers(1, self._noop_max + 1)) if self._noop_max else 0
        for _ in range(noops):
            ale.act(self._noop)
            if ale.game_over():
                ale.reset_game()
        self._lives = ale.lives()
        self._screens[0].fill(0)
        ale.getScreenGrayscale(self._screens[1])
        if self._fire is not None:
            self._act(self._fire)
        return self._shown(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Repeat an action for the skipped frames; terminated when the game is over."""
        ale = self.ale
        reward = self._act(self._actions[action])
        lives, over = ale.lives(), ale.game_over()
        if lives < self._lives and self._fire is not None and not over:
            reward += self._act(self._fire)
            over = ale.game_over()
        self._lives = lives
        terminated = over and ale.game_over(with_truncation=False)
        return self._shown(), float(reward), terminated, over and not terminated, {}

    def get_action_meanings(self) -> list[str]:
        """Return the names of the actions."""
        return [action.name for action in self._actions]

    def render(self) -> Any:
        """Return the screen in colour, (height, width, 3)."""
        return self.ale.getScreenRGB() if self.render_mode == "rgb_array" else None

    def _act(self, action: Any) -> int:
        """Repeat an action and read the last two frames; return the sum of rewards."""
        ale, act = self.ale, self.ale.act
        actions = self._actions_of_frames(action) if self._sticky else (action,) * self._frame_skip
        reward: int = 0
        for played in actions[:-1]:
            reward += act(played)
            if ale.game_over():
                self._screens[0].fill(0)
                break
        else:
            ale.getScreenGrayscale(self._screens[0])
            reward += act(actions[-1])
        ale.getScreenGrayscale(self._screens[1])
        return reward

    def _actions_of_frames(self, action: Any) -> list[Any]:
        """Draw the action of each skipped frame, which may be the last one again (sticky actions)."""
        actions = []
        for repeats in (self.np_random.random(self._frame_skip) < self._sticky).tolist():
            self._last_action = self._last_action if repeats else action
            actions.append(self._last_action)
        return actions

    def _shown(self) -> NDArray[np.uint8]:
        older, newer = self._screens
        return self._shrink(np.maximum(older, newer, out=older) if self._frame_skip > 1 else newer)
