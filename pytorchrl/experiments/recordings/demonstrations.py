"""Recording episodes of an agent as a data set."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.spaces import space_as_data
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.explorers import Exploration
from pytorchrl.experiments.interruption import Interruption
from pytorchrl.experiments.runs.composition import load_agent
from pytorchrl.logging.bars import bar
from pytorchrl.scheme.collector import to_device
from storages.component.factory import Factory
from storages.datasets import About, Written, format_for, write_dataset
from storages.episode import Episode
from storages.transition import ACT, REW, Array

Policy: TypeAlias = Callable[[Any], Any]
"""Function from observations (E, *obs), or a dict of such, to actions (E, 1) or (E, *action)."""
_Acting: TypeAlias = Callable[[Any, NDArray[np.bool_], Array], Array]
"""The same, with further arguments: episode starts (E, 1), and the rewards of the last actions (E, 1)."""


def collect_demonstrations(
    actor: Algorithm | Policy | str | os.PathLike[str],
    envs: VecEnv | Factory[VecEnv] | None = None,
    *,
    path: str | os.PathLike[str],
    steps: int | None = None,
    episodes: int | None = None,
    seed: int = 0,
    deterministic: bool = True,
    format: str | None = None,  # noqa: A002
    about: About | None = None,
) -> Written:
    """Act in environments and write the episodes as a data set.

    Ctrl-C ends recording after the current step and writes what was recorded; a second one writes nothing.

    Args:
        actor: an algorithm, a run folder, whose newest checkpoint is loaded, or a function from observations to
            actions.
        envs: the environments; None makes one copy of the run's test environment, if ``actor`` is a run folder.
        path: of the data set; must not exist.
        steps: minimum number of environment transitions to record; episodes that are still running are recorded up to
            there, neither terminated nor truncated.
        episodes: number of episodes to record instead. Each environment plays a fixed share, so that short episodes are
            not favoured.
        seed: of the environments, and of the exploration of an algorithm that is not deterministic.
        deterministic: whether an algorithm acts deterministically, instead of exploring.
        format: one of :data:`storages.datasets.FORMATS`; None for "npz" if the path ends so, else "minari-hdf5".
        about: metadata of the data set; spaces, environment and algorithm are filled in where they are None.

    Raises:
        ValueError: neither or both of ``steps`` and ``episodes`` are given, or one is less than 1; or ``envs`` is
            missing.
        DatasetError: the path exists, or the format is unknown; nothing was recorded.
        CheckpointError: the run folder has no readable checkpoint.
    """
    _check(steps, episodes)
    format_for(Path(path), format)
    with ExitStack() as stack:
        if isinstance(actor, str | os.PathLike):
            actor, made = load_agent(actor, envs if isinstance(envs, Factory) else None)
            stack.enter_context(made)
            envs = envs if isinstance(envs, VecEnv) else made
        elif envs is None:
            raise ValueError("collect_demonstrations: give envs to act in; only a run folder contains its own")
        elif isinstance(envs, Factory):
            envs = stack.enter_context(envs())
        acting = _acting(actor, envs.num_envs, seed, deterministic)
        stopped = stack.enter_context(Interruption()).is_requested
        advance = stack.enter_context(bar(f"Recording {path}", steps or episodes, "steps" if steps else "episodes"))
        recorded = _recorded(acting, envs, steps, episodes, seed, stopped, advance)
        return write_dataset(
            path, recorded, format=format, about=_about(about or About(), actor, envs), allow_nonfinite=True
        )


def episodes_of_actor(
    actor: Algorithm | Policy, envs: VecEnv, seed: int, *, deterministic: bool = True
) -> Iterator[Episode]:
    """Return an infinite iterator over the episodes of an actor, in the order in which they end.

    Args:
        actor: an algorithm, or a function from observations to actions.
        envs: the environments, which are stepped lazily.
        seed: of the environments, and of the exploration of an algorithm that is not deterministic.
        deterministic: whether an algorithm acts deterministically, instead of exploring.
    """
    acting = _acting(actor, envs.num_envs, seed, deterministic)
    return _recorded(acting, envs, None, None, seed, lambda: False, lambda done: None)


def _acting(actor: Algorithm | Policy, num_envs: int, seed: int, deterministic: bool) -> _Acting:
    if isinstance(actor, Algorithm):
        return _of_algorithm(actor, num_envs, seed, deterministic)
    return _of_policy(actor)


def _check(steps: int | None, episodes: int | None) -> None:
    if (steps is None) == (episodes is None):
        raise ValueError(f"collect_demonstrations: give steps or episodes, got steps={steps}, episodes={episodes}")
    for name, number in (("steps", steps), ("episodes", episodes)):
        if number is not None and number < 1:
            raise ValueError(f"collect_demonstrations: {name} must be at least 1, got {number}")


def _about(about: About, actor: Algorithm | Policy, envs: VecEnv) -> About:
    name = type(actor).__name__ if isinstance(actor, Algorithm) else getattr(actor, "__name__", type(actor).__name__)
    return replace(
        about,
        observation_space=about.observation_space or space_as_data(envs.observation_space),
        action_space=about.action_space or space_as_data(envs.action_space),
        env_spec=about.env_spec or envs.env_spec,
        algorithm_name=about.algorithm_name or name,
    )


def _of_algorithm(algorithm: Algorithm, num_envs: int, seed: int, deterministic: bool) -> _Acting:
    rhs = algorithm.actor.initial_memory(num_envs)
    exploration = Exploration(
        algorithm.codec,
        num_envs,
        algorithm.device,
        np.random.SeedSequence(seed, spawn_key=(1,)),
        deterministic,
        apart_from_training=True,
    )
    # Exploration is that of the step at which the weights were saved.
    exploration.steps, exploration.target_steps = algorithm.steps, algorithm.target_steps

    def act(observation: Any, begins: NDArray[np.bool_], rewards: Array) -> Array:
        nonlocal rhs
        obs = to_device(observation, algorithm.device)
        exploration.starts = torch.from_numpy(begins.astype(np.float32)).to(algorithm.device)
        exploration.rewards = torch.as_tensor(rewards, dtype=torch.float32, device=algorithm.device)
        acting = algorithm.acting_step(obs, rhs, exploration.starts, exploration)
        rhs = acting.rhs
        action: Array = acting.env_action.cpu().numpy()
        return action

    return act


def _of_policy(policy: Policy) -> _Acting:
    def act(observation: Any, begins: NDArray[np.bool_], rewards: Array) -> Array:
        action = policy(observation)
        return action.detach().cpu().numpy() if isinstance(action, torch.Tensor) else np.asarray(action)

    return act


class _Running:
    """The running episode of one environment."""

    def __init__(self, env: int, observation: Any) -> None:
        self._env = env
        self._observations = [_of(observation, env)]
        self._actions: list[Array] = []
        self._rewards: list[Array] = []

    def __len__(self) -> int:
        return len(self._rewards)

    def add(self, action: Array, reward: Array, next_observation: Any) -> None:
        self._observations.append(_of(next_observation, self._env))
        self._actions.append(action[self._env].copy())
        self._rewards.append(reward[self._env])

    def episode(self, terminated: bool, truncated: bool, reported: Mapping[str, float] | None = None) -> Episode:
        seen = self._observations
        observations = (
            {name: np.stack([one[name] for one in seen]) for name in seen[0]}
            if isinstance(seen[0], dict)
            else np.stack(seen)
        )
        fields = {ACT: np.stack(self._actions), REW: np.stack(self._rewards)}
        return Episode(observations, fields, terminated, truncated, {"environment": self._env, **(reported or {})})


def _of(observation: Any, env: int) -> Any:
    if isinstance(observation, dict):
        return {name: _of(part, env) for name, part in observation.items()}
    one = observation[env]
    return one.cpu().numpy() if isinstance(one, torch.Tensor) else one.copy()


def _recorded(
    acting: _Acting,
    envs: VecEnv,
    steps: int | None,
    episodes: int | None,
    seed: int,
    stopped: Callable[[], bool],
    advance: Callable[[int], None],
) -> Iterator[Episode]:
    """Yield episodes as they end, and with a number of steps, at last those still running."""
    # Remaining episodes of each environment; infinite where steps are counted.
    share = [np.inf if episodes is None else (episodes + env) // envs.num_envs for env in range(envs.num_envs)]
    observation = envs.reset(np.random.SeedSequence(seed, spawn_key=(0,)))
    running = [_Running(env, observation) for env in range(envs.num_envs)]
    begins = np.ones((envs.num_envs, 1), np.bool_)
    rewards: Array = np.zeros((envs.num_envs, 1))
    expected = (envs.num_envs, *(envs.action_space.shape or (1,)))
    taken = 0
    while any(share) and (steps is None or taken < steps) and not stopped():
        action = acting(observation, begins, rewards)
        if action.shape != expected:
            raise ValueError(f"collect_demonstrations: actions must have shape {expected}, got {action.shape}")
        step = envs.step(torch.from_numpy(action) if envs.takes_tensors else action)
        observation, begins, rewards = step.observation, step.terminated | step.truncated, step.reward
        reported = {record.environment: record.reported for record in envs.finished_episodes}
        made = np.ones_like(begins) if step.made is None else step.made
        for env, one in enumerate(running):
            if not share[env]:
                continue
            if not made[env]:
                running[env] = _Running(env, observation)
                continue
            one.add(action, step.reward, step.next_observation)
            if begins[env]:
                ends = bool(step.terminated[env, 0]), bool(step.truncated[env, 0])
                yield one.episode(*ends, reported.get(env))
                share[env] -= 1
                running[env] = _Running(env, observation)
                advance(0 if episodes is None else 1)
        begins |= ~made
        taken += int(made.sum())
        advance(0 if steps is None else int(made.sum()))
    if steps is not None:
        yield from (one.episode(terminated=False, truncated=False) for one in running if len(one))
