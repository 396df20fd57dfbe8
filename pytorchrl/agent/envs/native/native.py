"""Native vector environments of gymnasium's interface."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from pytorchrl.agent.envs.checks import CHECKED_STEPS, InvalidEnvironmentError
from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord
from pytorchrl.agent.envs.native.autoreset import autoreset_of
from pytorchrl.agent.envs.native.episode_sums import EpisodeSums
from pytorchrl.agent.envs.plain_data import as_arrays, as_tensors, is_generator
from pytorchrl.agent.envs.spaces import EnvActions, with_trailing_axis
from pytorchrl.agent.envs.vector import Resumption, VecStep, Vector


class Native(Vector):
    """A native vector environment, of any of gymnasium's autoreset modes.

    Observations that are tensors stay on their device; rewards and flags become arrays.

    A vector environment with ``state_dict()`` and ``load_state_dict(state)``, of plain data and arrays, is restored; in
    others, new episodes begin.

    Args:
        envs: as it was made.
        num_envs: how many environments it must have.
        wrap: puts the user's wrappers around it.
        stacked_frames: number of frames that are stacked in an observation; 0 without a stack, or where not known.
        reports: keys of numbers in the infos of an episode's last step that are recorded.
        owner: name of the component, for errors.

    Raises:
        InvalidEnvironmentError: it breaks gymnasium's interface.
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        num_envs: int,
        wrap: Callable[[VectorEnv[Any, Any, Any]], VectorEnv[Any, Any, Any]],
        stacked_frames: int,
        reports: Sequence[str],
        owner: str,
    ) -> None:
        check_vector(envs, num_envs, owner)
        self._made, self._sums = envs, EpisodeSums(envs, reports)
        self._envs = wrap(envs)
        check_vector(self._envs, num_envs, owner)
        self._owner, self._num_envs = owner, num_envs
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        self.stacked_frames = stacked_frames if _is_stack(self.observation_space, stacked_frames) else 0
        self.takes_tensors = False
        self._device: torch.device | None = None
        """Device of observations that are tensors; None of arrays."""
        self.spec, self.name = self._envs.spec, str(self._envs)
        self.finished_episodes: list[EpisodeRecord] = []
        self._autoreset = autoreset_of(self._envs)
        self.skips_steps = self._autoreset.skips_steps
        self._env_actions = EnvActions(self.action_space)
        self._has_axis = not isinstance(self.observation_space, spaces.Box) or not self.observation_space.shape
        self._unchecked, self._copies = CHECKED_STEPS, True
        """Whether observations are copied: always at first, later only where they share memory or need conversion."""
        self._shares = False
        self._observation: Any = None
        self._seeds: np.random.Generator | None = None

    def reset(self, sequence: np.random.SeedSequence) -> Any:
        """Reset every environment; return their first observations (E, *obs), or a dict of such."""
        seed, later = (int(word) for word in sequence.generate_state(2))
        self._seeds = np.random.default_rng(later)
        return self._begin(seed >> 1)

    def reset_each(self, seeds: list[int]) -> Any:
        """Refuse seeds for each environment, which not every library takes.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            f"{self.name} steps many environments at once, which are seeded together; copies of a single environment "
            f"(no vectorization_mode, no backend) take a seed each, such as those of Scheme(test_seed=...)"
        )

    def step(self, actions: Any) -> VecStep:
        """Step every environment with actions (E, 1) or (E, *action), which are tensors if observations are.

        Raises:
            InvalidEnvironmentError: what the environment returned in one of its first steps does not fit its spaces.
        """
        # Copies, as an environment may change its actions, which are stored.
        if self._device is None:
            actions = self._env_actions(actions).copy()
        else:
            actions = self._env_actions.of_tensors(actions).to(self._device, copy=True)
        outcome = self._autoreset.step(actions)
        observation, following, reward, terminated, truncated, infos, made = outcome
        self.finished_episodes = self._sums.take_finished()
        if self._unchecked:
            self._check(observation, reward, terminated, truncated)
        if self._copies:
            is_same = following is observation
            observation = _converted(observation, self.observation_space)
            following = observation if is_same else _converted(following, self.observation_space)
        if self._has_axis:
            is_same = following is observation
            observation = with_trailing_axis(observation, self.observation_space)
            following = observation if is_same else with_trailing_axis(following, self.observation_space)
        self._observation = observation
        return VecStep(
            observation,
            following,
            reward[:, None],
            terminated[:, None],
            truncated[:, None],
            infos,
            None if made is None else made[:, None],
        )

    @property
    def skips_next(self) -> NDArray[np.bool_] | None:  # type: ignore[override]
        """(E,): which environments make no transition in the next step; None where all do."""
        return self._autoreset.skips_next

    def running_episodes(self) -> list[EpisodeRecord]:
        """Return the running episodes so far, as of the environments themselves, below all wrappers."""
        return self._sums.running()

    def state_dict(self) -> dict[str, Any]:
        """Return the generator of later seeds, and the state of environments that have ``state_dict()``.

        Raises:
            RuntimeError: the environments were never reset.
            TypeError: the environment's own state holds more than plain data and arrays.
        """
        if self._seeds is None:
            raise RuntimeError(f"{self._owner}: call reset() before state_dict(); there is nothing to save yet")
        state: dict[str, Any] = {"num_envs": self._num_envs, "seeds": self._seeds.bit_generator.state}
        if self._says_state:
            observation = self._observation
            state |= {
                "envs": as_tensors(self._made.state_dict()),  # type: ignore[attr-defined]
                "sums": as_tensors(self._sums.state_dict()),
                "observation": observation if self.takes_tensors else as_tensors(observation),
            }
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> Resumption:
        """Restore the environments if they can be; otherwise begin new episodes, with another seed.

        Raises:
            ValueError: it is no such state, or was saved with another number of environments.
        """
        check_native_state(state, self._num_envs, self._owner)
        self._seeds = np.random.default_rng()
        self._seeds.bit_generator.state = state["seeds"]
        observation = self._begin(int(self._seeds.integers(2**31)))
        if not self._says_state or "envs" not in state:
            return Resumption(observation, np.zeros((self._num_envs, 1), np.bool_))
        # The seed of that reset is not used.
        self._seeds.bit_generator.state = state["seeds"]
        self._made.load_state_dict(as_arrays(state["envs"]))  # type: ignore[attr-defined]
        sums = as_arrays(state["sums"])
        self._sums.load_state_dict(sums)
        self._autoreset.begin(sums["ended"])
        saved = state["observation"]
        self._observation = _moved(saved, observation) if self.takes_tensors else as_arrays(saved)
        return Resumption(self._observation, np.ones((self._num_envs, 1), np.bool_))

    def compute_reward(self) -> Callable[..., Any] | None:
        """Return ``compute_reward`` of the environment itself, where it has one."""
        compute_reward: Callable[..., Any] | None = getattr(self._made, "compute_reward", None)
        return compute_reward

    def close(self) -> None:
        """Close the environments; a second call does nothing."""
        self._envs.close()

    @property
    def _says_state(self) -> bool:
        return all(callable(getattr(self._made, name, None)) for name in ("state_dict", "load_state_dict"))

    def _begin(self, seed: int) -> Any:
        observation, _ = self._envs.reset(seed=seed)
        check_observation(observation, self.observation_space, self._num_envs, f"reset() of {self.name}")
        self._autoreset.begin()
        self.finished_episodes = []
        devices = [leaf.device for leaf in _leaves(observation) if isinstance(leaf, torch.Tensor)]
        self._device = devices[0] if devices else None
        self.takes_tensors = bool(devices)
        self._last = observation
        observation = _converted(observation, self.observation_space)
        if self._has_axis:
            observation = with_trailing_axis(observation, self.observation_space)
        self._observation = observation
        return observation

    def _check(self, observation: Any, *numbers: NDArray[Any]) -> None:
        """Check a step, and detect whether observations are overwritten or of another dtype."""
        check_observation(observation, self.observation_space, self._num_envs, f"step() of {self.name}")
        check_flags(*numbers, num_envs=self._num_envs, name=self.name)
        self._shares |= _shares(observation, self._last) or _needs_conversion(observation, self.observation_space)
        self._last, self._unchecked = observation, self._unchecked - 1
        if not self._unchecked:
            self._copies, self._last = self._shares, None


def _leaves(observation: Any) -> list[Any]:
    return list(observation.values()) if isinstance(observation, Mapping) else [observation]


def _is_stack(space: Any, depth: int) -> bool:
    return depth > 1 and isinstance(space, spaces.Box) and space.shape[:1] == (depth,)


def _shares(observation: Any, last: Any) -> bool:
    """Whether a batch may share memory with an earlier one."""
    for one, other in zip(_leaves(observation), _leaves(last), strict=True):
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr():
                return True
        elif np.may_share_memory(one, other):
            return True
    return False


def _needs_conversion(observation: Any, space: Any) -> bool:
    pairs = [(observation[name], space[name]) for name in observation] if isinstance(observation, Mapping) else None
    for leaf, part in pairs or [(observation, space)]:
        is_array = type(leaf) is np.ndarray and leaf.flags.carray and leaf.dtype == part.dtype
        if not is_array and not isinstance(leaf, torch.Tensor):
            return True
    return False


def _converted(observation: Any, space: Any) -> Any:
    """Copy a batch, with arrays in the dtype of the space."""
    if type(observation) is np.ndarray:
        # Storages take C-contiguous arrays directly, and copy others at each use.
        return np.array(observation, space.dtype, order="C")
    if isinstance(observation, Mapping):
        return {name: _converted(part, space[name]) for name, part in observation.items()}
    if isinstance(observation, torch.Tensor):
        return observation.clone()
    return np.array(observation, space.dtype, order="C")


def _moved(saved: Any, like: Any) -> Any:
    """Copy saved tensors to the device of others."""
    if isinstance(saved, Mapping):
        return {name: _moved(part, like[name]) for name, part in saved.items()}
    return saved.to(like.device, copy=True)


def check_native_state(state: Mapping[str, Any], num_envs: int, owner: str) -> None:
    """Refuse a state that no native vector environment can be restored from, as far as all of them have it.

    Raises:
        ValueError: it is no such state, or one of another number of environments.
    """
    needed = ["num_envs", "seeds", *(("sums", "observation") if "envs" in state else ())]
    missing = [name for name in needed if name not in state]
    if missing or not is_generator(state["seeds"]):
        what = f"lacks {', '.join(map(repr, missing))}" if missing else "has no state of a generator of seeds"
        raise ValueError(f"{owner}: the saved state of the environments {what}")
    if state["num_envs"] != num_envs:
        raise ValueError(
            f"{owner}: made for {num_envs} environments, saved with {state['num_envs']}; make it with "
            f"num_envs={state['num_envs']}"
        )


def check_vector(envs: Any, num_envs: int, owner: str) -> None:
    """Refuse an object that is not a vector environment, or one of another size.

    Raises:
        InvalidEnvironmentError: it is not one, has no spaces, or has another number of environments.
    """
    if not isinstance(envs, VectorEnv):
        raise InvalidEnvironmentError(
            f"{owner}: {envs!r} is no gymnasium.vector.VectorEnv; derive it from that class, or leave out num_envs "
            f"from the parameters of a callable that makes one environment"
        )
    for name in ("single_observation_space", "single_action_space"):
        if not isinstance(getattr(envs, name, None), spaces.Space):
            raise InvalidEnvironmentError(
                f"{owner}: {envs} has no {name}; set it to one of gymnasium.spaces, that of one of its environments"
            )
    if envs.num_envs != num_envs:
        raise InvalidEnvironmentError(
            f"{owner}: {envs} has {envs.num_envs} environments, and num_envs is {num_envs}; let its constructor "
            f"take num_envs"
        )


def check_observation(observation: Any, space: Any, num_envs: int, origin: str) -> None:
    """Check a batch of observations (E, *obs), or a dict of such.

    Raises:
        InvalidEnvironmentError: it does not fit the space.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or set(observation) != set(space.spaces):
            got = sorted(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise InvalidEnvironmentError(
                f"VecEnv: {origin} returned an observation of {got}; its space has {sorted(space.spaces)}"
            )
        for name, part in space.spaces.items():
            check_observation(observation[name], part, num_envs, f"{origin}, {name!r},")
        return
    expected, shape = (num_envs, *(space.shape or ())), tuple(getattr(observation, "shape", ()))
    if shape != expected:
        raise InvalidEnvironmentError(
            f"VecEnv: {origin} returned an observation of shape {shape}; for {num_envs} environments with "
            f"observations of {space}, it must be {expected}"
        )
    # Tensors are not converted.
    if isinstance(observation, np.ndarray) and not np.can_cast(observation.dtype, space.dtype, "same_kind"):
        raise InvalidEnvironmentError(
            f"VecEnv: {origin} returned an observation of dtype {observation.dtype}, which its space {space} would cut "
            f"to {space.dtype}; declare the space of {observation.dtype}, or return {space.dtype}"
        )


def check_flags(
    reward: NDArray[Any], terminated: NDArray[Any], truncated: NDArray[Any], *, num_envs: int, name: str
) -> None:
    """Check rewards and flags, (E,) each.

    Raises:
        InvalidEnvironmentError: they are of another shape or kind.
    """
    for what, values, kinds in (
        ("rewards", reward, "fiub"),
        ("terminated", terminated, "b"),
        ("truncated", truncated, "b"),
    ):
        if values.shape != (num_envs,) or values.dtype.kind not in kinds:
            raise InvalidEnvironmentError(
                f"VecEnv: step() of {name} returned {what} of {values.dtype}{values.shape}; they must be "
                f"{'numbers' if what == 'rewards' else 'booleans'} of shape {(num_envs,)}"
            )
