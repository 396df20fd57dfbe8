"""Vector environments: gymnasium's own, with the true last observations of ended episodes where they belong."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from pytorchrl.agent.envs.episode_recorder import FINISHED, EpisodeRecord
from pytorchrl.agent.envs.frames import MOST_FRAMES, frames_stacked_by
from pytorchrl.agent.envs.histories import Histories
from pytorchrl.agent.envs.making import check_id, check_wrapper, make_env
from pytorchrl.agent.envs.replayable import SEEDED, Replayable
from pytorchrl.agent.envs.spaces import EnvActions, check_action_space, check_observation_space, with_trailing_axis
from pytorchrl.agent.envs.worker_signals import worker_signals
from storages.component.factory import Component, Factory, make_factory
from storages.component.hyper_parameters import Count


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


class Resumption(NamedTuple):
    """Where ``E`` environments are after :meth:`VecEnv.load_state_dict`."""

    observation: Any
    """(E, *obs) or a dict: what the actor sees next."""
    came_back: NDArray[np.bool_]
    """(E, 1): the episode that was running goes on; elsewhere a new one begins."""


class VecEnv(Component):
    """``num_envs`` copies of an environment, stepped together, each reset in the step in which it ends.

    A saved vector of environments comes back to where it was: each is reset with a seed that it was given lately and
    repeats its actions since, while what lasts over episodes is saved (the statistics of ``NormalizeReward``; the
    ``state_dict()`` of an environment or wrapper that has one, and ``load_state_dict``). Where that does not lead to
    exactly the same observation and reward, a new episode begins.

    Observations of nested Dict and Tuple spaces become one dict of arrays: a position in a Tuple or a key of a Dict is
    joined to what it lies in by a slash (``camera/0``). Storages and actors know no other structure.

    Wrappers of rewards change what is learnt from, not what is reported: :attr:`finished_episodes` has the returns of
    the environment itself. ``NormalizeReward`` has statistics for each copy; ``NormalizeObservation`` is refused.

    Args:
        env: a gymnasium id (of Atari and robotics too, where their packages are installed), or a callable that makes an
            environment.
        num_envs: copies.
        mode: "sync" steps them one after the other in this process, "async" each in a process of its own.
        wrappers: applied to each copy, first to last: names of gymnasium's wrappers (``"FlattenObservation"``) and of
            ``ScaleReward``, ``SelectObservation``, ``BoundAction``, ``RoundAction``, ``FlattenAction``,
            ``RandomizeAction``, ``FlickerFrames``, ``EpisodicLife`` and ``FireOnReset``, pairs of such a name and its
            arguments (``("FrameStackObservation", {"stack_size": 4})``), or callables from an environment to an
            environment. A composition of names alone can be resumed from its run folder.
        env_kwargs: arguments of ``gymnasium.make`` (or of the callable).
        stacked_frames: of how many of the last frames an observation is a stack, the newest last, so that storages keep
            each frame once; a dict for some leaves of dict observations. None finds out by looking for gymnasium's
            ``FrameStackObservation``; 0 keeps whole observations.
        replay_on_resume: False begins new episodes in a resumed run: for robots, and whatever else is not to repeat
            what it did.
        episode_infos: numbers in the ``info`` of an episode's last step, as the environment itself reports them below
            all wrappers, that are logged beside the return, where they are there: "train/is_success".

    Raises:
        InvalidEnvironmentError: the environment breaks gymnasium's interface; what it returns is checked in its first
            reset and steps.
        UnsupportedSpaceError: its observations or actions are no arrays, or two parts of nested observations would have
            the same name.
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
        replay_on_resume: bool = True,
        episode_infos: Sequence[str] = ("is_success", "success", "score"),
    ) -> None:
        found: list[int] = []
        specs: list[EnvSpec | None] = []
        names: list[str] = []
        process, signals = os.getpid(), worker_signals()

        def make() -> gym.Env[Any, Any]:
            if os.getpid() != process:
                signals.heed()
            made, recorder = make_env(env, dict(env_kwargs or {}), wrappers, episode_infos)
            found.append(frames_stacked_by(made))
            specs.append(made.spec)
            names.append(str(made))
            return Replayable(made, recorder, replay_on_resume)

        self._make = make
        self._one: gym.Env[Any, Any] | None = None
        makers = [make] * num_envs
        vector: Any = SyncVectorEnv if mode == "sync" else AsyncVectorEnv
        self._envs: SyncVectorEnv | AsyncVectorEnv = vector(makers, autoreset_mode=AutoresetMode.SAME_STEP)
        self.num_envs = num_envs
        self.mode = mode
        self.is_wrapped = bool(wrappers)
        """Whether there are wrappers, which may change rewards and cut episodes."""
        self.observation_space = self._envs.single_observation_space
        """Of one environment."""
        self.action_space = self._envs.single_action_space
        """Of one environment."""
        # The first is always made in this process, in "async" mode too: it tells the spaces.
        self.stacked_frames: int | Mapping[str, int] = found[0] if stacked_frames is None else stacked_frames
        """Of how many frames an observation is a stack; 0 where it is none."""
        self.finished_episodes: list[EpisodeRecord] = []
        """The environments' own episodes that finished in the last step, with their returns before any wrapper."""
        self._spec = specs[0]
        self._name = names[0]
        try:
            check_observation_space(self.observation_space, type(self).__name__)
            check_action_space(self.action_space, type(self).__name__)
        except ValueError:
            self.close()
            raise
        self._env_actions = EnvActions(self.action_space)
        self._histories = Histories(self._envs, type(self).__name__, replay_on_resume)

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse an environment in place of a function that makes one."""
        env = arguments.get("env")
        if isinstance(env, gym.Env):
            raise ValueError(
                f"{cls.__name__}: env is an instance, {env}; each copy has to be a new one: pass the class, "
                f"{type(env).__name__}, and its arguments as env_kwargs, or a function that makes one, "
                f"lambda: {type(env).__name__}(...)"
            )

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse ids that gymnasium does not know, and wrappers that do not exist or cannot be used."""
        env = hyper_parameters.get("env")
        if isinstance(env, str):
            check_id(env, cls.__name__)
        for wrapper in hyper_parameters["wrappers"]:
            check_wrapper(wrapper, cls.__name__)
        frames = hyper_parameters["stacked_frames"]
        for depth in frames.values() if isinstance(frames, Mapping) else (frames or 0,):
            if not 0 <= depth <= MOST_FRAMES or depth == 1:
                raise ValueError(f"{cls.__name__}: stacked_frames must be 0, or lie in [2, {MOST_FRAMES}], got {depth}")

    def reset(self, seed: int | np.random.SeedSequence | None = None) -> Any:
        """Begin an episode in every environment; returns their first observations (E, *obs), or a dict of such.

        Raises:
            TypeError: the ``state_dict()`` of an environment or wrapper holds more than plain data and arrays.
        """
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        seeds = seeds_of_copies(sequence, self.num_envs)
        observation, _ = self._envs.reset(seed=list(seeds))
        self._histories.begin(observation)
        self.finished_episodes = []
        return with_trailing_axis(observation, self.observation_space)

    def step(self, actions: NDArray[Any]) -> VecStep:
        """Step every environment.

        Args:
            actions: (E, 1) integers from 0 for a Discrete space; (E, *action) integers from 0 for a MultiDiscrete one,
                0 or 1 for a MultiBinary one, numbers within the bounds for a Box.
        """
        actions = self._env_actions(actions)
        observation, reward, terminated, truncated, infos = self._envs.step(actions)
        self.finished_episodes = []
        if FINISHED in infos:
            self.finished_episodes = _records(infos.pop(FINISHED))
            del infos[f"_{FINISHED}"]
        next_observation = observation
        ended: Sequence[int] = ()
        if "final_obs" in infos:
            ended = [env for env, final in enumerate(infos["final_obs"]) if final is not None]
            next_observation = _with_last_observations(observation, infos["final_obs"], ended)
        seeded: Sequence[int] = ()
        if SEEDED in infos:
            seeded = np.flatnonzero(infos.pop(SEEDED)).tolist()
            del infos[f"_{SEEDED}"]
        self._histories.add(actions, observation, reward, seeded)
        return VecStep(
            with_trailing_axis(observation, self.observation_space),
            with_trailing_axis(next_observation, self.observation_space),
            reward[:, None],
            terminated[:, None],
            truncated[:, None],
            infos,
        )

    def running_episodes(self) -> list[EpisodeRecord]:
        """The environments' own episodes that are running, as far as they have come."""
        return [EpisodeRecord(env, *running) for env, running in enumerate(self._envs.call("running_episode"))]

    def state_dict(self) -> dict[str, Any]:
        """What it takes to come back to where the environments are, as tensors and plain data.

        It grows with the longest running episode, by an action a step.

        Raises:
            RuntimeError: no episode was ever begun.
        """
        return self._histories.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> Resumption:
        """Come back to where the environments were when it was saved.

        Raises:
            ValueError: it was saved with another number of environments.
        """
        observation, came_back = self._histories.load_state_dict(state)
        self.finished_episodes = []
        return Resumption(with_trailing_axis(observation, self.observation_space), came_back[:, None])

    @property
    def env_spec(self) -> str | None:
        """JSON of gymnasium's ``EnvSpec`` of one environment; None where it has none that can be written down."""
        try:
            return None if self._spec is None else self._spec.to_json()
        except (AttributeError, TypeError, ValueError):
            return None

    @property
    def env_name(self) -> str:
        """One environment with its wrappers, for messages."""
        return getattr(self, "_name", type(self).__name__)

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


def seeds_of_copies(sequence: np.random.SeedSequence, num_envs: int) -> list[int]:
    """The seeds that :meth:`VecEnv.reset` gives its environments."""
    return [int(word) for word in sequence.generate_state(num_envs)]


def one_copy(factory: Factory[VecEnv]) -> Factory[VecEnv]:
    """A factory of the same environments, one copy in this process, to be evaluated in."""
    hyper_parameters = factory.hyper_parameters
    changed = {name: value for name, value in _ONE_COPY.items() if name in hyper_parameters}
    return make_factory(factory.cls, (), hyper_parameters | changed)


_ONE_COPY = {"num_envs": 1, "mode": "sync"}


def _records(finished: NDArray[Any]) -> list[EpisodeRecord]:
    """The episodes that each environment reports, by environment."""
    return [EpisodeRecord(env, *episode) for env, episodes in enumerate(finished) for episode in episodes or ()]


def _with_last_observations(observation: Any, last: NDArray[Any], ended: Sequence[int]) -> Any:
    """A copy of the batch with the last observations of the environments that ended."""
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
