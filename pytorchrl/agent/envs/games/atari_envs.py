"""Vector environments of Atari games with standard preprocessing."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pytorchrl.agent.envs.games.atari import Atari
from pytorchrl.agent.envs.other_packages import is_game, settings_of
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.component.factory import Factory, make_factory

_OF_ALE: Mapping[str, str] = {
    "frameskip": "frame_skip",
    "mode": "game_mode",
    "difficulty": "game_difficulty",
    "max_num_frames_per_episode": "max_frames",
}
"""Settings of ALE's own environments that have another name here."""
_OF_MAKE = ("max_episode_steps",)
"""Arguments of ``gymnasium.make`` that ids of Atari take as well."""
_PREPROCESSING = frozenset(
    {
        "AtariPreprocessing",
        "FrameStackObservation",
        "GrayscaleObservation",
        "MaxAndSkipObservation",
        "ResizeObservation",
    }
)
"""Wrappers of gymnasium that preprocess frames."""


def atari_envs(
    env: str,
    num_envs: int = 1,
    *,
    mode: Literal["sync", "async"] = "sync",
    training: bool = True,
    life_loss: bool = True,
    clip_rewards: bool = True,
    frame_stack: int = 4,
    wrappers: Sequence[Any] = (),
    **settings: Any,
) -> Factory[VecEnv]:
    """Return a factory of :class:`~pytorchrl.agent.envs.games.atari.Atari` games with stacked frames.

    The id defines the game, the probability of sticky actions (0.25 of ``ALE/Pong-v5``, 0 of ``PongNoFrameskip-v4``),
    the action set and the maximum length of a game; the frame skip is 4 with every id. A run reports unclipped returns
    of whole games, in training and in evaluation.

    Args:
        env: an id of Atari.
        num_envs: number of copies.
        mode: "sync" or "async", as for :class:`~pytorchrl.agent.envs.vec_env.VecEnv`.
        training: False is for evaluation: whole games, with the game's own rewards.
        life_loss: whether the loss of a life ends an episode in training.
        clip_rewards: whether rewards are clipped to [-1, 1] in training.
        frame_stack: number of frames in an observation, the newest last; storages keep each once. 1 for no stack.
        wrappers: further wrappers, of single frames: they come before the stacking.
        settings: of :class:`~pytorchrl.agent.envs.games.atari.Atari`, such as ``repeat_action_probability=0.0``.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py is not installed.
        ValueError: it is not an id of Atari, or there is no such setting.
    """
    known = set(inspect.signature(Atari).parameters) - {"game"}
    if not set(settings) <= known:
        unknown = ", ".join(sorted(set(settings) - known))
        raise ValueError(f"atari_envs: there is no setting {unknown}; those of Atari are {', '.join(sorted(known))}")
    given = settings_of(env, "atari_envs")
    given["max_frames"] = given.pop("max_num_frames_per_episode")
    layers: list[Any] = []
    if training and life_loss:
        layers.append("EpisodicLife")
    if training and clip_rewards:
        layers.append(("ClipReward", {"min_reward": -1.0, "max_reward": 1.0}))
    layers += wrappers
    if frame_stack > 1:
        layers.append(("FrameStackObservation", {"stack_size": frame_stack}))
    return VecEnv.create_factory(
        "pytorchrl/Atari-v0", num_envs, mode=mode, wrappers=layers, env_kwargs={**given, **settings}
    )


def preprocessed(factory: Factory[VecEnv]) -> Factory[VecEnv]:
    """Return the factory of an Atari id's environments with the preprocessing of :func:`atari_envs`.

    Other environments are returned unchanged, and so are games whose wrappers preprocess frames already, whose
    ``obs_type`` is chosen, or which another library makes. Arguments may have the names of ALE's own environments.

    Raises:
        ValueError: the game has no such setting.
    """
    given = factory.hyper_parameters
    arguments, wrappers = dict(given["env_kwargs"] or {}), list(given["wrappers"])
    is_native = given["vectorization_mode"] is not None or given["backend"] != "gymnasium"
    names = {one if isinstance(one, str) else getattr(one, "__name__", None) or one[0] for one in wrappers}
    if is_native or names & _PREPROCESSING or "obs_type" in arguments or not is_game(given["env"]):
        return factory
    of_make = {name: arguments.pop(name) for name in _OF_MAKE if name in arguments}
    settings = {_OF_ALE.get(name, name): value for name, value in arguments.items()}
    made = atari_envs(given["env"], wrappers=wrappers, **settings).hyper_parameters
    game = {name: made[name] for name in ("env", "wrappers")} | {"env_kwargs": {**made["env_kwargs"], **of_make}}
    return make_factory(factory.cls, (), given | game)
