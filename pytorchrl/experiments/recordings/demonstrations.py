"""Record what an agent does, as a data set that others can learn from."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
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
"""Observations (E, *obs), or a dict of such, to actions (E, 1) or (E, *action)."""
_Acting: TypeAlias = Callable[[Any, NDArray[np.bool_], Array], Array]
"""The same, from where an episode begins (E, 1), and what the last actions were paid (E, 1), too."""


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
    """Act in environments and write what came of it as a data set.

    Ctrl-C ends it after the running step and writes what was recorded; a second one writes nothing.

    Args:
        actor: an algorithm, a run folder, of whose last checkpoint the agent is taken, or a function from observations
            to actions.
        envs: where to act; None takes one environment like those that the run was evaluated in, if ``actor`` is a run
            folder.
        path: where the data set is to be; nothing may be there yet.
        steps: environment transitions to record, at least; running episodes are recorded as far as they came, neither
            terminated nor truncated.
        episodes: how many to record instead. Each environment plays its share, so that short ones are not favoured.
        seed: of the environments, and of the random numbers of an algorithm that is not deterministic.
        deterministic: whether an algorithm acts as well as it can, instead of exploring.
        format: one of :data:`storages.datasets.FORMATS`; "minari-hdf5" where None, "npz" if the path ends
            so.
        about: what the data set is to say of itself; spaces, environment and algorithm are filled in where they are
            None.

    Raises:
        ValueError: neither ``steps`` nor ``episodes`` is given, or both, or one that is less than 1; or ``envs`` are
            missing.
        DatasetError: something is at the path, or the format is not known; nothing was recorded.
        CheckpointError: the run folder has no checkpoint that can be read.
    """
    _check(steps, episodes)
    format_for(Path(path), format)
    with ExitStack() as stack:
        if isinstance(actor, str | os.PathLike):
            actor, made = load_agent(actor, envs if isinstance(envs, Factory) else None)
            stack.enter_context(closing(made))
            envs = envs if isinstance(envs, VecEnv) else made
        elif envs is None:
            raise ValueError("collect_demonstrations: say in which envs= to act; only a run folder knows its own")
        elif isinstance(envs, Factory):
            envs = stack.enter_context(closing(envs()))
        acting = _acting(actor, envs.num_envs, seed, deterministic)
        stopped = stack.enter_context(Interruption()).is_requested
        advance = stack.enter_context(bar(f"Recording {path}", steps or episodes, "steps" if steps else "episodes"))
        recorded = _recorded(acting, envs, steps, episodes, seed, stopped, advance)
        return write_dataset(path, recorded, format=format, about=_about(about or About(), actor, envs))


def episodes_of_actor(
    actor: Algorithm | Policy, envs: VecEnv, seed: int, *, deterministic: bool = True
) -> Iterator[Episode]:
    """The episodes that an actor plays, as they end, without end.

    Args:
        actor: an algorithm, or a function from observations to actions.
        envs: where to act; stepped as episodes are asked for.
        seed: of the environments, and of the random numbers of an algorithm that is not deterministic.
        deterministic: whether an algorithm acts as well as it can, instead of exploring.
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
        algorithm.codec, num_envs, algorithm.device, np.random.SeedSequence(seed, spawn_key=(1,)), deterministic
    )
    # The agent explores as it does at the end of its run.
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
    """What one environment did since its reset."""

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
    """The episodes, as they end; of a number of steps, those too that were running."""
    # Of each environment, the episodes that it has to play; without end where steps are counted.
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
