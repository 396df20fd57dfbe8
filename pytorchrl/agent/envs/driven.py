"""Environments that are stepped elsewhere: by a robot, a game engine or a simulator that owns the loop."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord, is_number
from pytorchrl.agent.envs.copies.infos import Infos
from pytorchrl.agent.envs.plain_data import as_arrays, as_tensors
from pytorchrl.agent.envs.spaces import check_action_space, check_observation_space, space_from_data
from pytorchrl.agent.envs.vec_env import VecEnv, with_usual_infos
from pytorchrl.agent.envs.vector import Resumption, VecStep, Vector
from storages.component.declared import parameter


class DrivenEnvs(VecEnv):
    """Environments whose steps are told by :meth:`tell`, and which only then can be stepped; see :class:`Agent`.

    Args:
        observation_space: of one environment, as :func:`space_as_data` returns it.
        action_space: likewise.
        num_envs: number of environments.
        episode_infos: as of :class:`VecEnv`.

    Raises:
        UnsupportedSpaceError: storages and actors cannot take such observations or actions.
    """

    observation_space: Any = parameter()
    action_space: Any = parameter()
    env: ClassVar[None] = None  # type: ignore[misc, assignment]
    mode: ClassVar[Literal["sync"]] = "sync"  # type: ignore[misc]
    vectorization_mode: ClassVar[None] = None  # type: ignore[misc]
    backend: ClassVar[Literal["gymnasium"]] = "gymnasium"  # type: ignore[misc]
    wrappers: ClassVar[tuple[()]] = ()  # type: ignore[misc]
    env_kwargs: ClassVar[None] = None  # type: ignore[misc]
    stacked_frames: ClassVar[int] = 0  # type: ignore[misc]
    replay_on_resume: ClassVar[bool] = False  # type: ignore[misc]

    def build(self) -> None:
        """Make the environments of the spaces; hyper-parameters are set already."""
        name = type(self).__name__
        self.observation_space = space_from_data(self.observation_space)
        self.action_space = space_from_data(self.action_space)
        check_observation_space(self.observation_space, name)
        check_action_space(self.action_space, name)
        infos = with_usual_infos(self.episode_infos)
        self._told = _Told(self.observation_space, self.action_space, self.num_envs, infos)
        self._vector = self._told
        self.is_native = self.is_wrapped = self.skips_steps = False
        self._action_shape = self.num_envs, *(self.action_space.shape or (1,))
        self._takes_reals = self.action_space.dtype is not None and self.action_space.dtype.kind == "f"
        # Each step may have other infos.
        self._expected_infos = frozenset()

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Accept all arguments: there is no environment among them."""

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Accept all hyper-parameters, which annotations have checked."""

    @property
    def has_step(self) -> bool:
        """Whether a step was told that was not made yet."""
        return self._told.step_told is not None

    def begin(self, observation: Any) -> None:
        """Take the observations (E, *obs), or a dict of such, in which the next actions are chosen."""
        self._told.observation = observation

    def tell(
        self,
        observation: Any,
        reward: NDArray[np.floating],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        infos: Sequence[Mapping[str, Any]],
    ) -> None:
        """Take the result of the last actions, for the next :meth:`step`.

        Args:
            observation: (E, *obs), or a dict of such, the final one where an episode ended.
            reward: (E,).
            terminated: (E,): whether the environment reached a terminal state.
            truncated: (E,): whether a limit cut the episode.
            infos: of each environment.
        """
        ended = terminated | truncated
        last = [(env, info) for env, info in enumerate(infos) if ended[env]]
        self._told.step_told = VecStep(
            observation,
            observation,
            reward[:, None],
            terminated[:, None],
            truncated[:, None],
            Infos(infos, last),
        )


class _Told(Vector):
    """Makes the steps that it was told, and records the episodes."""

    takes_tensors = False
    skips_steps = False
    skips_next = None
    spec: EnvSpec | None = None
    stacked_frames = 0
    name = "environments that are stepped outside"

    def __init__(self, observation_space: Any, action_space: Any, num_envs: int, reports: tuple[str, ...]) -> None:
        self.observation_space, self.action_space, self._num_envs = observation_space, action_space, num_envs
        self._reports = reports
        self.step_told: VecStep | None = None
        self.observation: Any = None
        self.finished_episodes: list[EpisodeRecord] = []
        self._returns, self._lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)

    def reset(self, sequence: np.random.SeedSequence) -> Any:
        """Return observations of zeros, which the first real ones replace."""
        self._returns[:], self._lengths[:] = 0, 0
        self.observation = _zeros(self.observation_space, self._num_envs)
        return self.observation

    def reset_each(self, seeds: list[int]) -> Any:
        """As :meth:`reset`; no environment is seeded."""
        return self.reset(np.random.SeedSequence(seeds))

    def step(self, actions: Any) -> VecStep:
        """Return the step that was told."""
        step, self.step_told = self.step_told, None
        if step is None:
            raise RuntimeError(
                "DrivenEnvs: these environments are stepped outside of the run, and no step was told; continue the run "
                "in the program that steps them, by prl.Agent(..., resume=True)"
            )
        ended = (step.terminated | step.truncated)[:, 0]
        self._returns += step.reward[:, 0]
        self._lengths += 1
        self.finished_episodes = [self._record(int(env), step.infos) for env in np.flatnonzero(ended)]
        self._returns[ended], self._lengths[ended] = 0, 0
        self.observation = step.observation
        return step

    def _record(self, env: int, infos: Mapping[str, Any]) -> EpisodeRecord:
        last = infos["final_info"]
        reported = {
            name: float(last[name][env])
            for name in self._reports
            if name in last and last[f"_{name}"][env] and is_number(last[name][env])
        }
        return EpisodeRecord(env, float(self._returns[env]), int(self._lengths[env]), reported)

    def running_episodes(self) -> list[EpisodeRecord]:
        """Return the running episodes so far."""
        running = zip(self._returns, self._lengths, strict=True)
        return [EpisodeRecord(env, float(paid), int(length)) for env, (paid, length) in enumerate(running)]

    def state_dict(self) -> dict[str, Any]:
        """Return the present observations, and the running episodes' returns and lengths."""
        present = {"observation": self.observation, "returns": self._returns, "lengths": self._lengths}
        state: dict[str, Any] = as_tensors(present)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> Resumption:
        """Restore the state returned by `state_dict`."""
        restored = as_arrays(dict(state))
        if len(restored["returns"]) != self._num_envs:
            raise ValueError(
                f"DrivenEnvs: the state is of {len(restored['returns'])} environments, there are {self._num_envs}"
            )
        self._returns, self._lengths = restored["returns"], restored["lengths"]
        self.observation = restored["observation"]
        return Resumption(self.observation, np.ones((self._num_envs, 1), np.bool_))

    def compute_reward(self) -> Callable[..., Any] | None:
        """Return None: rewards are told."""
        return None

    def close(self) -> None:
        """Do nothing: the environments belong to somebody else."""


def _zeros(space: Any, num_envs: int) -> Any:
    if hasattr(space, "spaces"):
        return {name: _zeros(part, num_envs) for name, part in space.spaces.items()}
    return np.zeros((num_envs, *(space.shape or (1,))), space.dtype)
