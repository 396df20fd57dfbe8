"""Rendering episodes of a policy, in a window or in a video."""

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.checks import InvalidEnvironmentError
from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecorder
from pytorchrl.agent.envs.copies.making import make_env, origin_of
from pytorchrl.agent.envs.mujoco import follow_robot, refuse_without_display, render
from pytorchrl.agent.envs.native.single import single_env
from pytorchrl.agent.envs.other_packages import find_registered
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from pytorchrl.experiments.recordings.video import write_video
from storages.component.factory import Factory

FRAMES_PER_SECOND = 30
"""Used for environments without ``render_fps``."""


class Played(NamedTuple):
    """Return and length of an episode that was played."""

    episode_return: float
    """In the environment's own rewards, below all wrappers."""
    length: int
    is_cut: bool = False
    """Whether it was stopped before its end."""


class Stage(NamedTuple):
    """An environment that renders."""

    env: gym.Env[Any, Any]
    recorder: EpisodeRecorder

    @property
    def frames_per_second(self) -> int:
        """The environment's ``render_fps``, else 30."""
        return int(self.env.metadata.get("render_fps") or FRAMES_PER_SECOND)


@contextmanager
def stage_of(envs: Factory[VecEnv], render_mode: Literal["rgb_array", "human"]) -> Iterator[Stage]:
    """Make a single copy of vectorised environments that renders; closed after the context.

    Args:
        envs: the factory whose environment is copied, with its wrappers; of a native vector environment, that which
            :func:`~pytorchrl.agent.envs.native.single.single_env` finds.
        render_mode: "rgb_array" for images, "human" for a window.

    Raises:
        RuntimeError: there is no display for a window of MuJoCo's.
        ValueError: the environment does not support the render mode.
    """
    if "env" not in envs.hyper_parameters:
        raise ValueError(f"{envs.name} has no argument env=... to copy one environment by, so none can be rendered")
    hyper_parameters = single_env(envs).hyper_parameters
    kwargs = dict(hyper_parameters["env_kwargs"] or {}) | {"render_mode": render_mode}
    try:
        env, recorder = make_env(hyper_parameters["env"], kwargs, hyper_parameters["wrappers"])
    except (TypeError, InvalidEnvironmentError) as error:
        # The text of an InvalidEnvironmentError has all arguments, that of its cause the refused one.
        if "render_mode" not in str(error.__cause__ or error):
            raise
        raise ValueError(
            f"the environment {hyper_parameters['env']} does not render: it takes no render_mode={render_mode!r}"
        ) from error
    try:
        modes = env.metadata.get("render_modes") or []
        if env.render_mode != render_mode:
            named = " and ".join(map(repr, modes)) or "nothing"
            raise ValueError(f"the environment {env.unwrapped} renders {named}, not {render_mode!r}")
        if render_mode == "human":
            refuse_without_display(env)
        follow_robot(env)
        yield Stage(env, recorder)
    finally:
        env.close()


def can_render(envs: Factory[VecEnv]) -> bool:
    """Whether :func:`stage_of` could show a single copy of vectorised environments, as far as their class tells.

    Nothing is made: a class tells it by its ``render_modes`` and a parameter ``render_mode``, a function by the latter.
    """
    try:
        make = single_env(envs).hyper_parameters.get("env")
    except ValueError:
        return False
    if make is None:
        return False
    if isinstance(make, str):
        find_registered(make)
        entry = gym.spec(make).entry_point
        make = load_env_creator(entry) if isinstance(entry, str) else entry
    metadata = getattr(make, "metadata", None)
    modes = set(metadata.get("render_modes") or ()) if isinstance(metadata, Mapping) else set()
    return takes_render_mode(make) and (not modes or bool(modes & {"human", "rgb_array"}))


def takes_render_mode(make: Any) -> bool:
    """Whether a class or function that makes environments has a parameter ``render_mode``."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        # It may have: only a call tells.
        return True
    return any(one.name == "render_mode" or one.kind is one.VAR_KEYWORD for one in parameters)


def refuse_without_rendering(envs: Factory[VecEnv], run: Path) -> None:
    """Refuse environments whose class does not render.

    Raises:
        ValueError: they do not; the message says what they lack, and how to evaluate without images.
    """
    if can_render(envs) or (env := envs.hyper_parameters.get("env")) is None:
        return
    # This refuses those for which there is no single one.
    single_env(envs)
    raise ValueError(
        f"the environment {origin_of(env)} does not render, neither in a window nor in a video: that needs a parameter "
        f"render_mode of its constructor, metadata = {{'render_modes': ['rgb_array']}}, and a method render() that "
        f"returns an image; evaluate {run} plays episodes without images"
    )


def check_renders(envs: Factory[VecEnv]) -> None:
    """Render one image of vectorised environments, whose first video would come late.

    Raises:
        RuntimeError: MuJoCo finds no OpenGL.
        ValueError: the environment does not render.
    """
    with stage_of(envs, "rgb_array") as stage:
        stage.env.reset(seed=0)
        render(stage.env)


def play(
    algorithm: Algorithm,
    stage: Stage,
    episodes: int,
    seed: np.random.SeedSequence,
    *,
    longest: float = math.inf,
    explore: bool = False,
) -> Iterator[Played | None]:
    """Play episodes of the environment itself; yields None after each reset and step, and each episode that finished.

    As in evaluations, the loss of a life ends no game of Atari: episodes of wrappers end with those of the environment.

    Args:
        algorithm: chooses the actions.
        stage: the environment.
        episodes: how many.
        seed: of the episodes and of exploration.
        longest: maximum length of an episode, in steps of the actor.
        explore: act with the exploration of the end of training, instead of deterministically.
    """
    policy = TrainedPolicy(algorithm, allow_nonfinite=True)
    for number in seed.generate_state(episodes).tolist():
        policy.reset()
        observation, _ = stage.env.reset(seed=number)
        reward: Any = None
        stage.recorder.take_finished()
        yield None
        for step in range(1, 2**62):
            action = policy(observation, rewards=reward, deterministic=not explore, seed=number)
            observation, reward, terminated, truncated, _ = stage.env.step(action)
            finished, is_too_long = stage.recorder.take_finished(), step >= longest
            if (terminated or truncated) and not finished and not is_too_long:
                yield None
                # A wrapper ended it; the reset tells whether the environment's own episode goes on.
                policy.reset()
                observation, _ = stage.env.reset()
                reward = None
                finished = stage.recorder.take_finished()
                if not finished:
                    continue
            if finished or is_too_long:
                running = (stage.recorder.episode_return, stage.recorder.length)
                yield Played(*(finished[-1][:2] if finished else running), is_cut=not finished)
                break
            yield None


def film(
    path: Path,
    algorithm: Algorithm,
    envs: Factory[VecEnv],
    episodes: int,
    longest: int,
    seed: np.random.SeedSequence,
    *,
    explore: bool = False,
    frames_per_second: int | None = None,
) -> list[Played]:
    """Record a video of episodes in a single copy of an environment.

    Args:
        path: of the video, which ends in ".mp4" or ".gif".
        algorithm: chooses the actions.
        envs: the factory whose environment is copied.
        episodes: how many.
        longest: maximum length of an episode, in steps of the actor.
        seed: of the episodes.
        explore: as in :func:`play`.
        frames_per_second: None uses the environment's ``render_fps``, else 30.

    Returns:
        The episodes.

    Raises:
        RuntimeError: MuJoCo finds no OpenGL.
        ValueError: the environment does not render.
    """
    played: list[Played] = []
    with stage_of(envs, "rgb_array") as stage:

        def frames() -> Iterator[Any]:
            for episode in play(algorithm, stage, episodes, seed, longest=longest, explore=explore):
                yield render(stage.env)
                if episode is not None:
                    played.append(episode)

        write_video(path, frames(), frames_per_second or stage.frames_per_second)
    return played
