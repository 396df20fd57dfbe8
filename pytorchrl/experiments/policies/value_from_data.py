"""The value of a policy, and that of the policy that made the data, estimated from the data alone."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.spaces import choices_of
from pytorchrl.agent.explorers import Exploration
from pytorchrl.experiments.policies.fitted_q import (
    CHOICE2,
    FittedBehaviour,
    FittedQ,
    FittedValue,
    best_actions,
    check_needs_no_history,
    scale_of,
    uniform_probabilities,
    weight_decay_for,
)
from pytorchrl.experiments.policies.importance_sampling import (
    ImportanceEstimates,
    WeightedEpisode,
    importance_estimates,
    resamples_of,
)
from pytorchrl.experiments.policies.logged_probabilities import Clone, Source, observations_of, stored_probabilities
from pytorchrl.logging.bootstrap import Estimate, interval
from pytorchrl.scheme.dataset_factory import DatasetEnvs
from storages import ReplayBuffer, Storage
from storages.component.factory import Factory
from storages.datasets import fill, return_of
from storages.episode import Episode
from storages.transition import ACT, REW

Floats = NDArray[np.float64]
_LAST_PART = 0.25
"""Share of the updates over which a fit should no longer change."""
_PASSES, _FEWEST_UPDATES, _MOST_UPDATES = 200, 1_000, 5_000
"""Passes over the data that a fit makes, between these numbers of updates."""
_BEYOND_RETURNS, _BEYOND_ZERO = 0.5, 0.1
"""How far a value may leave the range of the data's returns: shares of its width, and of its largest magnitude."""
_MOST_UPDATES_OF_CLONE = 2_000
_Z = 1.959964
"""Quantile 0.975 of the normal distribution."""


@dataclass(frozen=True)
class FitSettings:
    """How often and how long Q-networks are trained.

    Args:
        fits: number of fits on resampled episodes, at least 2, beside that on all of them.
        updates: of each fit; None makes 200 passes over the data, from 1,000 to 5,000 updates.
        mini_batch_size: transitions of an update.
        lr: learning rate.
        polyak: share of the target network that is kept at each update.
    """

    fits: int = 10
    updates: int | None = None
    mini_batch_size: int = 128
    lr: float = 1e-3
    polyak: float = 0.95

    def updates_for(self, steps: int) -> int:
        """Return the updates of each fit to data of so many transitions."""
        if self.updates is not None:
            return self.updates
        return min(max(math.ceil(_PASSES * steps / self.mini_batch_size), _FEWEST_UPDATES), _MOST_UPDATES)


@dataclass(frozen=True)
class Closeness:
    """How close a policy's actions are to those of the data, and how close uniformly random ones are."""

    policy: float
    """For a Box, the root mean square difference in shares of the actions' range, or of their standard deviation in
    the data where they have no bounds; for other spaces, the share of the data's actions that the policy takes."""
    random: float | None
    """The same of random actions; None where a Box has no bounds."""


@dataclass(frozen=True)
class ValueFromData:
    """Values in the unit of discounted returns from the initial observations, with 95% intervals."""

    policy: Estimate
    """By fitted Q evaluation."""
    behaviour: Estimate
    """Of the policy that made the data: the discounted returns of its episodes, which go on with a fitted value where
    they did not terminate."""
    difference: Estimate
    """``policy - behaviour``, by the same resamples."""
    clone: Estimate
    """By fitted Q evaluation, of the greedy actions of a policy that is cloned from the data."""
    gain: Estimate
    """``policy - clone``, by the same resamples, from the same initial weights."""
    behaviour_return: Estimate
    """Undiscounted, up to the ends of the episodes."""
    importance: ImportanceEstimates | None
    """None where actions are not Discrete."""
    probabilities: Source | None
    """Where the probabilities of the data's actions are from."""
    closeness: Closeness
    """Of the actions of policy and data."""
    last_change: float
    """Mean change of a fit's value over the last quarter of its updates."""
    possible: tuple[float, float]
    """Smallest and largest discounted return of an episode of the data."""
    fits: int
    """Number of fits for the policy, that on all episodes included."""
    fits_beyond: int
    """How many of them have a value that is far out of this range: they diverged, or no episode tells of the value."""
    fits_of_clone_beyond: int
    """The same of the clone's fits."""
    updates: int
    """Of each fit."""
    episodes: int
    steps: int
    terminated: int
    """Number of episodes that terminated."""
    gamma: float
    seconds: float
    rarest: float | None = None
    """Smallest probability, by ``probabilities``, of an action of the data that is the policy's; None where actions are
    not Discrete, or none is."""
    beyond_the_ends: float = 0.0
    """Share of the weights of discounted rewards that lies after the ends of the episodes, in the mean over them."""


def value_from_data(
    algorithm: Algorithm,
    actor_factory: Factory[Actor],
    episodes: Sequence[Episode],
    settings: FitSettings = FitSettings(),
    seed: int = 0,
    after_first: Callable[[float, int], None] | None = None,
    *,
    random_share: float = 0.0,
) -> ValueFromData:
    """Estimate the value of a policy's greedy actions, which :func:`load_policy` takes, without an environment.

    With a ``random_share`` it is that of a policy which takes a random action in place of the greedy one now and then.

    Fitted Q evaluation is repeated on episodes drawn with replacement: Hao et al., "Bootstrapping Fitted Q-Evaluation
    for Off-Policy Inference", 2021 (arXiv 2102.03607), algorithm 2. As the fits are few, the interval is that of a t
    distribution with their standard deviation, which has the initial weights and the batches in it, too.

    Args:
        algorithm: has the policy; it is not changed.
        actor_factory: makes the Q-networks, with the architecture of the run's networks.
        episodes: all are held in memory.
        settings: of the fits, which take nearly all of the time.
        seed: of all random numbers.
        after_first: called after the first fit, with its seconds and the number of all fits.
        random_share: probability of a uniformly random allowed action in place of the greedy one.

    Raises:
        ValueError: actions are not Discrete, and some would be random; the policy is recurrent or uses rewards, the
            data have other observations than it takes, or there are fewer than two episodes or fits.
    """
    begun, episodes = time.perf_counter(), [episode for episode in episodes if len(episode)]
    if len(episodes) < 2 or settings.fits < 2:
        raise ValueError(
            f"an interval needs at least two episodes and two fits, got {len(episodes)} and {settings.fits}"
        )
    if random_share and not isinstance(algorithm.action_space, spaces.Discrete):
        raise ValueError(f"random actions are evaluated for Discrete spaces, and this one is {algorithm.action_space}")
    check_needs_no_history(algorithm)
    _refuse_other_observations(episodes[0], algorithm.actor.observation_space)
    _refuse_other_actions(episodes[0], algorithm.action_space)
    fits = _Fits(algorithm, actor_factory, episodes, settings, np.random.SeedSequence(seed), random_share)
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    everything = np.arange(len(episodes))
    q, first_change = fits.fitted_q(everything, 0)
    if after_first is not None:
        after_first(time.perf_counter() - begun, fits.count)
    initial, returns, clones = fits.initial_values(q), fits.behaviour_values(), fits.greedy_clone()
    value, changes, values, differences = float(initial.mean()), [first_change], list[float](), list[float]()
    cloned = [fits.value_of_choices(clones, everything, 0)]
    for number in range(1, settings.fits + 1):
        drawn = random.integers(len(episodes), size=len(episodes))
        of_drawn, change = fits.fitted_q(drawn, number)
        values.append(float(fits.initial_values(of_drawn)[drawn].mean()))
        differences.append(values[-1] - returns[drawn].mean())
        cloned.append(fits.value_of_choices(clones, drawn, number))
        changes.append(change)
    gains = np.subtract([value, *values], cloned)
    importance, source, rarest = None, None, None
    if isinstance(algorithm.action_space, spaces.Discrete):
        known, source = fits.probabilities()
        rarest = fits.rarest(known)
        weighted = fits.weighted_episodes(q, known)
        importance = importance_estimates(weighted, algorithm.gamma, random)
    return ValueFromData(
        policy=_of_few(value, values),
        behaviour=_mean(returns, random),
        difference=_of_few(float(value - returns.mean()), differences),
        clone=_of_few(cloned[0], cloned[1:]),
        gain=_of_few(float(gains[0]), gains[1:].tolist()),
        behaviour_return=_mean(np.array([return_of(episode) for episode in episodes]), random),
        importance=importance,
        probabilities=source,
        rarest=rarest,
        closeness=fits.closeness(random),
        last_change=float(np.mean(changes)),
        possible=(float(returns.min()), float(returns.max())),
        fits=1 + len(values),
        fits_beyond=_beyond([value, *values], returns),
        fits_of_clone_beyond=_beyond(cloned, returns),
        updates=fits.updates,
        episodes=len(episodes),
        steps=sum(map(len, episodes)),
        terminated=sum(episode.terminated for episode in episodes),
        gamma=algorithm.gamma,
        seconds=time.perf_counter() - begun,
        beyond_the_ends=float(np.mean([0 if one.terminated else algorithm.gamma ** len(one) for one in episodes])),
    )


class _Fits:
    """Fits of values to episodes, and what is computed from them."""

    def __init__(
        self,
        algorithm: Algorithm,
        actor_factory: Factory[Actor],
        episodes: Sequence[Episode],
        settings: FitSettings,
        seed: np.random.SeedSequence,
        random_share: float,
    ) -> None:
        self._random_share = random_share
        self._algorithm, self._actor_factory, self._episodes = algorithm, actor_factory, episodes
        self._settings, self._seed = settings, seed
        actor = algorithm.actor
        self._envs = SimpleNamespace(
            observation_space=actor.observation_space, action_space=actor.action_space, num_envs=1, stacked_frames=0
        )
        firsts = [observations_of(episode, algorithm.device, slice(1)) for episode in episodes]
        self._starts = _joined(firsts)
        self.updates = settings.updates_for(sum(map(len, episodes)))
        """Of each fit."""
        self._choices = [self._chosen_in(episode) for episode in episodes]
        self._cut = [row for row, episode in enumerate(episodes) if not episode.terminated]

    @property
    def count(self) -> int:
        """Number of fits: for the policy and a clone, and one for the data's own where episodes did not terminate."""
        return 2 * (1 + self._settings.fits) + bool(self._cut)

    def fitted_q(self, drawn: NDArray[np.int64], number: int) -> tuple[FittedQ, float]:
        """Return a Q-function fitted to the drawn episodes, and the change of its value at the end."""
        q = FittedQ(*self._given(number), **self._fitting(drawn), random_share=self._random_share)
        return q, self._fit(q, drawn, number)

    def value_of_choices(self, choices: Sequence[torch.Tensor], drawn: NDArray[np.int64], number: int) -> float:
        """Return the value of a policy's choices in each episode, fitted to the drawn episodes."""
        q = FittedQ(*self._given(number), **self._fitting(drawn), random_share=self._random_share)
        storage = self._storage(drawn, number, choices)
        q.fit(storage.generate_batches(self.updates, self._settings.mini_batch_size))
        initial = q.with_actions(self._starts, torch.cat([each[:1] for each in choices]))
        return float(_numbers(initial)[drawn].mean())

    def greedy_clone(self) -> list[torch.Tensor]:
        """Return the choices of a greedy clone of the data's policy, as :meth:`_chosen_in` returns the policy's."""
        codec = self._algorithm.codec
        return [codec.from_storage(self._clone.greedy_actions(episode)) for episode in self._episodes]

    def initial_values(self, of: FittedValue) -> Floats:
        """Return the values of the episodes' first observations, (episodes,)."""
        return _numbers(of.at(self._starts))

    def behaviour_values(self) -> Floats:
        """Return the discounted return of each episode, which goes on with a fitted value unless it terminated."""
        gamma = self._algorithm.gamma
        returns = np.array([_discounted(_rewards(episode), gamma) for episode in self._episodes])
        if self._cut:
            number = self._settings.fits + 1
            everything = np.arange(len(self._episodes))
            behaviour = FittedBehaviour(*self._given(number), **self._fitting(everything))
            self._fit(behaviour, everything, number)
            for row in self._cut:
                returns[row] += gamma ** len(self._episodes[row]) * self._value_after(behaviour, self._episodes[row])
        return returns

    def probabilities(self) -> tuple[list[Floats], Source]:
        """Return the probabilities of the actions of each episode, (L,), and where they are from."""
        stored = [stored_probabilities(episode, number) for number, episode in enumerate(self._episodes)]
        known = [each for each in stored if each is not None]
        if len(known) == len(stored):
            return known, "stored"
        return [self._clone.probabilities(episode) for episode in self._episodes], "cloned"

    def rarest(self, known: Sequence[Floats]) -> float | None:
        """Return the smallest probability of an action that is the policy's; None where none is."""
        agrees = [self._agrees(*each) for each in zip(self._episodes, self._choices, strict=True)]
        found = np.concatenate([each[where] for each, where in zip(known, agrees, strict=True)])
        return float(found.min()) if len(found) else None

    def weighted_episodes(self, q: FittedQ, known: Sequence[Floats]) -> list[WeightedEpisode]:
        """Return the episodes with ratios of probabilities and fitted values."""
        return [self._weighted(*each, q) for each in zip(self._episodes, self._choices, known, strict=True)]

    def closeness(self, random: np.random.Generator) -> Closeness:
        """Return how close the policy's actions are to those of the data."""
        codec, space = self._algorithm.codec, self._algorithm.action_space
        theirs = torch.cat([codec.to_env(self._taken(each)) for each in self._episodes]).flatten(1)
        ours = torch.cat([codec.to_env(each[:-1]) for each in self._choices]).flatten(1)
        if not isinstance(space, spaces.Box):
            assert isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
            return Closeness(float((ours == theirs).all(1).double().mean()), float(1 / np.prod(choices_of(space))))
        taken, chosen = (each.double().cpu().numpy() for each in (theirs, ours))
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
        if space.is_bounded():
            unit, drawn = high - low, random.uniform(low, high, taken.shape)
        else:
            unit, drawn = taken.std(0), None
        # Of an action that cannot differ, or never did, nothing is told.
        differs = unit > 0
        unit = unit[differs]

        def distance(actions: Floats) -> float:
            return float(np.sqrt(np.mean(((actions - taken)[:, differs] / unit) ** 2))) if differs.any() else 0.0

        return Closeness(distance(chosen), None if drawn is None else distance(drawn))

    def _weighted(self, episode: Episode, choices: torch.Tensor, probabilities: Floats, q: FittedQ) -> WeightedEpisode:
        algorithm = self._algorithm
        seen, taken = observations_of(episode, algorithm.device), self._taken(episode)
        policy = self._agrees(episode, choices).astype(np.float64)
        if self._random_share:
            at_random = uniform_probabilities(algorithm.actor, algorithm.actor.view(seen)).expand(len(taken), -1)
            policy += self._random_share * (_numbers(at_random.gather(1, taken)) - policy)
        return WeightedEpisode(
            ratios=policy / probabilities,
            rewards=_rewards(episode),
            values=_numbers(q.at(seen)),
            action_values=_numbers(q.of(seen, taken)),
            value_after=0.0 if episode.terminated else self._value_after(q, episode),
        )

    def _agrees(self, episode: Episode, choices: torch.Tensor) -> NDArray[np.bool_]:
        """Return whether each action of an episode of Discrete actions is the policy's, (L,)."""
        agrees: NDArray[np.bool_] = (choices[:-1] == self._taken(episode)).cpu().numpy()[:, 0]
        return agrees

    def _taken(self, episode: Episode) -> torch.Tensor:
        """Return the actions of an episode in the networks' scaling, (L, *action)."""
        stored = torch.from_numpy(np.ascontiguousarray(episode.fields[ACT])).to(self._algorithm.device)
        return self._algorithm.codec.from_storage(stored)

    @cached_property
    def _clone(self) -> Clone:
        """Return a policy cloned from four fifths of the episodes, the rest of which tells when to stop."""
        order = np.random.default_rng(self._seed.spawn(1)[0]).permutation(len(self._episodes))
        held_out = order[: max(1, len(order) // 5)]
        clone = Clone(*self._given(self._settings.fits + 2))
        updates = min(self.updates, _MOST_UPDATES_OF_CLONE)
        learnt = self._storage(order[len(held_out) :], self._settings.fits + 2)
        clone.fit(learnt, [self._episodes[row] for row in held_out], updates, self._settings.mini_batch_size)
        return clone

    def _fit(self, value: FittedValue, drawn: NDArray[np.int64], number: int) -> float:
        storage, size = self._storage(drawn, number), self._settings.mini_batch_size
        last = max(1, int(self.updates * _LAST_PART))
        if self.updates > last:
            value.fit(storage.generate_batches(self.updates - last, size))
        before = self.initial_values(value)[drawn].mean()
        value.fit(storage.generate_batches(last, size))
        return float(self.initial_values(value)[drawn].mean() - before)

    def _storage(self, drawn: NDArray[np.int64], number: int, choices: Sequence[torch.Tensor] | None = None) -> Storage:
        """Return a storage of the drawn episodes, in which one that is drawn twice is twice."""
        chosen = [self._with_choices(row, self._choices if choices is None else choices) for row in drawn]
        made = ReplayBuffer.create_factory(size=sum(map(len, chosen)))
        algorithm = self._algorithm
        storage: Storage = made(algorithm.device, algorithm.actor, algorithm, DatasetEnvs(self._envs))
        fill(storage, chosen, envs=self._envs)
        storage.seed(self._seed_of(number, 1))
        return storage

    def _fitting(self, drawn: NDArray[np.int64]) -> dict[str, Any]:
        """Return the settings of a fit to the drawn episodes."""
        drawn_episodes, settings = [self._episodes[row] for row in drawn], self._settings
        return {
            "lr": settings.lr,
            "polyak": settings.polyak,
            "scale": scale_of(drawn_episodes, self._algorithm.gamma),
            "weight_decay": weight_decay_for(sum(map(len, drawn_episodes)), settings.mini_batch_size, settings.lr),
        }

    def _with_choices(self, row: int, choices: Sequence[torch.Tensor]) -> Episode:
        """Return an episode with the fields that fits read, among them a policy's choices after each step."""
        episode, following = self._episodes[row], choices[row][1:].cpu().numpy()
        return replace(episode, fields={ACT: episode.fields[ACT], REW: episode.fields[REW], CHOICE2: following})

    def _chosen_in(self, episode: Episode) -> torch.Tensor:
        """Return the policy's actions in all observations of an episode, (L + 1, *action), in the networks' scaling."""
        algorithm, everything = self._algorithm, slice(None)
        exploration = Exploration(algorithm.codec, 1, algorithm.device, self._seed, deterministic=True)
        return best_actions(algorithm, observations_of(episode, algorithm.device, everything), exploration)

    def _given(self, number: int) -> tuple[Algorithm, Factory[Actor], Any, np.random.SeedSequence]:
        return self._algorithm, self._actor_factory, self._envs, self._seed_of(number, 0)

    def _seed_of(self, number: int, purpose: int) -> np.random.SeedSequence:
        return np.random.SeedSequence(self._seed.entropy, spawn_key=(1, number, purpose))

    def _value_after(self, value: FittedValue, episode: Episode) -> float:
        return float(value.at(observations_of(episode, self._algorithm.device, slice(-1, None))))


def _refuse_other_observations(episode: Episode, space: spaces.Space[Any]) -> None:
    """Refuse data whose observations have other parts or shapes than those of the policy.

    Raises:
        ValueError: they do.
    """
    seen = episode.observations
    found = {name: part.shape[1:] for name, part in (seen.items() if isinstance(seen, Mapping) else [("", seen)])}
    parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    expected = {name: part.shape or (1,) for name, part in parts.items()}
    if found != expected:
        shown = " and ".join(f"{name} {shape}".strip() for name, shape in found.items())
        raise ValueError(
            f"the policy takes observations of {space}, and those of the data are {shown}; name data of the "
            f"environment that it was trained for"
        )


def _refuse_other_actions(episode: Episode, space: spaces.Space[Any]) -> None:
    """Refuse data whose actions are none of the policy's space.

    Raises:
        ValueError: they have another shape, or are numbers where the policy makes choices.
    """
    taken = np.asarray(episode.fields[ACT])
    chooses = isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
    if taken.shape[1:] != (space.shape or (1,)) or (chooses and taken.dtype.kind == "f"):
        raise ValueError(
            f"the policy acts in {space}, and an action of the data is {taken.shape[1:]} of {taken.dtype}; name data "
            f"with the actions that it was trained for"
        )


def _beyond(values: Sequence[float], returns: Floats) -> int:
    """Return how many values are far out of the range of returns."""
    low, high = float(returns.min()), float(returns.max())
    allowed = _BEYOND_RETURNS * (high - low) + _BEYOND_ZERO * max(abs(low), abs(high))
    return sum(not low - allowed <= value <= high + allowed for value in values)


def _rewards(episode: Episode) -> Floats:
    return np.asarray(episode.fields[REW], np.float64).reshape(-1)


def _discounted(rewards: Floats, gamma: float) -> float:
    return float((rewards * gamma ** np.arange(len(rewards))).sum())


def _numbers(values: torch.Tensor) -> Floats:
    numbers: Floats = values.detach().double().cpu().numpy().reshape(-1)
    return numbers


def _joined(rows: Sequence[Any]) -> Any:
    if isinstance(rows[0], dict):
        return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}
    return torch.cat(list(rows))


def _mean(values: Floats, random: np.random.Generator) -> Estimate:
    """Return the mean of a number per episode, with its bootstrap interval."""
    return Estimate(float(values.mean()), *interval(resamples_of(len(values), random) @ values / len(values)))


def _of_few(value: float, resampled: Sequence[float]) -> Estimate:
    """Return an estimate with the interval of a t distribution, whose scale is the deviation of few resamples."""
    half = _t_quantile(len(resampled) - 1) * float(np.std(resampled, ddof=1))
    return Estimate(value, value - half, value + half)


def _t_quantile(freedom: int) -> float:
    """Return the quantile 0.975 of Student's t distribution.

    Exact for one and two degrees of freedom; for more by the expansion 26.7.5 of Abramowitz and Stegun, "Handbook of
    Mathematical Functions" (1964), to one part in 800.
    """
    if freedom == 1:
        return math.tan(0.475 * math.pi)
    if freedom == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))
