"""Vectors of Atari games with the preprocessing that agents are compared under."""

import inspect
from collections.abc import Sequence
from typing import Any, Literal

from pytorchrl.agent.envs.games.atari import Atari
from pytorchrl.agent.envs.games.atari_ids import settings_of
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.component.factory import Factory


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
    """A factory of games as :class:`~pytorchrl.agent.envs.games.atari.Atari` shows them, in stacks of the last frames.

    Of an id, the game, the probability that an action is repeated ("sticky actions": 0.25 of ``ALE/Pong-v5``, 0 of
    ``PongNoFrameskip-v4``), and the actions are taken; an action lasts 4 frames with every id. A run reports
    returns of whole games, not clipped, of training and evaluation alike.

    Args:
        env: an id of Atari.
        num_envs: copies.
        mode: "sync" or "async", as for :class:`~pytorchrl.agent.envs.vec_env.VecEnv`.
        training: False is for environments to be evaluated in: whole games, with the game's own rewards.
        life_loss: whether the loss of a life ends an episode in training.
        clip_rewards: whether rewards are clipped to [-1, 1] in training.
        frame_stack: how many frames an observation shows, the newest last; storages keep each once. 1 shows a frame.
        wrappers: further ones, of single frames: they come before the stacking.
        settings: of :class:`~pytorchrl.agent.envs.games.atari.Atari`, such as ``repeat_action_probability=0.0``.

    Raises:
        gymnasium.error.DependencyNotInstalled: ale-py is not installed.
        ValueError: it is no id of Atari, or there is no such setting.
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
