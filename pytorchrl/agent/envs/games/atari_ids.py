"""Settings that ids of Atari define: the game, and those in which its versions differ."""

from typing import Any

import gymnasium as gym

from pytorchrl.agent.envs.other_packages import find_registered, require

_ENTRY_POINT = "ale_py.env:AtariEnv"


def is_game(env: object) -> bool:
    """Whether an environment is named by an id of Atari, whose observations are raw frames."""
    if not isinstance(env, str):
        return False
    try:
        find_registered(env)
        return bool(gym.spec(env).entry_point == _ENTRY_POINT)
    except (gym.error.Error, ModuleNotFoundError):
        return False


def settings_of(env: str, owner: str) -> dict[str, Any]:
    """Return the settings that an id defines, by the names of ALE's own environments.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py is not installed.
        ValueError: it is not an id of Atari.
    """
    require("ale_py", owner)
    try:
        find_registered(env)
        spec = gym.spec(env)
    except gym.error.Error as error:
        raise ValueError(f"{owner}: env {env!r} is no id that is registered: {error}") from None
    if spec.entry_point != _ENTRY_POINT:
        raise ValueError(f"{owner}: env {env!r} is no game of Atari; their ids are like 'ALE/Pong-v5'")
    names = ("game", "repeat_action_probability", "full_action_space", "max_num_frames_per_episode")
    return {name: spec.kwargs[name] for name in names}
