"""Hindsight: transitions as if another goal had been meant, one that was reached.

Andrychowicz et al., "Hindsight Experience Replay" (arXiv 1707.01495). Nothing is stored twice: a batch is relabelled
when it is made.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import Relabeler, Segments, Window
from storages.core.ring.layout import SampleError, leaves, text
from storages.core.ring.ring import Ring
from storages.core.sampling.episode_index import EpisodeIndex
from storages.core.sampling.episode_tracker import EpisodeTracker
from storages.core.windows.n_step import Spans
from storages.transition import OBS, OBS2, REW, RHS, RHS2, Array, Sample

Strategy: TypeAlias = Literal["future", "final", "episode", "random"]
HerFunction: TypeAlias = Callable[..., tuple[Any, Any, Any, Any, Any]]
"""``(obs, rhs, obs2, rhs2, rew, initial_state, final_state) -> (obs, rhs, obs2, rhs2, rew)``, each (N, ...)."""

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


class GoalReward(Protocol):
    """What the environment pays for an achieved goal where another was desired; both (N, *goal), the result (N,).

    ``info`` is always empty: what a step would have said of another goal is not known.
    """

    def __call__(self, achieved_goal: Array, desired_goal: Array, info: Mapping[str, Any]) -> Array:
        """Rewards of ``N`` pairs of goals."""


class Hindsight(Relabeler):
    """Gives a part of the rows goals that their episodes reached.

    Args:
        tracker: of the ring's episodes.
        her_function: relabels whole batches; None relabels goals of dict observations.
        reward: what the environments pay for goals; needed without a ``her_function``.
    """

    def __init__(self, tracker: EpisodeTracker, her_function: HerFunction | None, reward: GoalReward | None) -> None:
        self.ratio: float = 0.8
        """Part of the rows that is relabelled."""
        self.strategy: Strategy = "future"
        """Where goals come from, see :func:`choose_goals`."""
        self._tracker, self._her_function, self._reward = tracker, her_function, reward
        self.changed = frozenset({(OBS, DESIRED)})

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Refuse a first step whose observations have no goals, where no function relabels them."""
        if self._tracker.is_built:
            return
        ring.init_columns(sample)
        try:
            self._check(ring)
        except ValueError:
            ring.forget_columns()
            raise

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Refuse transitions without goals."""
        if ring.layout:
            self._check(ring)

    def _check(self, ring: Ring) -> None:
        if self._her_function is None:
            check_goals(ring)

    def choose(
        self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64], segments: Segments | None
    ) -> "Goals | None":
        """Draw which steps are relabelled, and their goals; all steps of a sequence are given one goal."""
        first = transitions if segments is None else segments.first
        given = np.flatnonzero(generator.random(len(first)) < self.ratio)
        if not len(given):
            return None
        if segments is None:
            return Goals(given, self._goals(generator, ring, transitions[given]))
        # The goal of a sequence is one that any of its steps may have led to.
        envs = ring.envs
        lengths = (segments.last - segments.first)[given] // envs + 1
        goal_of = np.full(len(first), -1)
        goal_of[given] = self._goals(generator, ring, segments.first[given] + envs * generator.integers(0, lengths))
        reached = goal_of[segments.of_each(len(transitions))]
        rows = np.flatnonzero(reached >= 0)
        return Goals(rows, reached[rows])

    def relabel(
        self,
        ring: Ring,
        window: Window,
        fields: dict[str, Any],
        transitions: NDArray[np.int64],
        chosen: Any,
        gamma: float,
    ) -> None:
        """Change observations and rewards of the chosen steps."""
        rows, reached = chosen
        relabelled = transitions[rows]
        steps = steps_of(window.spans(ring, relabelled, gamma), ring.envs)
        if self._her_function is not None:
            initial = self._tracker.index.first_of(relabelled)
            relabel_by_function(ring, fields, rows, steps, reached, gamma, self._her_function, initial)
        else:
            assert self._reward is not None
            relabel_goals(ring, fields, rows, steps, reached, gamma, self._reward)

    def _goals(self, generator: np.random.Generator, ring: Ring, transitions: NDArray[np.int64]) -> NDArray[np.int64]:
        return choose_goals(self.strategy, generator, ring, self._tracker.index, transitions)


class Goals(NamedTuple):
    """Which rows of a batch are given other goals."""

    rows: NDArray[np.int64]
    """(R,): which rows."""
    reached: NDArray[np.int64]
    """(R,): transitions whose OBS2 shows the new goals."""


class SpanSteps(NamedTuple):
    """All the steps of some windows, one window after the other."""

    transitions: NDArray[np.int64]
    """(N,): their numbers."""
    window: NDArray[np.int64]
    """(N,): which window each belongs to."""
    position: NDArray[np.int64]
    """(N,): which step of it each is, from 0."""
    starts: NDArray[np.int64]
    """(windows,): where the first step of each window lies among these."""


def choose_goals(
    strategy: Strategy,
    generator: np.random.Generator,
    ring: Ring,
    episodes: EpisodeIndex,
    transitions: NDArray[np.int64],
) -> NDArray[np.int64]:
    """(B,): transitions whose OBS2 shows the goal that each of ``transitions`` is to have meant; section 4.5.

    "future": it or one after it in its episode. "final": the last of its episode, the newest step of one that still
    runs. "episode": any of its episode.
    "random": any that is stored.
    """
    envs = ring.envs
    if strategy == "random":
        return generator.integers(ring.start, ring.end, len(transitions))
    last = episodes.last_of(transitions)
    if strategy == "final":
        return last
    first = episodes.first_of(transitions) if strategy == "episode" else transitions
    return first + generator.integers(0, (last - first) // envs + 1) * envs


def steps_of(spans: Spans, num_envs: int) -> SpanSteps:
    """The steps of windows, in their order."""
    starts = np.cumsum(spans.lengths) - spans.lengths
    window = np.repeat(np.arange(len(spans.lengths)), spans.lengths)
    position = np.arange(len(window)) - starts[window]
    return SpanSteps(spans.first[window] + position * num_envs, window, position, starts)


def relabel_goals(
    ring: Ring,
    fields: dict[str, Any],
    rows: NDArray[np.int64],
    steps: SpanSteps,
    goals: NDArray[np.int64],
    gamma: float,
    reward: GoalReward,
) -> None:
    """Put what was achieved in the place of what was desired, in some rows of a batch.

    Args:
        ring: what holds the transitions.
        fields: the batch, written; its arrays must be the caller's alone.
        rows: (R,), which rows of it.
        steps: of the rows' windows; all their rewards follow from the new goal.
        goals: (R,), transitions whose OBS2 shows the new goals.
        gamma: discount factor of one step.
        reward: what an achieved goal is worth.
    """
    new = ring.columns.gather_leaf((OBS2, ACHIEVED), goals)
    achieved = ring.columns.gather_leaf((OBS2, ACHIEVED), steps.transitions)
    try:
        paid = np.asarray(reward(achieved, new[steps.window], {}))
    except KeyError as error:
        raise ValueError(
            f"{ring.owner}: compute_reward reads {error} of its info, which is empty, because what a step would have "
            f"said of another goal is not known; give a her_function that makes rewards of observations alone"
        ) from error
    if paid.reshape(-1).shape != steps.window.shape:
        raise ValueError(
            f"{ring.owner}: compute_reward must return a reward for each of {len(steps.window)} pairs of goals, got "
            f"shape {paid.shape}; it must take whole batches"
        )
    fields[OBS][DESIRED][rows] = new
    fields[OBS2][DESIRED][rows] = new
    fields[REW][rows, 0] = _discounted(paid.reshape(-1), steps, gamma)


def relabel_by_function(
    ring: Ring,
    fields: dict[str, Any],
    rows: NDArray[np.int64],
    steps: SpanSteps,
    goals: NDArray[np.int64],
    gamma: float,
    her_function: HerFunction,
    initial: NDArray[np.int64],
) -> None:
    """As :func:`relabel_goals`, by a function of the user's that is called once with all steps of all windows.

    Args:
        ring: what holds the transitions.
        fields: the batch, written; its arrays must be the caller's alone.
        rows: (R,), which rows of it.
        steps: of the rows' windows.
        goals: (R,), transitions whose OBS2 is the ``final_state``.
        gamma: discount factor of one step.
        her_function: see :data:`HerFunction`.
        initial: (R,), transitions whose OBS is the ``initial_state``.
    """
    original = ring.gather(steps.transitions)
    initial_state = _rows_of(ring.gather(initial, {OBS})[OBS], steps.window)
    final_state = _rows_of(ring.gather(goals, {OBS2})[OBS2], steps.window)
    relabelled = her_function(
        original[OBS], original.get(RHS), original[OBS2], original.get(RHS2), original[REW], initial_state, final_state
    )
    _refuse_unlike(relabelled, original, ring.owner)
    ends = np.append(steps.starts[1:], len(steps.window)) - 1
    for key, value, where in zip(
        (OBS, RHS, OBS2, RHS2), relabelled[:4], (steps.starts, steps.starts, ends, ends), strict=True
    ):
        if value is not None and key in fields:
            _write(fields[key], rows, value, where)
    fields[REW][rows, 0] = _discounted(np.asarray(relabelled[4])[:, 0], steps, gamma)


def check_goals(ring: Ring) -> None:
    """Refuse observations without goals.

    Raises:
        SampleError: an achieved and a desired goal are not in the observation, or differ in shape.
    """
    goals = [ring.layout.get((OBS, name)) for name in (ACHIEVED, DESIRED)]
    if None in goals or goals[0] != goals[1]:
        names = [path[1] for path in ring.layout if path[0] == OBS and len(path) > 1]
        raise SampleError(
            f"{ring.owner}: observations must be dicts with {ACHIEVED!r} and {DESIRED!r} of one shape, got "
            f"{names or 'no dict'}; for others, give a her_function"
        )


def _refuse_unlike(relabelled: object, original: Mapping[str, Any], owner: str) -> None:
    """Refuse an answer of a user's function that is not of the shapes of its arguments."""
    keys = (OBS, RHS, OBS2, RHS2, REW)
    if not isinstance(relabelled, tuple | list) or len(relabelled) != len(keys):
        got = f"{len(relabelled)} values" if isinstance(relabelled, tuple | list) else type(relabelled).__name__
        raise ValueError(f"{owner}: her_function must return (obs, rhs, obs2, rhs2, rew), got {got}")
    for key, value in zip(keys, relabelled, strict=True):
        if key in original and (value is not None or key == REW):
            expected = {text(path): np.shape(leaf) for path, leaf in leaves({key: original[key]})}
            found = {text(path): np.shape(leaf) for path, leaf in leaves({key: value})}
            if found != expected:
                raise ValueError(
                    f"{owner}: her_function must return what it is given for each of {len(original[REW])} steps, of "
                    f"shape {expected}, got {found}"
                )


def _discounted(rewards: Array, steps: SpanSteps, gamma: float) -> Array:
    """(R,): the discounted sum of each window's rewards."""
    if len(steps.starts) == len(steps.window):
        return rewards
    discounted: Array = np.add.reduceat(rewards.astype(np.float64) * np.power(gamma, steps.position), steps.starts)
    return discounted


def _rows_of(value: Any, rows: NDArray[np.int64]) -> Any:
    return {name: leaf[rows] for name, leaf in value.items()} if isinstance(value, Mapping) else value[rows]


def _write(target: Any, rows: NDArray[np.int64], value: Any, where: NDArray[np.int64]) -> None:
    if isinstance(target, Mapping):
        for name, leaf in target.items():
            leaf[rows] = value[name][where]
    else:
        target[rows] = value[where]
