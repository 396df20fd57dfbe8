"""Evaluation of the policy over whole episodes in test environments."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.copies.episode_recorder import EpisodeRecord
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.explorers import Exploration
from pytorchrl.scheme.collector import Seed, to_device
from storages.component.annotations import conform_named
from storages.component.hyper_parameters import Count, CountOrZero

MAX_EPISODE_STEPS = 30_000
"""Default limit of an evaluation's episodes, in steps; episodes of Atari games have up to 27,000."""

_UNLIMITED = 2**62


class EvaluationStoppedError(RuntimeError):
    """Raised when an evaluation is stopped before its episodes have ended."""


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Returns and lengths of an evaluation's episodes, from the environments themselves, below all wrappers."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    episodes_cut: int = 0
    """How many were truncated by the limits of the evaluation; their returns are of the steps up to there."""
    reported: tuple[Mapping[str, float], ...] = ()
    """Numbers that the environments reported at the ends of episodes, such as success."""

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))

    @property
    def metrics(self) -> dict[str, float]:
        """The evaluation's statistics, by the names that they are logged with."""
        metrics = {
            "test/return": self.mean_return,
            "test/return_std": float(np.std(self.returns)),
            "test/return_median": float(np.median(self.returns)),
            "test/return_min": min(self.returns),
            "test/return_max": max(self.returns),
            "test/episodes": float(len(self.returns)),
            "test/episode_length": float(np.mean(self.lengths)),
        }
        metrics |= means_of_reports("test", self.reported)
        return metrics | ({"test/episodes_cut": float(self.episodes_cut)} if self.episodes_cut else {})

    def __repr__(self) -> str:
        cut = f", {self.episodes_cut} truncated" if self.episodes_cut else ""
        return (
            f"Evaluation({len(self.returns)} episodes{cut}: mean return {self.mean_return:.2f}, standard deviation "
            f"{np.std(self.returns):.2f}, from {min(self.returns):.2f} to {max(self.returns):.2f}; mean length "
            f"{np.mean(self.lengths):.1f})"
        )

    if not TYPE_CHECKING:  # for which it could be indexed

        def __getitem__(self, index):
            raise TypeError(
                "an Evaluation is no pair of a mean and a deviation: evaluation.mean_return is the mean, "
                'evaluation.metrics["test/return_std"] the standard deviation of evaluation.returns'
            )

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain data, for :func:`evaluation_from`."""
        return asdict(self)


def evaluation_from(state: Mapping[str, Any]) -> Evaluation:
    """Return the evaluation whose ``state_dict`` returned a state.

    Raises:
        ValueError: there is none of which it is the state.
    """
    kinds: dict[str, Any] = {
        "returns": tuple[float, ...],
        "lengths": tuple[Count, ...],
        "episodes_cut": CountOrZero,
        "reported": tuple[Mapping[str, float], ...],
    }
    evaluation = Evaluation(
        **{name: conform_named(state[name], kind, f"Evaluation: {name}") for name, kind in kinds.items()}
    )
    if not 0 < len(evaluation.returns) == len(evaluation.lengths):
        raise ValueError(f"Evaluation: returns and lengths are those of the same episodes, got {state!r}")
    return evaluation


def means_of_reports(group: str, reports: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each number over the episodes that reported it, by the names that they are logged with."""
    names = dict.fromkeys(name for report in reports for name in report)
    return {f"{group}/{name}": float(np.mean([one[name] for one in reports if name in one])) for name in names}


def evaluate(
    algorithm: Algorithm,
    envs: VecEnv,
    episodes: int | None,
    seed: Seed,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    stopped: Callable[[], bool] = lambda: False,
    *,
    steps: int | None = None,
    explore_at: tuple[int, int] | None = None,
    env_seeds: Sequence[int] | None = None,
    random_share: float = 0.0,
) -> Evaluation:
    """Run a number of the environments' own episodes, or of steps, under any wrappers.

    Each environment plays a fixed share of the episodes: counting the first ones to end would favour short episodes.
    With a number of steps, the episodes that end within them count; if none ends, the running ones count as truncated.
    An episode that reaches ``max_episode_steps`` counts with its return so far, with a warning, and its environment
    plays no more, so that episodes that never end take a bounded time.

    Args:
        algorithm: chooses the actions; its random generators are not used.
        envs: the test environments, which are reset here.
        episodes: how many, from 1; None where ``steps`` is given.
        seed: of the environments and of exploration.
        max_episode_steps: the longest episode, in steps of the actor.
        stopped: called before every step; the evaluation ends if it returns true.
        steps: of all environments together, instead of a number of episodes.
        explore_at: (steps, target_steps) of training at which the explorer's schedules are evaluated, to act with
            exploration; None acts deterministically.
        env_seeds: (E,) of the first reset of each environment; None derives them from ``seed``.
        random_share: probability with which an action is replaced by a uniformly random one of a discrete space.

    Raises:
        EvaluationStoppedError: ``stopped`` returned true.
        ValueError: ``random_share`` does not lie in [0, 1], or actions are not discrete.
    """
    _check_random_share(random_share, envs)
    if episodes is None:
        share = np.full(envs.num_envs, _UNLIMITED)
    else:
        share = np.array([(episodes + env) // envs.num_envs for env in range(envs.num_envs)])
    steps_left = _UNLIMITED if steps is None else -(-steps // envs.num_envs)
    exploration = Exploration(
        algorithm.codec,
        envs.num_envs,
        algorithm.device,
        seed,
        deterministic=explore_at is None,
        apart_from_training=True,
    )
    if explore_at is not None:
        exploration.steps, exploration.target_steps = explore_at
    rhs: Any
    observation, rhs = (
        envs.reset(seed if env_seeds is None else env_seeds),
        algorithm.actor.initial_memory(envs.num_envs),
    )
    done = np.ones((envs.num_envs, 1), np.float32)
    running_steps = np.zeros(envs.num_envs, np.int64)
    episodes_played: list[EpisodeRecord] = []
    episodes_cut = 0
    while share.any() and steps_left:
        if stopped():
            of = "" if episodes is None else f" of {episodes}"
            raise EvaluationStoppedError(f"stopped after {len(episodes_played)}{of} episodes")
        obs, starts = to_device(observation, algorithm.device), torch.from_numpy(done).to(algorithm.device)
        exploration.starts = starts
        acting = algorithm.acting_step(obs, rhs, starts, exploration)
        steps_left -= 1
        actions = acting.env_action
        if random_share:
            # As papers on Atari do.
            drawn = random_actions(algorithm, obs, rhs, starts, exploration).to(actions)
            is_random = torch.from_numpy(exploration.random.random((envs.num_envs, 1)) < random_share)
            actions = torch.where(is_random.to(actions.device), drawn, actions)
        step = envs.step(actions if envs.takes_tensors else actions.cpu().numpy())
        if algorithm.reads_rewards:
            exploration.rewards = torch.as_tensor(step.reward, dtype=torch.float32, device=algorithm.device)
        observation, rhs = step.observation, acting.rhs
        running_steps += 1 if step.made is None else step.made[:, 0]
        for record in envs.finished_episodes:
            running_steps[record.environment] = 0
            if share[record.environment]:
                share[record.environment] -= 1
                episodes_played.append(record)
        too_long = (running_steps >= max_episode_steps) & (share > 0)
        if too_long.any():
            running = envs.running_episodes()
            episodes_played += [running[env] for env in np.flatnonzero(too_long)]
            episodes_cut += int(too_long.sum())
            share[too_long] = 0
        begins = step.terminated | step.truncated
        done = (begins if step.made is None else begins | ~step.made).astype(np.float32)
    if not episodes_played:
        # No episode has ended within the steps.
        episodes_played = envs.running_episodes()
        episodes_cut = len(episodes_played)
    elif episodes_cut:
        warnings.warn(
            f"an episode of an evaluation was truncated after {max_episode_steps:,} steps: its return, which "
            f'"test/return" includes, is of these steps. Scheme(max_test_episode_steps=...) sets this limit; or give '
            f'the environments one: env_kwargs={{"max_episode_steps": ...}}, or the wrapper '
            f'("TimeLimit", {{"max_episode_steps": ...}})',
            RuntimeWarning,
            stacklevel=2,
        )
    return Evaluation(
        tuple(record.episode_return for record in episodes_played),
        tuple(record.length for record in episodes_played),
        episodes_cut,
        tuple(record.reported for record in episodes_played),
    )


def _check_random_share(share: float, envs: VecEnv) -> None:
    if share and not isinstance(envs.action_space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ValueError(f"a share of random actions needs discrete actions, the environments have {envs.action_space}")
    if not 0 <= share <= 1:
        raise ValueError(f"the share of random actions must lie in [0, 1], got {share}")


def random_actions(algorithm: Algorithm, obs: Any, rhs: Any, starts: Tensor, exploration: Exploration) -> Tensor:
    """Draw uniformly random actions (E, *action) for the environments, of those that masks allow.

    Args:
        algorithm: whose environments they are.
        obs: (E, *obs) each.
        rhs: recurrent states.
        starts: (E, 1) float32, 1 where ``obs`` is the first of an episode.
        exploration: of these environments.
    """
    actor = algorithm.actor
    exploration.allowed = None if actor.mask is None else partial(actor.mask.of, actor.view(obs, rhs, starts))
    return algorithm.codec.to_env(exploration.uniform_actions())


def evaluate_from_seeds(
    algorithm: Algorithm,
    envs: VecEnv,
    episodes: int,
    first_seed: int,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    stopped: Callable[[], bool] = lambda: False,
    *,
    explore_at: tuple[int, int] | None = None,
    random_share: float = 0.0,
) -> Evaluation:
    """As :func:`evaluate`, with episodes of known seeds: number i begins with ``env.reset(seed=first_seed + i)``.

    They are the same at each call, as far as the environment draws all from ``np_random``. With E environments, E
    episodes are played at a time. A native vector environment, which is seeded as a whole, gets the first seed alone.

    Raises:
        EvaluationStoppedError: ``stopped`` returned true.
    """
    if getattr(envs, "is_native", False):  # a class of a user's may have its own build
        return evaluate(
            *(algorithm, envs, episodes, first_seed, max_episode_steps, stopped),
            explore_at=explore_at,
            random_share=random_share,
        )
    num_envs, parts = envs.num_envs, list[Evaluation]()
    for begun in range(0, episodes, num_envs):
        count = min(num_envs, episodes - begun)
        # Fewer episodes than environments are played by the last of these.
        seeds = [first_seed + begun + max(0, env + count - num_envs) for env in range(num_envs)]
        seed, longest = seeds[-1], max_episode_steps
        try:
            part = evaluate(
                *(algorithm, envs, count, seed, longest, stopped),
                explore_at=explore_at,
                env_seeds=seeds,
                random_share=random_share,
            )
        except EvaluationStoppedError as error:
            played = sum(len(part.returns) for part in parts)
            raise EvaluationStoppedError(f"stopped after {played} of {episodes} episodes") from error
        parts.append(part)
    return Evaluation(
        tuple(one for part in parts for one in part.returns),
        tuple(one for part in parts for one in part.lengths),
        sum(part.episodes_cut for part in parts),
        tuple(one for part in parts for one in part.reported),
    )
