"""Vector environments whose observations are rendered images, stacked."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium.wrappers import FrameStackObservation

from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.envs.wrappers.action_wrappers import RepeatAction
from pytorchrl.agent.envs.wrappers.observation_wrappers import ObservePixels
from storages.component.factory import Factory


def pixel_envs(
    env: str | Callable[..., gym.Env[Any, Any]],
    num_envs: int = 1,
    *,
    mode: Literal["sync", "async"] = "sync",
    size: int = 84,
    grayscale: bool = False,
    action_repeat: int = 2,
    frame_stack: int = 3,
    wrappers: Sequence[Any] = (),
    **env_kwargs: Any,
) -> Factory[VecEnv]:
    """Return a factory of environments of which agents see only the last few rendered images.

    The defaults are those of Yarats et al., "DrQ-v2" (arXiv 2107.09645). Observations are (frames, 3, H, W) of uint8,
    the newest last; storages keep each image once. Gymnasium's classic control renders without a display and a GPU.

    Args:
        env: id or callable, with the render mode "rgb_array".
        num_envs: number of copies.
        mode: "sync" or "async", as for :class:`~pytorchrl.agent.envs.vec_env.VecEnv`.
        size: height and width of an image in pixels.
        grayscale: images have one channel of luminance, (frames, H, W), instead of three colours.
        action_repeat: steps for which an action is repeated.
        frame_stack: number of images in an observation; 1 for no stack.
        wrappers: further wrappers, of single images: they come before the stacking.
        env_kwargs: arguments of ``gymnasium.make``.
    """
    layers: list[Any] = []
    if action_repeat > 1:
        layers.append(("RepeatAction", {"times": action_repeat}))
    layers.append(("ObservePixels", {"size": size, "grayscale": grayscale}))
    layers += wrappers
    if frame_stack > 1:
        layers.append(("FrameStackObservation", {"stack_size": frame_stack}))
    arguments = {"render_mode": "rgb_array", **env_kwargs}
    return VecEnv.create_factory(env, num_envs, mode=mode, wrappers=layers, env_kwargs=arguments)


def pixel_pendulum(
    size: int = 40, grayscale: bool = True, action_repeat: int = 2, frame_stack: int = 3, **arguments: Any
) -> gym.Env[Any, Any]:
    """Make Pendulum, of which only the last few images are observed; arguments as of `pixel_envs`."""
    arguments["render_mode"] = "rgb_array"
    env: gym.Env[Any, Any] = RepeatAction(gym.make("Pendulum-v1", **arguments), action_repeat)
    env = ObservePixels(env, size, grayscale)
    return FrameStackObservation(env, frame_stack) if frame_stack > 1 else env
