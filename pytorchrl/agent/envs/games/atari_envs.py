"""Vector environments of Atari games with standard preprocessing."""

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
