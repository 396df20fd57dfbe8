"""Copies of a Python environment, in one of gymnasium's vector environments."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FrameStackObservation, NormalizeReward
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord
from pytorchrl.agent.envs.copies.histories import Histories
from pytorchrl.agent.envs.copies.making import make_env, mark, release
from pytorchrl.agent.envs.copies.processes import ProcessEnvs, raise_picklable
from pytorchrl.agent.envs.copies.replayable import Replayable
from pytorchrl.agent.envs.copies.stepping import step_async, step_sync
from pytorchrl.agent.envs.native.autoreset import copied, with_last_of_each
from pytorchrl.agent.envs.spaces import EnvActions, with_trailing_axis
from pytorchrl.agent.envs.vector import Resumption, VecStep, Vector
from storages.closing import close_all


class Copies(Vector):
    """Copies of an environment, each reset in the step in which its episode ends.

    Args:
        env: a gymnasium id, or a callable that makes a new environment in each call.
        num_envs: number of copies.
        mode: "sync" steps them one after the other in this process, "async" each in a process of its own.
        wrappers: applied to each copy, first to last.
        env_kwargs: arguments of ``gymnasium.make`` (or of the callable).
        replays: whether saved copies are restored by repeating their actions.
        reports: keys of numbers in the info of an episode's last step that are recorded.
        owner: name of the component, for errors.
    """

    takes_tensors = False
    skips_steps = False
    skips_next = None

    def __init__(
        self,
        env: str | Callable[..., gym.Env[Any, Any]],
        num_envs: int,
        mode: Literal["sync", "async"],
        wrappers: Sequence[Any],
        env_kwargs: Mapping[str, Any],
        replays: bool,
        reports: Sequence[str],
        owner: str,
    ) -> None:
        found: list[int] = []
        specs: list[EnvSpec | None] = []
        names: list[str] = []
        marked: list[gym.Env[Any, Any]] = []
        process = os.getpid()

        def make() -> gym.Env[Any, Any]:
            made, recorder = make_env(env, dict(env_kwargs), wrappers, reports)
            found.append(frames_stacked_by(made))
            specs.append(made.spec)
            names.append(str(made))
            one = Replayable(made, recorder, replays)
            if os.getpid() != process:
                raise_picklable(one)
            if mode == "sync":
                # In other processes, each copy is the only one.
                mark(one)
                marked.append(one)
            return one

        self._make = make
        self._one: gym.Env[Any, Any] | None = None
        makers = [make] * num_envs
        made: SyncVectorEnv | ProcessEnvs
        try:
            if mode == "sync":
                # Observations are copied here, since gymnasium's deep copy is slower.
                made = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
            else:
                made = ProcessEnvs(makers)
        except BaseException:
            for one in marked:
                release(one)
            raise
        self._envs = made
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        # The first is always made in this process, in "async" mode too, to read its spaces.
        self.stacked_frames, self.spec, self.name = found[0], specs[0], names[0]
        self.finished_episodes: list[EpisodeRecord] = []
        self._env_actions = EnvActions(self.action_space)
        self._histories = Histories(self._envs, owner, replays)

    def reset(self, sequence: np.random.SeedSequence) -> Any:
        """Reset every environment; return their first observations (E, *obs), or a dict of such.

        Raises:
            TypeError: the ``state_dict()`` of an environment or wrapper holds more than plain data and arrays.
        """
        return self.reset_each(seeds_of_copies(sequence, self._envs.num_envs))

    def reset_each(self, seeds: list[int]) -> Any:
        """Reset each environment by its own seed; as :meth:`reset` else."""
        written_over, _ = self._envs.reset(seed=list(seeds))
        observation = copied(written_over)
        self._histories.begin(observation)
        self.finished_episodes = []
        return with_trailing_axis(observation, self.observation_space)

    def step(self, actions: NDArray[Any]) -> VecStep:
        """Step every environment."""
        actions = self._env_actions(actions)
        envs = self._envs
        step = step_sync(envs, actions) if isinstance(envs, SyncVectorEnv) else step_async(envs, actions)
        observation, last = step.observation, step.last_observations
        next_observation = with_last_of_each(observation, last) if last else observation
        self.finished_episodes = step.finished
        self._histories.add(actions, observation, step.reward, step.seeded)
        return VecStep(
            with_trailing_axis(observation, self.observation_space),
            with_trailing_axis(next_observation, self.observation_space),
            step.reward[:, None],
            step.terminated[:, None],
            step.truncated[:, None],
            step.infos,
        )

    def running_episodes(self) -> list[EpisodeRecord]:
        """Return the running episodes so far, as of the environments themselves, below all wrappers."""
        return [EpisodeRecord(env, *running) for env, running in enumerate(self._envs.call("running_episode"))]

    def state_dict(self) -> dict[str, Any]:
        """Return seeds and the actions since, and the state that lasts over episodes."""
        return self._histories.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> Resumption:
        """Restore the environments by replay; those that it does not restore begin new episodes.

        Raises:
            ValueError: it was saved with another number of environments.
        """
        observation, came_back = self._histories.load_state_dict(state)
        self.finished_episodes = []
        return Resumption(with_trailing_axis(observation, self.observation_space), came_back[:, None])

    def compute_reward(self) -> Callable[..., Any] | None:
        """Return ``compute_reward(achieved_goal, desired_goal, info)`` of one environment; None without goals.

        Raises:
            ValueError: a wrapper changes the rewards of steps, but not those of ``compute_reward``.
        """
        if self._one is None:
            # Those of other processes cannot be called from here.
            self._one = self._envs.envs[0] if isinstance(self._envs, SyncVectorEnv) else self._make()
        return reward_of_goals(self._one)

    def close(self) -> None:
        """Close the environments; a second call does nothing."""
        if not isinstance(self._envs, SyncVectorEnv):
            self._envs.close()
            return
        for one in self._envs.envs:
            release(one)
        if not self._envs.closed:
            # Its own `close` ends with the first environment that raises an exception, and is called again when it is
            # garbage-collected.
            self._envs.closed = True
            close_all(self._envs.envs)


def seeds_of_copies(sequence: np.random.SeedSequence, num_envs: int) -> list[int]:
    """Return the seeds that :meth:`Copies.reset` gives its environments."""
    return [int(word) for word in sequence.generate_state(num_envs)]


_NAME = "compute_reward"


def reward_of_goals(env: gym.Env[Any, Any]) -> Callable[..., Any] | None:
    """Return ``compute_reward(achieved_goal, desired_goal, info)`` of an environment, None where it has none.

    Raises:
        ValueError: a wrapper changes the rewards of steps, but not those of ``compute_reward``.
    """
    layer: Any = env
    changing: gym.Wrapper[Any, Any, Any, Any] | None = None
    while isinstance(layer, gym.Wrapper) and not hasattr(layer, _NAME):
        if isinstance(layer, gym.RewardWrapper | NormalizeReward):
            changing = layer
        layer = layer.env
    found: Callable[..., Any] | None = getattr(layer, _NAME, None)
    if found is not None and changing is not None:
        raise ValueError(
            f"VecEnv: the wrapper {type(changing).__name__} changes rewards, but not {_NAME}(achieved_goal, "
            f"desired_goal, info), by which hindsight computes those of other goals; leave it out, change {_NAME}, or "
            f"define {_NAME} in the wrapper, too"
        )
    return found


MOST_FRAMES = 255
"""Storages count frames in a byte."""


def frames_stacked_by(env: gym.Env[Any, Any]) -> int:
    """Return the number of frames that gymnasium's ``FrameStackObservation`` stacks, 0 where there is no stack.

    Wrappers around it may change each frame, but must keep the frames as the first axis.
    """
    layer: Any = env
    while isinstance(layer, gym.Wrapper):
        if isinstance(layer, FrameStackObservation):
            depth = int(layer.stack_size)
            return depth if 2 <= depth <= MOST_FRAMES and _have_as_first_axis(env.observation_space, depth) else 0
        layer = layer.env
    return 0


def _have_as_first_axis(space: spaces.Space[Any], depth: int) -> bool:
    leaves = space.values() if isinstance(space, spaces.Dict) else [space]
    return all(leaf.shape is not None and leaf.shape[:1] == (depth,) for leaf in leaves)
