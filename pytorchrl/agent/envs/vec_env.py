"""Vector environments: copies of Python environments, or native vector environments."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pytorchrl.agent.envs.checks import refuse_instance, refuse_vector
from pytorchrl.agent.envs.copies.copies import MOST_FRAMES, Copies
from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord
from pytorchrl.agent.envs.copies.histories import check_histories
from pytorchrl.agent.envs.copies.making import check_id, check_wrapper
from pytorchrl.agent.envs.native.native import Native, check_native_state
from pytorchrl.agent.envs.native.native_making import (
    Backend,
    check_native,
    check_vector_wrapper,
    is_native,
    make_native,
    wrap_native,
)
from pytorchrl.agent.envs.spaces import check_action_space, check_observation_space
from pytorchrl.agent.envs.vector import Resumption, VecStep, Vector
from pytorchrl.agent.other_names import ENVIRONMENT_NAMES, VEC_ENV_METHODS
from storages.closing import Closing
from storages.component.declared import parameter
from storages.component.factory import Factory, StandaloneComponent, make_factory
from storages.component.hyper_parameters import Count
from storages.component.other_names import answer_missing

USUAL_INFOS = "is_success", "success", "score"
"""Infos of an episode's last step that are logged where an environment reports them."""


class VecEnv(StandaloneComponent, Closing):
    """``num_envs`` environments that are stepped together: copies of one, or a native vector environment.

    Copies are reset in the step in which their episode ends. A native vector environment steps all its environments
    itself: that of a gymnasium id with a ``vector_entry_point``, EnvPool's, ALE's, or one that a callable with a
    parameter ``num_envs`` makes. It may have any of gymnasium's autoreset modes. With NEXT_STEP, the step after the end
    of an episode makes no transition, and none is stored. With SAME_STEP, final observations must be reported as
    ``infos["final_obs"]``. Observations that are tensors stay on their device, and actions are then given as tensors.

    Saved copies are restored by replay: each is reset with its last seed and repeats its actions since, while state
    that lasts over episodes is saved (the statistics of ``NormalizeReward``; the ``state_dict()`` of an environment or
    wrapper that has one, and ``load_state_dict``). Where that does not lead to exactly the same observation and reward,
    a new episode begins. A native vector environment is restored if it has ``state_dict()`` and
    ``load_state_dict(state)``; otherwise, all its environments begin new episodes.

    Observations of nested Dict and Tuple spaces are flattened to one dict of arrays, whose names are the keys and
    positions that lead to them, joined by slashes (``camera/0``). Storages and actors know no other structure. Native
    vector environments must give such a dict, or an array, themselves.

    Wrappers of rewards change the rewards that are learnt from, not those that are reported: :attr:`finished_episodes`
    has the returns of the environment itself. ``NormalizeReward`` has statistics for each copy;
    ``NormalizeObservation`` is refused.

    Args:
        env: a gymnasium id (of Atari and robotics too, where their packages are installed), a callable that makes a new
            environment, or one with a parameter ``num_envs`` that makes a ``gymnasium.vector.VectorEnv``.
        num_envs: number of environments.
        mode: "sync" steps copies one after the other in this process, "async" each in a process of its own.
        vectorization_mode: "vector_entry_point" makes gymnasium's vector environment of an id; None makes copies.
        backend: library whose vector environment an id names: "envpool" or "ale"; "gymnasium" for neither.
        wrappers: applied to each copy, first to last: names of gymnasium's wrappers (``"FlattenObservation"``) and of
            ``ScaleReward``, ``TerminalReward``, ``SelectObservation``, ``BoundAction``, ``RoundAction``,
            ``FlattenAction``, ``JoinActions``, ``RepeatAction``, ``RandomizeAction``, ``FlickerFrames``,
            ``EpisodicLife``, ``FireOnReset``, ``ObserveActionMask`` and ``ObservePixels``, pairs of such a name and its
            arguments (``("FrameStackObservation", {"stack_size": 4})``), or callables from an environment to an
            environment. Around a vector environment, those of ``gymnasium.wrappers.vector``. A composition of names
            alone can be resumed from its run folder.
        env_kwargs: arguments of ``gymnasium.make`` (or of the callable, ``envpool.make``, ``AtariVectorEnv``).
        stacked_frames: number of frames that are stacked in an observation, the newest last, so that storages keep each
            frame once; a dict for some leaves of dict observations. None detects gymnasium's ``FrameStackObservation``
            and the stacks of EnvPool and ALE; 0 keeps whole observations.
        replay_on_resume: False begins new episodes in a resumed run, as for robots, which must not repeat their
            actions.
        episode_infos: keys of numbers in the ``info`` of an episode's last step, as the environment reports them below
            all wrappers, that are logged with the return: "train/distance". Those of the default are logged in any case
            where they are present; an empty list logs none. A warning names those, other than the default ones, that
            the first episode to end does not report.

    Raises:
        InvalidEnvironmentError: the environment breaks gymnasium's interface; what it returns is checked in its first
            reset and steps.
        UnsupportedSpaceError: its observations or actions are not arrays, or two parts of nested observations would
            have the same name.
    """

    other_names, other_methods = ENVIRONMENT_NAMES, VEC_ENV_METHODS
    role, example = "train_envs_factory", '"CartPole-v1", num_envs=8'

    env: str | Callable[..., gym.Env[Any, Any]] | Callable[..., VectorEnv[Any, Any, Any]] = parameter(kw_only=False)
    num_envs: Count = parameter(default=1, kw_only=False)
    mode: Literal["sync", "async"] = "sync"
    vectorization_mode: Literal["vector_entry_point"] | None = None
    backend: Backend = "gymnasium"
    wrappers: Sequence[Any] = ()
    env_kwargs: Mapping[str, Any] | None = None
    stacked_frames: int | Mapping[str, int] | None = None
    replay_on_resume: bool = True
    episode_infos: Sequence[str] = USUAL_INFOS

    if not TYPE_CHECKING:  # for which each name would exist
        __getattr__ = answer_missing

    def build(self) -> None:
        """Make the environments; hyper-parameters are set already."""
        name, kwargs, wrappers = type(self).__name__, dict(self.env_kwargs or {}), self.wrappers
        infos = with_usual_infos(self.episode_infos)
        self.is_native = is_native(self.env, self.vectorization_mode, self.backend)
        """Whether it is a native vector environment, rather than copies."""
        if self.is_native:
            made, frames = make_native(self.env, self.num_envs, self.backend, kwargs)
            self._vector: Vector = Native(
                made, self.num_envs, lambda envs: wrap_native(envs, wrappers), frames, infos, name
            )
        else:
            one: Any = self.env
            self._vector = Copies(one, self.num_envs, self.mode, wrappers, kwargs, self.replay_on_resume, infos, name)
        self.is_wrapped = bool(wrappers)
        """Whether there are wrappers, which may change rewards and cut episodes."""
        self.observation_space = self._vector.observation_space
        """Observation space of one environment."""
        self.action_space = self._vector.action_space
        """Action space of one environment."""
        if self.stacked_frames is None:
            self.stacked_frames = self._vector.stacked_frames
        self.skips_steps = self._vector.skips_steps
        """Whether the step in which an environment begins its next episode makes no transition."""
        try:
            check_observation_space(self.observation_space, name)
            check_action_space(self.action_space, name)
        except ValueError:
            self.close()
            raise
        self._action_shape = self.num_envs, *(self.action_space.shape or (1,))
        self._takes_reals = isinstance(self.action_space, gym.spaces.Box)
        self._expected_infos = _asked_for(self.episode_infos)

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse an environment in place of a function that makes one."""
        env = arguments.get("env")
        refuse_vector(env, cls.__name__)
        refuse_instance(env, cls.__name__)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse ids that gymnasium does not know, and wrappers that do not exist or cannot be used."""
        env = hyper_parameters.get("env")
        vectorization_mode, backend = hyper_parameters["vectorization_mode"], hyper_parameters["backend"]
        if isinstance(env, str) and backend == "gymnasium":
            check_id(env, cls.__name__)
        native = is_native(env, vectorization_mode, backend)
        if native:
            if hyper_parameters["mode"] == "async":
                raise ValueError(
                    f"{cls.__name__}: mode='async' steps copies in processes, but {env!r} is a vector environment; "
                    f"leave out mode"
                )
            check_native(env, vectorization_mode, backend, cls.__name__)
        for wrapper in hyper_parameters["wrappers"]:
            (check_vector_wrapper if native else check_wrapper)(wrapper, cls.__name__)
        frames = hyper_parameters["stacked_frames"]
        for depth in frames.values() if isinstance(frames, Mapping) else (frames or 0,):
            if not 0 <= depth <= MOST_FRAMES or depth == 1:
                raise ValueError(f"{cls.__name__}: stacked_frames must be 0, or lie in [2, {MOST_FRAMES}], got {depth}")

    def reset(self, seed: int | np.random.SeedSequence | Sequence[int] | None = None) -> Any:
        """Reset every environment; return their first observations (E, *obs), or a dict of such.

        Args:
            seed: from which those of the environments are derived; or E seeds, each of which is passed to the ``reset``
                of one environment, which a native vector environment does not take.

        Raises:
            TypeError: the ``state_dict()`` of an environment or wrapper holds more than plain data and arrays.
            ValueError: seeds of each environment are of another number, or given to a native vector environment.
        """
        if isinstance(seed, Sequence):
            if len(seed) != self.num_envs:
                raise ValueError(f"{type(self).__name__}: got {len(seed)} seeds for {self.num_envs} environments")
            return self._vector.reset_each(list(seed))
        return self._vector.reset(seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed))

    def step(self, actions: NDArray[Any] | torch.Tensor) -> VecStep:
        """Step every environment.

        Args:
            actions: (E, 1) integers from 0 for a Discrete space; (E, *action) integers from 0 for a MultiDiscrete one,
                0 or 1 for a MultiBinary one, numbers within the bounds for a Box. Tensors where :attr:`takes_tensors`.

        Raises:
            ValueError: the actions are of another shape, or not integers where the space is not a Box.
        """
        if getattr(actions, "shape", None) != self._action_shape or not (
            self._takes_reals or actions.dtype in _INTEGERS
        ):
            raise ValueError(self._unlike_actions(actions))
        step = self._vector.step(actions)
        if self._expected_infos and self._vector.finished_episodes:
            self._warn_of_absent_infos(step.infos)
        return step

    def _warn_of_absent_infos(self, infos: Mapping[str, Any]) -> None:
        """Name the expected infos that the first episodes to end did not report, and all that they did."""
        reported = {name for record in self._vector.finished_episodes for name in record.reported}
        absent, self._expected_infos = sorted(self._expected_infos - reported), frozenset()
        if absent:
            last = infos.get("final_info", infos)
            present = [repr(name) for name in sorted(last) if not name.startswith("_")]
            warnings.warn(
                f"{type(self).__name__}: episode_infos names {', '.join(map(repr, absent))}, which the last info of "
                f"{self.env_name}'s first episode does not have as a number; it has {', '.join(present) or 'nothing'}",
                stacklevel=3,
            )

    def _unlike_actions(self, actions: Any) -> str:
        """Return what is wrong with actions of another shape or dtype."""
        wanted = "numbers" if self._takes_reals else "integers"
        given = f"a {type(actions).__name__}"
        if hasattr(actions, "shape"):
            given = f"{actions.dtype} of shape {tuple(actions.shape)}"
        way_out = "; actions[:, None] has it" if (*getattr(actions, "shape", ()), 1) == self._action_shape else ""
        return (
            f"{type(self).__name__}: actions of {self.num_envs} environments with the action space "
            f"{self.action_space} must be {wanted} of shape {self._action_shape}, got {given}{way_out}"
        )

    @property
    def finished_episodes(self) -> list[EpisodeRecord]:
        """Episodes that ended in the last step, as of the environments themselves, below all wrappers."""
        return self._vector.finished_episodes

    @property
    def takes_tensors(self) -> bool:
        """Whether observations are tensors, and actions must be, too; known from the first reset on."""
        return self._vector.takes_tensors

    @property
    def skips_next(self) -> NDArray[np.bool_] | None:
        """(E,): which environments make no transition in the next step; None where all do."""
        return self._vector.skips_next

    def running_episodes(self) -> list[EpisodeRecord]:
        """Return the running episodes so far, as of the environments themselves, below all wrappers."""
        return self._vector.running_episodes()

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which the environments can be restored, as tensors and plain data.

        That of copies grows with the longest running episode, by an action for each step.

        Raises:
            RuntimeError: the environments were never reset.
        """
        return self._vector.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> Resumption:
        """Restore the environments to the saved state, as far as they can be.

        Raises:
            ValueError: it was saved with another number of environments.
        """
        return self._vector.load_state_dict(state)

    @property
    def env_spec(self) -> str | None:
        """JSON of gymnasium's ``EnvSpec`` of one environment; None where it has none that can be serialised."""
        try:
            return None if self._vector.spec is None else self._vector.spec.to_json()
        except (AttributeError, TypeError, ValueError):
            return None

    @property
    def env_name(self) -> str:
        """Name of one environment with its wrappers, for messages."""
        return self._vector.name if hasattr(self, "_vector") else type(self).__name__

    @property
    def compute_reward(self) -> Callable[..., Any] | None:
        """``compute_reward(achieved_goal, desired_goal, info)`` of one environment; None where they have no goals."""
        return self._vector.compute_reward()

    def close(self) -> None:
        """Close the environments; a second call does nothing."""
        self._vector.close()


_INTEGERS = frozenset(
    [
        *map(np.dtype, np.typecodes["AllInteger"] + "?"),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    ]
)
"""Dtypes of actions that are not real numbers."""


def with_usual_infos(episode_infos: Sequence[str]) -> tuple[str, ...]:
    """Return the infos that are logged: those given and the usual ones; none where none are given."""
    return tuple(dict.fromkeys((*USUAL_INFOS, *episode_infos))) if episode_infos else ()


def _asked_for(episode_infos: Sequence[str]) -> frozenset[str]:
    """Return the infos that a user has asked for, rather than left in the default or added to it."""
    names, usual = frozenset(episode_infos), frozenset(USUAL_INFOS)
    return names - usual if names >= usual else names


def one_copy(factory: Factory[VecEnv]) -> Factory[VecEnv]:
    """Return a factory of one copy of the same environments in this process, for evaluation."""
    hyper_parameters = factory.hyper_parameters
    changed = {name: value for name, value in _ONE_COPY.items() if name in hyper_parameters}
    return make_factory(factory.cls, (), hyper_parameters | changed)


_ONE_COPY = {"num_envs": 1, "mode": "sync"}


def is_native_factory(factory: Factory[VecEnv]) -> bool:
    """Whether a factory makes a native vector environment, rather than copies."""
    given = factory.hyper_parameters
    return "env" in given and is_native(
        given["env"], given.get("vectorization_mode"), given.get("backend", "gymnasium")
    )


def check_saved(factory: Factory[VecEnv], state: Any, action_space: gym.Space[Any] | None) -> None:
    """Refuse a saved state that the environments of a factory cannot be restored from, before they are made.

    Args:
        factory: of the environments; if its class overrides ``load_state_dict``, the state's contents are not checked.
        state: what ``state_dict()`` returned, from a file.
        action_space: of the environments; None if it is not known.

    Raises:
        ValueError: it is no such state, or one of another number of environments.
    """
    cls, given = factory.cls, factory.hyper_parameters
    if not isinstance(state, Mapping):
        raise ValueError(f"{cls.__name__}: the saved state of the environments is a {type(state).__name__}")
    if cls.load_state_dict is not VecEnv.load_state_dict or not given.keys() >= _SHAPING:
        return
    if is_native(given["env"], given["vectorization_mode"], given["backend"]):
        check_native_state(state, given["num_envs"], cls.__name__)
    else:
        check_histories(state, given["num_envs"], given["replay_on_resume"], action_space, cls.__name__)


_SHAPING = {"env", "num_envs", "vectorization_mode", "backend", "replay_on_resume"}
"""Hyper-parameters on which the format of states depends; a class of a user may have others."""
