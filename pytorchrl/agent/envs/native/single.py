"""Single environments in place of native vector environments, which do not render: gymnasium's of the same name."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym

from pytorchrl.agent.envs.games.atari_envs import atari_envs
from pytorchrl.agent.envs.native.native_making import is_native, refuse_native
from pytorchrl.agent.envs.other_packages import find_registered, is_game, require
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.component.factory import Factory, make_factory

_OF_GAMES: Mapping[str, str] = {
    "stack_num": "frame_stack",
    "frame_skip": "frame_skip",
    "frameskip": "frame_skip",
    "noop_max": "noop_max",
    "img_height": "screen_size",
    "full_action_space": "full_action_space",
    "repeat_action_probability": "repeat_action_probability",
    "mode": "game_mode",
    "difficulty": "game_difficulty",
    "max_num_frames_per_episode": "max_frames",
}
"""Settings of EnvPool's and ALE's games, and those of :func:`atari_envs`; others do not change what a game shows."""
_COLOURS = ("gray_scale", "grayscale")
_OF_POOLS = frozenset(
    {"num_threads", "thread_affinity_offset", "batch_size", "max_num_players", "base_path", "seed", "env_seed"}
)
"""Settings of EnvPool's threads and seeds, which single environments do not have."""


def single_env(factory: Factory[VecEnv]) -> Factory[VecEnv]:
    """Return a factory of copies of a single environment that shows what a native vector environment does.

    Copies are returned unchanged. EnvPool's and ALE's games become gymnasium's with the preprocessing of
    :func:`atari_envs`, in whole games; EnvPool's other ids, and those with a vector environment of their own, become
    gymnasium's of the same name.

    Raises:
        ValueError: gymnasium has no such environment, or its observations would be others.
    """
    given = factory.hyper_parameters
    env, backend = given.get("env"), given.get("backend", "gymnasium")
    if env is None or not is_native(env, given.get("vectorization_mode"), backend):
        return factory
    settings = dict(given["env_kwargs"] or {})
    named = f"ALE/{env}" if backend == "envpool" and is_game(f"ALE/{env}") else env
    is_game_of_backend = backend != "gymnasium" and is_game(named)
    if is_game_of_backend and all(settings.get(name, True) for name in _COLOURS):
        return atari_envs(named, training=False, **_of_game(env, backend, settings))
    if is_game_of_backend or not isinstance(env, str) or not _is_known(env):
        refuse_native(given, factory.name)
    changed = {
        "vectorization_mode": None,
        "backend": "gymnasium",
        "num_envs": 1,
        "env_kwargs": {name: value for name, value in settings.items() if name not in _OF_POOLS} or None,
    }
    return make_factory(factory.cls, (), {**given, **changed})


def _is_known(env: str) -> bool:
    try:
        find_registered(env)
    except (gym.error.Error, ModuleNotFoundError):
        return False
    return True


def _of_game(env: str, backend: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of :func:`atari_envs` that equal those of a game of EnvPool or ALE."""
    if backend == "envpool":
        # Its ids differ from ALE's in the probability of sticky actions.
        config = require("envpool", "VecEnv").make_spec(env, **settings).config._asdict()
        settings = {name: config[name] for name in (*_OF_GAMES, "use_fire_reset") if name in config}
    # A mode or difficulty below 0 is the game's default.
    chosen = {name: value for name, value in settings.items() if name not in ("mode", "difficulty") or value >= 0}
    named = {_OF_GAMES[name]: value for name, value in chosen.items() if name in _OF_GAMES}
    # Both press fire where a game begins, and not where a life does.
    return {**named, "fire": False, "wrappers": ["FireOnReset"] if settings.get("use_fire_reset", True) else []}
