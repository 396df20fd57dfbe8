"""A trained policy for inference, without environments, storages or logs."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.device import find_device
from pytorchrl.agent.envs.spaces import EnvActions, space_from_data, with_trailing_axis
from pytorchrl.agent.envs.vec_env import VecEnv, one_copy
from pytorchrl.agent.envs.wrappers.flat_observation import flattened
from pytorchrl.agent.explorers import Exploration
from pytorchrl.agent.global_generators import seeded
from pytorchrl.agent.other_names import LOADING_NAMES, POLICY_METHODS, POLICY_NAMES
from pytorchrl.agent.other_names.calls import answering_calls
from pytorchrl.experiments.policies.action_probabilities import log_probabilities
from pytorchrl.experiments.policies.policy_export import export_policy, nonfinite_weights, origin_of
from pytorchrl.experiments.policies.published_policies import find_policy
from pytorchrl.experiments.policies.wrapped_actions import action_wrappers_of, warning_of
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.composition import (
    acting_algorithm_of,
    action_names_in,
    as_checkpoint_error,
    envs_of,
    made_of,
    refuse_classes_of_a_script,
    without_classes_of_callbacks,
)
from pytorchrl.experiments.runs.run_folder import RunFolder, file_of
from pytorchrl.experiments.runs.user_modules import missing_modules_named
from pytorchrl.scheme.collector import to_device
from pytorchrl.scheme.compatibility import CompositionError, check_test_spaces
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS, Evaluation, evaluate_from_seeds
from storages.component.annotations import conform_named
from storages.component.factory import Factory
from storages.component.hyper_parameters import Count
from storages.component.other_names import Answering, answer_missing, naming_arguments

_OF_THE_FILE = ("format", "steps")
"""Numbers of each file, beside those that were saved with a policy."""
_OF_SCRIPTS = ("own_classes", "imports")
"""Keys of a run's configuration about user-defined parts."""
_WAY_OUT = "import the module that defines it first, or pass algo_factory and actor_factory to load_policy"


def _answer_call(_: type[Any], wrong: str, __: tuple[Any, ...], ___: Mapping[str, Any]) -> str:
    """Return the message about arguments that do not fit."""
    return f"{wrong}; write action = policy(observation), or policy.evaluate(env, episodes=10)"


class TrainedPolicy(Answering):
    """Acts as in evaluations, with the normalisation of observations and the recurrent state.

    Args:
        algorithm: has the trained actor; its random generators are not used.
        allow_nonfinite: act on observations with NaN or infinity instead of refusing them, as the parameter of storages
            stores them.
        action_wrappers: wrappers with which it was trained that change actions, such as ``RescaleAction``, as code.
        origin: which run it is from: its environment, seed and steps, and the numbers that were saved with the policy.
    """

    other_names, other_methods = POLICY_NAMES, POLICY_METHODS

    if not TYPE_CHECKING:  # for which each name would exist
        __getattr__ = answer_missing

    def __init__(
        self,
        algorithm: Algorithm,
        *,
        allow_nonfinite: bool = False,
        action_names: Sequence[str] = (),
        action_wrappers: tuple[str, ...] = (),
        origin: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(algorithm, str | os.PathLike):
            raise TypeError(f"TrainedPolicy: a path is read by prl.load_policy({os.fspath(algorithm)!r})")
        self.algorithm = algorithm
        self.allow_nonfinite = allow_nonfinite
        self.action_names = tuple(action_names)
        """Names of discrete actions in the data that were learnt from, in the order of their numbers."""
        self.observation_space = algorithm.actor.observation_space
        """Of one environment, with nested spaces flattened to one dict."""
        self.action_space = algorithm.action_space
        """Of one environment, with the wrappers of the training: see :attr:`action_wrappers`."""
        self.action_wrappers = action_wrappers
        """Wrappers of the training that change actions: the environment below takes others than the policy's."""
        self.origin = dict(origin or {})
        """Environment, seed and steps of the run that it is from, and the numbers that were saved with the policy."""
        self._env_actions = EnvActions(self.action_space)
        self._described: tuple[Mapping[str, Any], Path] | None = None
        """Configuration of the run, and the file or folder that it is from; None where the policy was not loaded."""
        self.reset()

    def __repr__(self) -> str:
        wrapped = f", actions of {' and '.join(self.action_wrappers)}" if self.action_wrappers else ""
        return (
            f"<TrainedPolicy of {type(self.algorithm).__name__}, from {self.observation_space} to "
            f"{self.action_space}{wrapped}>"
        )

    def reset(self) -> None:
        """Begin new episodes: reset the recurrent state, options and histories, which other policies do not have."""
        self._rhs: Any = None
        self._before: tuple[Any, Any, torch.Tensor] | None = None
        """The last observation, the recurrent state before it, and where episodes began with it."""
        self._has_begun = False
        self._exploration: Exploration | None = None
        self._seed: int | None = None

    @answering_calls(_answer_call)
    def __call__(
        self,
        observation: Any,
        *,
        starts: Any = None,
        rewards: Any = None,
        deterministic: bool = True,
        seed: int | None = None,
    ) -> Any:
        """Return the action for an observation of one environment, or actions (E, ...) for those of E environments.

        Args:
            observation: as returned by gymnasium's environments.
            starts: (E,) booleans, whether an episode begins in each environment, which resets its recurrent state; None
                if episodes begin only after `reset`.
            rewards: (E,), or a number for one environment, the rewards of the last actions; only return-conditioned
                policies, such as a decision transformer's, use them.
            deterministic: act deterministically, as evaluations do; False explores as at the end of training.
            seed: of exploration, from the last `reset` on, which begins it anew; None draws one from the operating
                system, so that episodes, clients and restarts of a program explore differently.

        Returns:
            The argument of `env.step` of the environment with the wrappers of the training.

        Raises:
            ValueError: the observation has another shape or other parts than the policy's space, holds NaN or infinity,
                or a discrete value out of range (the bounds of a Box are not checked, as environments may leave them);
                it is of another number of environments than before, on which actions depend; a policy that uses
                rewards gets none; or ``seed`` changes without a `reset`.
        """
        batch, is_single = self.as_batch(observation)
        envs = len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)
        if self._exploration is None or self._exploration.deterministic != deterministic:
            codec, device, self._seed = self.algorithm.codec, self.algorithm.device, seed
            sequence = np.random.SeedSequence(seed)
            self._exploration = Exploration(codec, envs, device, sequence, deterministic, apart_from_training=True)
            # Schedules of exploration are at their end.
            self._exploration.steps = self._exploration.target_steps = self.algorithm.target_steps
        elif seed is not None and seed != self._seed and not deterministic:
            raise ValueError(f"TrainedPolicy: seed={seed} begins exploration anew; call reset() before it")
        if self._exploration.num_envs != envs:
            if self._rhs is not None or self._exploration.state:
                raise ValueError(
                    f"TrainedPolicy: got observations of {envs} environments, the previous ones, on which actions "
                    f"depend, were of {self._exploration.num_envs}; call reset() when episodes begin"
                )
            self._exploration.num_envs = self._exploration.among = envs
        begins = np.full(envs, not self._has_begun) if starts is None else np.asarray(starts, bool).reshape(envs)
        done = torch.from_numpy(begins.astype(np.float32)[:, None]).to(self.algorithm.device)
        self._exploration.starts = done
        self._exploration.rewards = self._rewards(rewards, begins)
        rhs = self.algorithm.actor.initial_memory(envs) if self._rhs is None else self._rhs
        self._before = (batch, rhs, done)
        acting = self.algorithm.acting_step(batch, rhs, done, self._exploration)
        self._rhs, self._has_begun = acting.rhs, True
        actions = self._env_actions(acting.env_action.cpu().numpy())
        return actions[0] if is_single else actions

    def log_probability(self, observation: Any, action: Any) -> Any:
        """Return the log probability with which the policy, exploring, chooses an action: its density in a Box.

        It is that of ``policy(observation, deterministic=False)``, for logs of the policy: LOGP ("LogProbability") of
        a data set. A policy with a memory gives it for the observation that it acted on last. An action that was
        clipped to the bounds has the density at the bound.

        Args:
            observation: of one environment, or of E.
            action: that of one environment, or (E, ...).

        Returns:
            A float, or (E,) float64.

        Raises:
            NotImplementedError: the exploration has no known probabilities, such as Gaussian noise and options.
            ValueError: an observation is refused as by a call, an action is not in the policy's space, or the memory is
                of another observation.
        """
        batch, is_single = self.as_batch(observation)
        envs = len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)
        space: Any = self.action_space
        chosen = np.asarray(action, space.dtype)
        chosen = chosen[None] if is_single else chosen
        if chosen.shape != (envs, *space.shape) or not all(one in space for one in chosen):
            raise ValueError(
                f"TrainedPolicy: action must be {'one' if is_single else f'{envs} actions'} of {space}, got {action!r}"
            )
        device = self.algorithm.device
        rhs, done = self.algorithm.actor.initial_memory(envs), torch.ones((envs, 1), device=device)
        if rhs is not None and self._before is not None:
            last, rhs, done = self._before
            if len(done) != envs:
                raise ValueError(
                    f"TrainedPolicy: got observations of {envs} environments, the memory is of {len(done)}; ask "
                    f"for the probabilities of the observations that the policy acted on last"
                )
            if not _are_equal(batch, last):
                raise ValueError(
                    "TrainedPolicy: the memory is that of the observation which the policy acted on last, and this is "
                    "another one; ask after acting, policy(observation), and before the next one"
                )
        exploration = Exploration(self.algorithm.codec, envs, device, 0, apart_from_training=True)
        exploration.steps = exploration.target_steps = self.algorithm.target_steps
        found = log_probabilities(self.algorithm, batch, rhs, done, chosen, exploration)
        return float(found[0]) if is_single else found

    @answering_calls(_answer_call)
    def evaluate(
        self,
        env: str | Callable[..., Any] | Factory[VecEnv] | None = None,
        episodes: int = 20,
        *,
        deterministic: bool = True,
        seed: int = 0,
        max_episode_steps: int = MAX_EPISODE_STEPS,
    ) -> Evaluation:
        """Run episodes in new environments, and return their results; those of the policy's own calls go on.

        Args:
            env: an environment's id, a callable that makes one, or a factory of environments, with the wrappers of
                training; None takes one copy of the run's test environment.
            episodes: how many, from 1.
            deterministic: act deterministically, as evaluations do; False explores as at the end of training.
            seed: of the first episode, ``env.reset(seed=seed)``, and of exploration; each next episode has the next
                number.
            max_episode_steps: the longest episode; a longer one is truncated there, with a warning.

        Raises:
            CompositionError: the environments have other spaces than the policy, or the run's cannot be made from its
                configuration alone.
            ValueError: ``episodes`` is not an int of at least 1, or ``env`` is an environment that was made already.
        """
        number = conform_named(episodes, Count, "TrainedPolicy.evaluate: episodes")
        longest = conform_named(max_episode_steps, Count, "TrainedPolicy.evaluate: max_episode_steps")
        made = self._envs_of_run() if env is None else env
        factory = made if isinstance(made, Factory) else VecEnv.create_factory(made)
        progress = (self.algorithm.steps, self.algorithm.target_steps)
        with factory() as envs:
            check_test_spaces(
                self.algorithm.actor, envs, owner="TrainedPolicy.evaluate", given="the environments to evaluate it in"
            )
            explore_at = None if deterministic else progress
            return evaluate_from_seeds(self.algorithm, envs, number, seed, longest, explore_at=explore_at)

    def _envs_of_run(self) -> Factory[VecEnv]:
        if self._described is None:
            raise CompositionError(
                "TrainedPolicy.evaluate: the policy was made of an algorithm, whose environments it does not know; "
                'name one, policy.evaluate("CartPole-v1")'
            )
        config, path = self._described
        with missing_modules_named(config):
            return one_copy(envs_of(config, path))

    def export(self, path: str | os.PathLike[str]) -> Path:
        """Export the policy network, from observations to actions, for use without this toolkit.

        ONNX files and recurrent networks need a later version of torch than 2.6. Missing folders are made. Actions are
        those of the policy itself, above :attr:`action_wrappers`, which the file names.

        Args:
            path: ends in ".onnx", in ".pt2" for `torch.export.load`, or in ".ts" for `torch.jit.load` and for C++ with
                LibTorch. The network takes a batch of observations, (B, 1) of a Discrete space. A recurrent one also
                takes its states (B, hidden), initially zeros, and returns them after the actions.

        Raises:
            RuntimeError: the installed version of torch cannot export the policy.
            ImportError: ".onnx" needs the packages onnx and onnxscript.
            ValueError: the path has another suffix, weights hold NaN or infinity, or the policy keeps more of earlier
                steps than recurrent states.
            OSError: the path is a folder, or cannot be written.
        """
        return export_policy(self.algorithm, Path(path), self.action_names, self.action_wrappers, self.origin)

    def _rewards(self, rewards: Any, begins: NDArray[np.bool_]) -> torch.Tensor | None:
        """Return the rewards (E, 1); None for a policy that does not use them."""
        if not self.algorithm.reads_rewards:
            return None
        if rewards is None and not begins.all():
            raise ValueError(
                f"TrainedPolicy: {type(self.algorithm).__name__} conditions actions on past rewards; call "
                f"policy(observation, rewards=...) with those of the last step"
            )
        paid = np.zeros(len(begins)) if rewards is None else np.asarray(rewards, np.float64).reshape(len(begins))
        return torch.from_numpy(paid.astype(np.float32)[:, None]).to(self.algorithm.device)

    def as_batch(self, observation: Any) -> tuple[Any, bool]:
        """Return observations (E, *obs) as tensors on the algorithm's device, and whether there was no batch axis.

        Args:
            observation: as returned by gymnasium's environments, of one environment or of E.

        Raises:
            ValueError: it has another shape or other parts than the policy's space, holds NaN or infinity, or a
                discrete value out of range; the bounds of a Box are not checked.
        """
        batch, is_single = self.as_arrays(observation)
        return to_device(batch, self.algorithm.device), is_single

    def as_arrays(self, observation: Any) -> tuple[Any, bool]:
        """As :meth:`as_batch`, as arrays."""
        is_pair = isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], Mapping)
        if is_pair and not isinstance(self.observation_space, spaces.Dict):
            raise ValueError(
                "TrainedPolicy: the observation is a pair of an observation and infos, as env.reset() returns; write "
                "observation, info = env.reset()"
            )
        return self._stacked(flattened(observation))

    def _stacked(self, observation: Any) -> tuple[Any, bool]:
        space = self.observation_space
        if isinstance(space, spaces.Dict):
            if not isinstance(observation, Mapping) or set(observation) != set(space.spaces):
                raise ValueError(
                    f"TrainedPolicy: the observation must have the parts {list(space.spaces)}, got "
                    f"{list(observation) if isinstance(observation, Mapping) else type(observation).__name__}"
                )
            parts = {name: self._batched(observation[name], part, name) for name, part in space.spaces.items()}
            singles = {is_single for _, is_single in parts.values()}
            if len(singles) > 1:
                raise ValueError("TrainedPolicy: some parts of the observation have a batch axis, others have none")
            return with_trailing_axis({name: batch for name, (batch, _) in parts.items()}, space), singles.pop()
        batch, is_single = self._batched(observation, space, "the observation")
        return with_trailing_axis(batch, space), is_single

    def _batched(self, values: Any, space: Any, name: str) -> tuple[NDArray[Any], bool]:
        """Return values (E, *shape) in the space's dtype, and whether there was no batch axis."""
        wanted = f"{space.shape}, or (E, {', '.join(map(str, space.shape))}) for E environments"
        try:
            array = np.asarray(values, space.dtype)
        except (OverflowError, TypeError, ValueError) as error:
            given = f"a mapping with {list(values)}" if isinstance(values, Mapping) else str(error)
            raise ValueError(
                f"TrainedPolicy: {name} must be numbers with the shape {wanted}, got other values: {given}"
            ) from error
        is_single = array.shape == space.shape
        if not is_single and (array.ndim != len(space.shape) + 1 or array.shape[1:] != space.shape):
            raise ValueError(f"TrainedPolicy: {name} must have the shape {wanted}, got {array.shape}")
        if not self.allow_nonfinite and array.dtype.kind == "f":
            way_out = "allow_nonfinite=True of TrainedPolicy, or of the storage in training, would act on it"
            _refuse_where(~np.isfinite(array), array, name, f"; {way_out}")
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            count = space.n if isinstance(space, spaces.Discrete) else space.nvec
            _refuse_where((array < space.start) | (array >= space.start + count), array, name, f", outside of {space}")
        return array[None] if is_single else array, is_single


@naming_arguments(LOADING_NAMES)
def load_policy(
    path: str | os.PathLike[str],
    *,
    algo_factory: Factory[Algorithm] | None = None,
    actor_factory: Factory[Actor] | None = None,
    device: torch.device | str = "cpu",
) -> TrainedPolicy:
    """Load the policy of a run: ``action = policy(observation)``.

    No environment is made, no storage is opened, and no file of the run is changed. The wrappers of the run that change
    observations or actions must be applied to the environment in which the policy acts: one trained with
    ``RescaleAction`` gives actions from -1 to 1, of which a warning says so. Observations with NaN or infinity are
    refused, unless the run's storage has ``allow_nonfinite``.

    Args:
        path: a run folder, whose newest checkpoint is loaded; a file of weights such as ``best_weights.pt``;
            "zoo:sac-pendulum", a policy that comes with the toolkit; or "hf://user/name", a repository of the Hugging
            Face hub, which needs the extra ``hub``.
        algo_factory: as in training; None builds it from the file, which is possible for classes of algorithms, actors
            and settings, of a script too where it has defined them before. Users' networks are found where the module
            that defines them is imported already.
        actor_factory: as ``algo_factory``.
        device: of the networks.

    Raises:
        CheckpointError: there are no weights, or they are damaged, or hold NaN or infinity.
        DeviceError: the device is not available.
        CompositionError: the algorithm or the actor cannot be built from the file alone.
        ImportError: a policy of the hub is named, and its package is not installed.
    """
    policy = read_policy(path, algo_factory=algo_factory, actor_factory=actor_factory, device=device)
    if policy.action_wrappers:
        warnings.warn(f"load_policy: {warning_of(policy.action_wrappers, policy.action_space)}", stacklevel=3)
    return policy


def _are_equal(one: Any, other: Any) -> bool:
    """Whether two batches of observations are equal, NaN to NaN."""
    if isinstance(one, Mapping):
        return all(_are_equal(part, other[name]) for name, part in one.items())
    return torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


def configuration_of(path: Path) -> Mapping[str, Any]:
    """Return the configuration of a run folder, or the one in a file of weights.

    Raises:
        CheckpointError: there is none.
    """
    if path.is_dir():
        return RunFolder(path).read_config()
    config: Mapping[str, Any] = checkpoint.load(path, checkpoint.READING, is_mapped=True)["config"]
    return config


def spaces_of_policy(path: str | os.PathLike[str]) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """Return the spaces of observations and of actions of a saved policy, whose networks are not made.

    Raises:
        CheckpointError: there is no policy, or its spaces are not in it.
    """
    found = find_policy(path)
    with as_checkpoint_error(found):
        saved = configuration_of(found)["spaces"]
        return space_from_data(saved["observation"]), space_from_data(saved["action"])


def read_policy(
    path: str | os.PathLike[str],
    *,
    algo_factory: Factory[Algorithm] | None = None,
    actor_factory: Factory[Actor] | None = None,
    device: torch.device | str = "cpu",
) -> TrainedPolicy:
    """As :func:`load_policy`, for what acts in the environments of the run, or not at all: without a warning."""
    # Otherwise, a missing device would be found by the first tensor that is made on it, and named less clearly.
    path, device = find_policy(path), find_device(device)
    file = file_of(path)
    of_folder = RunFolder(path).read_config() if path.is_dir() else {}
    state = checkpoint.load(file, checkpoint.READING, is_mapped=True)
    with as_checkpoint_error(file):
        config = state["config"]
        of_run = {name: value for name, value in (config | of_folder).items() if name in _OF_SCRIPTS}
        if "spaces" not in config:
            raise CheckpointError(f"{file} does not contain the spaces of its policy; load it with load_agent")
        weights = state["weights"] if "weights" in state else state["scheme"]["algorithm"]["actor"]
        with missing_modules_named(of_run), _factories_named():
            if algo_factory is None or actor_factory is None:
                refuse_classes_of_a_script(without_classes_of_callbacks({**config, **of_folder, **of_run}), _WAY_OUT)
            algo_factory = algo_factory or acting_algorithm_of(config["algorithm"])
            actor_factory = actor_factory or made_of(config["actor"])
            wrappers = action_wrappers_of(config)
        with torch.device("meta"):
            # The meta device allocates no memory for sizes in a file that are not verified yet.
            described = _built(config, algo_factory, actor_factory, "meta")
        _refuse_other_shapes(described, weights)
        algorithm = _built(config, algo_factory, actor_factory, device)
        algorithm.set_weights(weights)
        if of_nan := nonfinite_weights(algorithm):
            raise CheckpointError(f"{file} is no policy to act with: {of_nan}")
        algorithm.actor.requires_grad_(False)
        steps = state["steps"] if "weights" in state else state["scheme"]["collector"]["steps"]
        algorithm.set_progress(steps, steps)
        numbers = (item for item in state.items() if item[0] not in _OF_THE_FILE)
        saved = {name: value for name, value in numbers if isinstance(value, int | float)}
        allows = config.get("storage", {}).get("hyper_parameters", {}).get("allow_nonfinite", False)
    policy = TrainedPolicy(
        algorithm,
        allow_nonfinite=allows is True,
        action_names=action_names_in(config),
        action_wrappers=wrappers,
        origin=origin_of(config | of_folder, steps, saved),
    )
    policy._described = (config | of_run, path)
    return policy


@contextmanager
def _factories_named() -> Iterator[None]:
    """Add to a :class:`CompositionError` how a script gives what a file may not name."""
    try:
        yield
    except CompositionError as error:
        error.add_note(
            "In a script: load_policy(path, algo_factory=..., actor_factory=...), with those of the training"
        )
        raise


def _built(
    config: Mapping[str, Any],
    algo_factory: Factory[Algorithm],
    actor_factory: Factory[Actor],
    device: torch.device | str,
) -> Algorithm:
    observation, action = (space_from_data(config["spaces"][name]) for name in ("observation", "action"))
    envs = SimpleNamespace(observation_space=observation, action_space=action, num_envs=1, stacked_frames=0)
    # The initial weights, which the trained ones replace, are not drawn from the user's random numbers.
    with seeded(np.random.SeedSequence(0), torch.device(device)):
        return algo_factory(device, actor_factory(device, envs), envs)


def _refuse_other_shapes(described: Algorithm, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse weights of other shapes than the composition's, which might allocate more memory than the file's size."""
    expected = {name: tensor.shape for name, tensor in described.actor.state_dict().items()}
    found = {name: tensor.shape for name, tensor in weights.items()}
    if expected != found:
        differing = next(name for name in {**expected, **found} if expected.get(name) != found.get(name))
        raise ValueError(f"the weights {differing!r} do not match its composition")


def _refuse_where(is_wrong: NDArray[np.bool_], array: NDArray[Any], name: str, reason: str) -> None:
    """Refuse an observation with wrong values."""
    if is_wrong.any():
        at = tuple(np.argwhere(is_wrong)[0].tolist())
        raise ValueError(f"TrainedPolicy: {name} has {array[at]} at {at}{reason}")
