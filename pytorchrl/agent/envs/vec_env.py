"""Vector environments: gymnasium's own, with the true last observations of ended episodes where they belong."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from pytorchrl.agent.envs.frames import MOST_FRAMES, frames_stacked_by
from pytorchrl.agent.envs.select_observation import SelectObservation
from pytorchrl.agent.envs.spaces import check_action_space, check_observation_space, with_trailing_axis
from storages.factory import Component
from storages.hyper_parameters import Count


class VecStep(NamedTuple):
    """What a step of ``E`` environments led to; the arrays are the caller's."""

    observation: Any
    """(E, *obs) or a dict: what the actor sees next, the first of a new episode where one ended."""
    next_observation: Any
    """As ``observation``: what followed the action, the true last observation where an episode ended."""
    reward: NDArray[np.float64]
    """(E, 1)."""
    terminated: NDArray[np.bool_]
    """(E, 1): the environment ended."""
    truncated: NDArray[np.bool_]
    """(E, 1): a limit cut the episode."""
    infos: Mapping[str, Any]
    """What gymnasium reports."""


class VecEnv(Component):
    """``num_envs`` copies of an environment, stepped together, each reset in the step in which it ends.

    Args:
        env: a gymnasium id, or a callable that makes an environment.
        num_envs: copies.
        mode: "sync" steps them one after the other in this process, "async" each in a process of its own.
        wrappers: applied to each copy, first to last: names of gymnasium's wrappers (``"FlattenObservation"``) and of
            ``SelectObservation``, pairs of such a name and its arguments (``("FrameStackObservation", {"stack_size":
            4})``), or callables from an environment to an environment. A composition of names alone can be resumed from
            its run folder.
        env_kwargs: arguments of ``gymnasium.make`` (or of the callable).
        stacked_frames: of how many of the last frames an observation is a stack, the newest last, so that storages keep
            each frame once; a dict for some leaves of dict observations. None finds out by looking for gymnasium's
            ``FrameStackObservation``; 0 keeps whole observations.
    """

    def __init__(
        self,
        env: str | Callable[..., gym.Env[Any, Any]],
        num_envs: Count = 1,
        *,
        mode: Literal["sync", "async"] = "sync",
        wrappers: Sequence[Any] = (),
        env_kwargs: Mapping[str, Any] | None = None,
        stacked_frames: int | Mapping[str, int] | None = None,
    ) -> None:
        found: list[int] = []
        specs: list[EnvSpec | None] = []

        def make() -> gym.Env[Any, Any]:
            made = _make(env, dict(env_kwargs or {}))
            for wrapper in wrappers:
                made = _wrap(made, wrapper)
            found.append(frames_stacked_by(made))
            specs.append(made.spec)
            return made

        self._make = make
        self._one: gym.Env[Any, Any] | None = None
        makers = [make] * num_envs
        vector = SyncVectorEnv if mode == "sync" else AsyncVectorEnv
        self._envs: gym.vector.VectorEnv[Any, Any, Any] = vector(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        self.num_envs = num_envs
        self.observation_space = self._envs.single_observation_space
        """Of one environment."""
        self.action_space = self._envs.single_action_space
        """Of one environment."""
        # The first is always made in this process, in "async" mode too: it tells the spaces.
        self.stacked_frames: int | Mapping[str, int] = found[0] if stacked_frames is None else stacked_frames
        """Of how many frames an observation is a stack; 0 where it is none."""
        self._spec = specs[0]
        try:
            check_observation_space(self.observation_space, type(self).__name__)
            check_action_space(self.action_space, type(self).__name__)
        except ValueError:
            self.close()
            raise
        self._first_action = int(self.action_space.start) if isinstance(self.action_space, spaces.Discrete) else None

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse ids that gymnasium does not know and wrappers that do not exist."""
        env = hyper_parameters["env"]
        if isinstance(env, str):
            try:
                gym.spec(env)
            except (gym.error.Error, ModuleNotFoundError) as error:
                raise ValueError(f"{cls.__name__}: env {env!r} is no registered gymnasium id: {error}") from None
        for wrapper in hyper_parameters["wrappers"]:
            name = wrapper if isinstance(wrapper, str) else wrapper[0] if _is_named(wrapper) else None
            if name is not None and name not in _OUR_WRAPPERS and not hasattr(gym.wrappers, name):
                raise ValueError(f"{cls.__name__}: wrappers: gymnasium.wrappers has no {name!r}")
            if name is None and not callable(wrapper):
                raise ValueError(
                    f"{cls.__name__}: wrappers: {wrapper!r} is neither a name, a (name, arguments) pair nor a callable"
                )
        frames = hyper_parameters["stacked_frames"]
        for depth in frames.values() if isinstance(frames, Mapping) else (frames or 0,):
            if not 0 <= depth <= MOST_FRAMES or depth == 1:
                raise ValueError(f"{cls.__name__}: stacked_frames must be 0, or lie in [2, {MOST_FRAMES}], got {depth}")

    def reset(self, seed: int | np.random.SeedSequence | None = None) -> Any:
        """Begin an episode in every environment; returns their first observations (E, *obs), or a dict of such."""
        seeds: Any = None
        if seed is not None:
            sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
            seeds = [int(word) for word in sequence.generate_state(self.num_envs)]
        observation, _ = self._envs.reset(seed=seeds)
        return with_trailing_axis(observation, self.observation_space)

    def step(self, actions: NDArray[Any]) -> VecStep:
        """Step every environment.

        Args:
            actions: (E, 1) integers from 0 for a Discrete space, (E, *action) within the bounds for a Box.
        """
        if self._first_action is not None:
            actions = actions[:, 0] + self._first_action
        observation, reward, terminated, truncated, infos = self._envs.step(actions)
        next_observation = observation
        if "final_obs" in infos:
            next_observation = _with_last_observations(observation, infos["final_obs"])
        return VecStep(
            with_trailing_axis(observation, self.observation_space),
            with_trailing_axis(next_observation, self.observation_space),
            reward[:, None],
            terminated[:, None],
            truncated[:, None],
            infos,
        )

    @property
    def env_spec(self) -> str | None:
        """JSON of gymnasium's ``EnvSpec`` of one environment; None where it has none that can be written down."""
        try:
            return None if self._spec is None else self._spec.to_json()
        except (AttributeError, TypeError, ValueError):
            return None

    @property
    def compute_reward(self) -> Callable[..., Any] | None:
        """``compute_reward(achieved_goal, desired_goal, info)`` of one environment; None where they have no goals."""
        if self._one is None:
            # Those of other processes cannot be called from here.
            self._one = self._envs.envs[0] if isinstance(self._envs, SyncVectorEnv) else self._make()
        if not self._one.has_wrapper_attr("compute_reward"):
            return None
        compute_reward: Callable[..., Any] = self._one.get_wrapper_attr("compute_reward")
        return compute_reward

    def close(self) -> None:
        """Free what the environments hold; a second call does nothing."""
        self._envs.close()


_OUR_WRAPPERS = {"SelectObservation": SelectObservation}


def _make(env: str | Callable[..., gym.Env[Any, Any]], arguments: dict[str, Any]) -> gym.Env[Any, Any]:
    if not isinstance(env, str):
        return env(**arguments)
    try:
        return gym.make(env, **arguments)
    except gym.error.DependencyNotInstalled as error:
        raise gym.error.DependencyNotInstalled(
            f"VecEnv: {env} needs a package that is not installed: {error} "
            f'The extras are pip install "pytorchrl[mujoco]", "pytorchrl[atari]", "pytorchrl[box2d]"'
        ) from error


def _is_named(wrapper: Any) -> bool:
    return isinstance(wrapper, list | tuple) and len(wrapper) == 2 and isinstance(wrapper[0], str)


def _wrap(env: gym.Env[Any, Any], wrapper: Any) -> gym.Env[Any, Any]:
    if isinstance(wrapper, str):
        wrapper = (wrapper, {})
    if _is_named(wrapper):
        name, arguments = wrapper
        make: Any = _OUR_WRAPPERS[name] if name in _OUR_WRAPPERS else getattr(gym.wrappers, name)
        wrapped: gym.Env[Any, Any] = make(env, **arguments)
        return wrapped
    made: gym.Env[Any, Any] = wrapper(env)
    return made


def _with_last_observations(observation: Any, last: NDArray[Any]) -> Any:
    """A copy of the batch with the last observations of the environments that ended; ``last`` holds None for others."""
    ended = [env for env, final in enumerate(last) if final is not None]
    if isinstance(observation, Mapping):
        copies = {name: part.copy() for name, part in observation.items()}
        for env in ended:
            for name, part in copies.items():
                part[env] = last[env][name]
        return copies
    copy = observation.copy()
    for env in ended:
        copy[env] = last[env]
    return copy
