"""Collectors: step the environments with an algorithm and store the transitions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.plain_data import as_tensors
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.explorers import Exploration
from pytorchrl.scheme.stored_infos import RewardComponents, stored_infos
from pytorchrl.scheme.stored_rewards import RewardNormalization, ShapedReturns
from storages import SampleError
from storages.storage import Storage
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, REWC, RHS, RHS2, SKIPPED, TRUNC2

Seed: TypeAlias = int | np.random.SeedSequence


@dataclass(frozen=True)
class Episode:
    """A finished episode of the environment itself, below all wrappers."""

    episode_return: float
    """Sum of the environment's own rewards."""
    length: int
    """Number of environment steps."""
    reported: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Numbers that the environment reported at the end of the episode, such as success."""

    def state_dict(self) -> list[Any]:
        """Return the arguments of :class:`Episode`, as plain data."""
        return [self.episode_return, self.length, dict(self.reported)]


class Collecting(Protocol):
    """Interface of collectors: they step the environments and store the transitions."""

    @property
    def steps(self) -> int:
        """Environment transitions so far."""

    @property
    def episodes(self) -> int:
        """Episodes that ended so far, as stored."""

    def step(self) -> list[Episode]:
        """Store one or more steps of all environments; returns the environments' own episodes that ended."""

    def take_shaped_returns(self) -> list[float]:
        """Return the episode returns in stored rewards since the last call; [] if rewards are unchanged."""

    def set_target(self, target_steps: int) -> None:
        """Set the length of the explorer's schedules, in environment transitions of the run."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next steps, as tensors and plain data."""

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost."""


class _Choice(NamedTuple):
    """The actions of a step, and the fields stored with them."""

    action: NDArray[Any]
    env_action: Any
    """An array; a tensor for environments that take tensors."""
    fields: Mapping[str, Any]
    rhs: Any
    """Recurrent state after the step."""


class Collector:
    """Steps the environments with an algorithm and inserts every step into a storage.

    Args:
        envs: the environments.
        algorithm: chooses the actions.
        storage: gets the transitions.
        rewards: normalises the stored rewards; None stores the environments' rewards.
    """

    def __init__(
        self, envs: VecEnv, algorithm: Algorithm, storage: Storage, rewards: RewardNormalization | None = None
    ) -> None:
        self.envs = envs
        self.algorithm = algorithm
        self.storage = storage
        self.steps = 0
        """Environment transitions so far."""
        self.episodes = 0
        """Episodes that ended so far, as stored: wrappers may end them earlier than the environment itself does."""
        self.steps_elsewhere = 0
        """Environment transitions of the run's other collectors, which the explorer's schedules count as well."""
        self._info_keys: Sequence[str] = getattr(storage, "info_keys", ())
        names = algorithm.reward_components
        self._components = RewardComponents(names, algorithm.component_weights) if names else None
        self._rewards = rewards
        self.rounds_rewards = True
        """Whether rewards that are not normalised here are stored as float32, else as the environments' float64."""
        self._shaped = ShapedReturns(envs.num_envs) if envs.is_wrapped or rewards is not None else None
        """None where the storage gets the environments' own rewards."""
        self._exploration = Exploration(algorithm.codec, envs.num_envs, algorithm.device, seed=0)
        self._choice: _Choice | None = None
        """Of the current step, so that a run that is saved after a failed step resumes with the same actions."""
        self._is_stepping = False
        self._envs_are_ahead = False
        """Whether the environments have made a step that is not stored yet."""
        self._observation: Any = None
        self._rhs: Any = None
        self._done: NDArray[np.bool_] = np.ones((envs.num_envs, 1), np.bool_)
        self._none_skipped: NDArray[np.bool_] = np.zeros((envs.num_envs, 1), np.bool_)
        self._counts_observations = algorithm.actor.normalization is not None
        """Whether observations are added to the statistics that normalise them."""
        self._stores_in_part = envs.skips_steps and not storage.on_policy
        """Whether skipped steps are left out of the storage; rollouts store steps of all environments."""

    def reset(self, seed: Seed) -> None:
        """Begin new episodes in all environments."""
        self._observation = self.envs.reset(seed)
        self._rhs = self.algorithm.actor.initial_memory(self.envs.num_envs)
        self._done.fill(True)
        self._begin_episodes(self._done)

    def seed(self, seed: Seed) -> None:
        """Seed the random generators of exploration."""
        self._exploration.seed(seed)

    def set_target(self, target_steps: int) -> None:
        """Set the length of the explorer's schedules, in environment transitions of the run."""
        self._exploration.target_steps = target_steps

    def explore_among(self, num_envs: int, position: int) -> None:
        """Set this collector's place among the environments of all collectors, for the explorer.

        Args:
            num_envs: number of environments of all collectors, including this one.
            position: index of this collector's first environment among them.
        """
        self._exploration.among, self._exploration.position = num_envs, position

    # For environments that are stepped elsewhere

    @property
    def observation(self) -> Any:
        """(E, *obs) or a dict: in which the next actions are chosen."""
        return self._observation

    @property
    def begins(self) -> NDArray[np.bool_]:
        """(E, 1): where the next step is the first of an episode."""
        return self._done

    @property
    def has_chosen(self) -> bool:
        """Whether the actions of the next step are chosen."""
        return self._choice is not None

    def choose(self, observation: Any, cut: NDArray[np.bool_]) -> Any:
        """Choose and return the actions of the next step before :meth:`step`.

        Args:
            observation: (E, *obs) or a dict, which replaces the present one.
            cut: (E, 1): where a new episode begins although the last one did not end.
        """
        self._observation = observation
        if cut.any():
            self._done = self._done | cut
            self._begin_episodes(cut)
            self.episodes += int(np.count_nonzero(cut))
        self._choice = self._choose()
        return self._choice.env_action

    def choose_again(self) -> Any:
        """Return the actions that were chosen for the next step."""
        assert self._choice is not None
        return self._choice.env_action

    def step(self) -> list[Episode]:
        """Step every environment once; returns the environments' own episodes that ended.

        Raises:
            RuntimeError: the previous step failed, so that the state of the environments is unknown.
        """
        if self._is_stepping:
            raise RuntimeError(
                "the last step of the environments failed, and their state is unknown; create new ones, with "
                "Learner.resume if the run was saved"
            )
        choice = self._choice = self._choice or self._choose()
        self._is_stepping = True
        step = self.envs.step(choice.env_action)
        self._envs_are_ahead = True
        reward: NDArray[np.floating] = step.reward
        ended = step.terminated | step.truncated
        if self._rewards is not None:
            # Callbacks may change it.
            self._rewards.gamma = self.algorithm.gamma
            reward = self._rewards(reward, ended, step.made)
        elif self.rounds_rewards:
            reward = reward.astype(np.float32)
        sample = {
            OBS: self._observation,
            DONE: self._done,
            ACT: choice.action,
            REW: reward,
            OBS2: step.next_observation,
            DONE2: step.terminated,
            TRUNC2: step.truncated,
            **stored_infos(step, self._info_keys),
            **choice.fields,
        }
        if self._components is not None:
            sample[REWC] = self._components(step)
        transitions, done = self.envs.num_envs, ended
        skipped = self._none_skipped if step.made is None else ~step.made
        if step.made is not None:
            # A skipped step is stored as an episode of one step, so that no transition extends across it.
            done = ended | skipped
            transitions -= int(np.count_nonzero(skipped))
            sample[TRUNC2] = step.truncated | skipped
        try:
            if self._stores_in_part:
                self.storage.insert_masked(sample, ~skipped[:, 0])
            elif self.envs.skips_steps:
                self.storage.insert_transition(sample | {SKIPPED: skipped})
            else:
                self.storage.insert_transition(sample)
        except SampleError as error:
            error.add_note(f"The sample was collected in {self.envs.env_name}, by reset() or step().")
            raise
        if self._shaped is not None:
            self._shaped.add(reward, ended)
        self._observation, self._rhs, self._done = step.observation, choice.rhs, done
        self.steps += transitions
        self.episodes += int(np.count_nonzero(ended))
        self._choice, self._is_stepping, self._envs_are_ahead = None, False, False
        finished = self.envs.finished_episodes
        return [Episode(one.episode_return, one.length, one.reported) for one in finished] if finished else []

    def take_shaped_returns(self) -> list[float]:
        """Return the episode returns in stored rewards since the last call; [] if rewards are unchanged."""
        return [] if self._shaped is None else self._shaped.take()

    def _choose(self) -> _Choice:
        obs, rhs, done = self._observation, self._rhs, self._done
        algorithm, exploration = self.algorithm, self._exploration
        device = algorithm.device
        if self._counts_observations:
            skips = self.envs.skips_next
            count_observations(obs, None if skips is None else ~skips, algorithm, self.storage)
        begins = to_device(done.astype(np.float32), device)
        exploration.steps, exploration.starts = self.steps + self.steps_elsewhere, begins
        acting = algorithm.acting_step(to_device(obs, device), rhs, begins, exploration)
        action = _array(acting.action)
        env_action: Any = acting.env_action
        if not self.envs.takes_tensors:
            env_action = action if env_action is acting.action else _array(env_action)
        fields = {name: _array(field) for name, field in acting.fields.items()}
        if rhs is not None:
            fields |= {RHS: _array(rhs), RHS2: _array(acting.rhs)}
        return _Choice(action, env_action, fields, acting.rhs)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that determines the next steps, running episodes included, as tensors and plain data.

        After a failed step it is the state before that step, and its actions. If the environments had already made the
        step, or cannot return their state, new episodes begin when it is loaded.
        """
        return {
            "steps": self.steps,
            "episodes": self.episodes,
            "exploration": self._exploration.state_dict(),
            "rewards": None if self._rewards is None else self._rewards.state_dict(),
            "shaped_returns": None if self._shaped is None else self._shaped.state_dict(),
            "envs": self._state_of_envs(),
            "rhs": self._rhs,
            "done": as_tensors(self._done),
            "choice": self._state_of_choice(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> list[int]:
        """Restore the state returned by `state_dict`; returns the environments whose running episodes are lost.

        In these a new episode begins; the storage treats the lost one as truncated.
        """
        self.steps, self.episodes = state["steps"], state["episodes"]
        self._exploration.load_state_dict(state["exploration"])
        if self._rewards is not None:
            self._rewards.load_state_dict(state["rewards"])
        if self._shaped is not None:
            self._shaped.load_state_dict(state["shaped_returns"])
        if state["envs"] is None:
            self._observation = self.envs.reset(int(self._exploration.random.integers(2**32)))
            came_back = np.zeros((self.envs.num_envs, 1), np.bool_)
        else:
            self._observation, came_back = self.envs.load_state_dict(state["envs"])
        self._rhs = self._on_device(state["rhs"])
        done = state["done"].numpy()
        self._done = done | ~came_back
        self._begin_episodes(~came_back)
        self._load_choice(state["choice"] if came_back.all() else None)
        cut = [int(env) for env in np.flatnonzero(~came_back & ~done)]
        self.episodes += len(cut)
        return cut

    def _begin_episodes(self, where: NDArray[np.bool_]) -> None:
        for sums in (self._rewards, self._shaped):
            if sums is not None:
                sums.begin_episodes(where)

    def _state_of_envs(self) -> dict[str, Any] | None:
        # The process of a failed environment has ended, and its state is lost.
        if self._envs_are_ahead or (self._is_stepping and self.envs.mode == "async"):
            return None
        return self.envs.state_dict()

    def _state_of_choice(self) -> dict[str, Any] | None:
        if self._choice is None or self._envs_are_ahead:
            return None
        action, env_action, fields, rhs = self._choice
        if not isinstance(env_action, torch.Tensor):
            env_action = as_tensors(env_action)
        kept = {name: one if isinstance(one, torch.Tensor) else as_tensors(one) for name, one in fields.items()}
        return {"action": as_tensors(action), "env_action": env_action, "fields": kept, "rhs": rhs}

    def _load_choice(self, choice: Mapping[str, Any] | None) -> None:
        if choice is None:
            self._choice = None
            return
        fields = {name: _array(field) for name, field in choice["fields"].items()}
        action, env_action = choice["action"].numpy(), self._on_device(choice["env_action"])
        if not self.envs.takes_tensors:
            env_action = choice["env_action"].numpy()
        self._choice = _Choice(action, env_action, fields, self._on_device(choice["rhs"]))

    def _on_device(self, tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor.to(self.algorithm.device)


def count_observations(obs: Any, made: NDArray[np.bool_] | None, algorithm: Algorithm, storage: Storage) -> None:
    """Update the normalisation statistics of observations, if the actor has any.

    Args:
        obs: observations of all environments.
        made: (E,) or (E, 1), which environments make a transition; None where all do.
        algorithm: its actor has the statistics.
        storage: gets the transitions.
    """
    normalization = algorithm.actor.normalization
    if normalization is None:
        return
    if made is not None:
        obs = _rows(obs, np.flatnonzero(made))
    if made is None or made.any():
        normalization.add(to_device(obs, algorithm.device))
    if not storage.on_policy:
        # On-policy updates need the statistics that the rollout was collected with; replay can use the newest at once.
        normalization.use_newest()


def to_device(observation: Any, device: torch.device) -> Any:
    """Return observations as tensors on a device, with their dtypes."""
    if isinstance(observation, dict):
        return {name: to_device(part, device) for name, part in observation.items()}
    tensor = torch.from_numpy(observation) if isinstance(observation, np.ndarray) else observation
    # Even a `to` that does nothing, or reading `device.type`, costs time in every step.
    return tensor if tensor.device == device else tensor.to(device)


def _array(field: torch.Tensor) -> Any:
    """Return a field as an array, which storages insert faster than tensors."""
    # NumPy has no bfloat16; the storage accepts the tensor or raises.
    if field.dtype is torch.bfloat16:
        return field
    return field.numpy() if field.is_cpu else field.cpu().numpy()


def _rows(observation: Any, rows: NDArray[np.int64]) -> Any:
    if isinstance(observation, dict):
        return {name: _rows(part, rows) for name, part in observation.items()}
    return observation[rows]
