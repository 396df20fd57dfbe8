"""Relabelling of a batch's rows with other goals: observations, rewards and terminations."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.step_windows import cut_discounts
from storages.core.ring.layout import FieldKey, SampleError, as_array, leaves, text
from storages.core.ring.ring import Ring
from storages.core.windows.n_step import Spans
from storages.transition import (
    DISCOUNT,
    DONE2,
    INFO,
    IREW,
    OBS,
    OBS2,
    REW,
    RHS,
    RHS2,
    RTG,
    TAKEN2,
    TRUNC2,
    Array,
    Sample,
)

HerFunction: TypeAlias = Callable[..., tuple[Any, ...]]
"""``(obs, rhs, obs2, rhs2, rew, initial_state, final_state) -> (obs, rhs, obs2, rhs2, rew)``, each (N, ...).

With ``info_keys`` it is also given ``info=``, and it may return a sixth value (N, 1): whether the environment would
have terminated."""

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"


class GoalFunction(Protocol):
    """Function of an achieved and a desired goal, both (N, *goal), that returns rewards or terminations (N,).

    ``info`` has the environments' infos of each step, (N, ...), under the names of ``info_keys``.
    """

    def __call__(self, achieved_goal: Array, desired_goal: Array, info: Mapping[str, Any]) -> Array:
        """Return the rewards, or terminations, of ``N`` pairs of goals."""


class SpanSteps(NamedTuple):
    """The concatenated steps of n-step windows."""

    transitions: NDArray[np.int64]
    """(N,): numbers of their transitions."""
    window: NDArray[np.int64]
    """(N,): index of each step's window."""
    position: NDArray[np.int64]
    """(N,): position of each step in its window, from 0."""
    starts: NDArray[np.int64]
    """(windows,): index of each window's first step."""
    ends: NDArray[np.int64]
    """(windows,): index of each window's last step."""


class RelabeledRows(NamedTuple):
    """Rows of a batch that are relabelled."""

    ring: Ring
    """The ring of the transitions."""
    fields: dict[str, Any]
    """The fields of the batch, changed in place; owned by the caller."""
    rows: NDArray[np.int64]
    """(R,): indices of the rows."""
    steps: SpanSteps
    """Steps of the rows' windows; all of their rewards are recomputed for the new goal."""
    goals: NDArray[np.int64]
    """(R,): transitions whose OBS2 has the new goals."""
    gamma: float
    """Per-step discount factor."""
    info_keys: Sequence[str]
    """Names of the stored entries of infos."""

    def info(self) -> dict[str, Array]:
        """Return the environments' infos of each step of the windows."""
        columns, transitions = self.ring.columns, self.steps.transitions
        return {key: columns.gather_leaf((INFO, key), transitions) for key in self.info_keys}

    def write_outcomes(self, rewards: Array, terminated: Array | None) -> NDArray[np.int64]:
        """Write rewards, and the fields that depend on terminations, from those of each step (N,).

        Where an episode terminates within a window, the window ends there. Where the environment terminated, but would
        not have with the new goal, the episode counts as truncated, because its continuation is unknown.

        Returns:
            (R,): index of each window's new last step.
        """
        fields, rows, steps = self.fields, self.rows, self.steps
        ends = steps.ends
        if RTG in fields:
            fields[RTG][rows, 0] = np.nan
        if terminated is None:
            fields[REW][rows, 0] = self._discounted(rewards)
            return ends
        number = np.arange(len(steps.window))
        first = np.minimum.reduceat(np.where(terminated, number, len(number)), steps.starts)
        is_over, cut = first <= ends, np.minimum(first, ends)
        is_counted = number <= cut[steps.window]
        fields[REW][rows, 0] = self._discounted(np.where(is_counted, rewards, 0))
        if IREW in fields:
            intrinsic = self.ring.columns.gather_leaf((IREW,), steps.transitions)[:, 0]
            fields[IREW][rows, 0] = self._discounted(np.where(is_counted, intrinsic, 0))
        loses_its_end = (fields[DONE2][rows, 0] != 0) & ~is_over
        fields[TRUNC2][rows, 0] = np.where(cut < ends, 0, np.maximum(fields[TRUNC2][rows, 0], loses_its_end))
        fields[DONE2][rows, 0] = is_over
        discounts = np.power(self.gamma, cut - steps.starts + 1).astype(np.float32)[:, None]
        cut_discounts(is_over.astype(np.float32)[:, None], discounts)
        fields[DISCOUNT][rows] = discounts
        if TAKEN2 in fields:
            fields[TAKEN2][rows, 0] *= ~is_over
        return cut

    def _discounted(self, rewards: Array) -> Array:
        """Return (R,), the discounted sum of each window's rewards."""
        steps = self.steps
        if len(steps.starts) == len(steps.window):
            return rewards
        weighed = rewards.astype(np.float64) * np.power(self.gamma, steps.position)
        discounted: Array = np.add.reduceat(weighed, steps.starts)
        return discounted


def steps_of(spans: Spans, num_envs: int) -> SpanSteps:
    """Return the steps of windows, in the order of the windows."""
    lengths = spans.lengths
    past = np.cumsum(lengths)
    starts = past - lengths
    window = np.repeat(np.arange(len(lengths)), lengths)
    position = np.arange(len(window)) - starts[window]
    return SpanSteps(spans.first[window] + position * num_envs, window, position, starts, past - 1)


def relabel_goals(batch: RelabeledRows, reward: GoalFunction, termination: GoalFunction | None) -> NDArray[np.int64]:
    """Replace the desired goals of dict observations by achieved ones.

    Args:
        batch: the rows.
        reward: reward function of goals.
        termination: termination function of goals; None keeps the recorded terminations.

    Returns:
        (R,): index of each window's new last step.
    """
    ring, fields, rows, steps = batch.ring, batch.fields, batch.rows, batch.steps
    new = ring.columns.gather_leaf((OBS2, ACHIEVED), batch.goals)
    achieved = ring.columns.gather_leaf((OBS2, ACHIEVED), steps.transitions)
    arguments = (achieved, new[steps.window], batch.info())
    rewards = _checked_result("compute_reward", reward, arguments, ring.owner)
    judged = None
    if termination is not None:
        judged = _checked_result("her_terminated", termination, arguments, ring.owner).astype(np.bool_)
    ends = batch.write_outcomes(rewards, judged)
    if judged is not None and (shortened := np.flatnonzero(ends < steps.ends)).size:
        followed = ring.gather(steps.transitions[ends[shortened]], {OBS2, RHS2} & fields.keys())
        for key, value in followed.items():
            _write(fields[key], rows[shortened], value, np.arange(len(shortened)))
    fields[OBS][DESIRED][rows] = new
    fields[OBS2][DESIRED][rows] = new
    return ends


def relabel_by_function(
    batch: RelabeledRows, her_function: HerFunction, initial: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Relabel by a user's function, called once with all steps of all windows; otherwise as :func:`relabel_goals`.

    Args:
        batch: the rows; OBS2 of their goals is the ``final_state``.
        her_function: see :data:`HerFunction`.
        initial: (R,), transitions whose OBS is the ``initial_state``.
    """
    ring, fields, rows, steps = batch.ring, batch.fields, batch.rows, batch.steps
    original = ring.gather(steps.transitions)
    initial_state = _rows_of(ring.gather(initial, {OBS})[OBS], steps.window)
    final_state = _rows_of(ring.gather(batch.goals, {OBS2})[OBS2], steps.window)
    info = {"info": original[INFO]} if INFO in original else {}
    relabelled = her_function(
        *(original.get(key) for key in (OBS, RHS, OBS2, RHS2)), original[REW], initial_state, final_state, **info
    )
    _refuse_unlike(relabelled, original, ring.owner)
    judged = None if len(relabelled) == 5 or relabelled[5] is None else np.asarray(relabelled[5])[:, 0] != 0
    ends = batch.write_outcomes(np.asarray(relabelled[4])[:, 0], judged)
    for key, value, where in zip(
        (OBS, RHS, OBS2, RHS2), relabelled[:4], (steps.starts, steps.starts, ends, ends), strict=True
    ):
        if value is None and judged is not None and where is ends:
            # A shortened window has another next observation even if the function does not change it.
            value = original.get(key)
        if value is not None and key in fields:
            _write(fields[key], rows, value, where)
    return ends


def warn_of_other_rewards(batch: RelabeledRows, reward: GoalFunction) -> bool:
    """Warn if the reward function gives other rewards for the original goals than are stored; return whether it does.

    A goal may change with the next observation, so that either observation's goal may be the original one.
    """
    columns, steps = batch.ring.columns, batch.steps.transitions
    stored = columns.gather_leaf((REW,), steps)[:, 0].astype(np.float64)
    achieved, differ = columns.gather_leaf((OBS2, ACHIEVED), steps), np.ones(len(steps), np.bool_)
    for key in (OBS2, OBS):
        arguments = achieved, columns.gather_leaf((key, DESIRED), steps), batch.info()
        given = _checked_result("compute_reward", reward, arguments, batch.ring.owner).astype(np.float64)
        differ &= ~np.isclose(given, stored, rtol=1e-3, atol=1e-4)
        if not differ.any():
            return False
    first = int(differ.argmax())
    warnings.warn(
        f"{batch.ring.owner}: the environments paid {stored[first]:g} for a step, but compute_reward gives "
        f"{given[first]:g} for its own goals, and other rewards than were paid for {differ.sum()} of {len(steps)} "
        f"steps: what is learnt of other goals contradicts the stored rewards. If a wrapper changes rewards or goals, "
        f"let it define compute_reward, too, or give a her_function",
        stacklevel=2,
    )
    return True


def check_goals(ring: Ring) -> None:
    """Refuse observations without goals.

    Raises:
        SampleError: the observation has no achieved or no desired goal, or these differ in layout.
    """
    goals = [ring.layout.get((OBS, name)) for name in (ACHIEVED, DESIRED)]
    if None in goals or goals[0] != goals[1]:
        names = [path[1] for path in ring.layout if path[0] == OBS and len(path) > 1]
        raise SampleError(
            f"{ring.owner}: observations must be dicts with {ACHIEVED!r} and {DESIRED!r} of one shape, got "
            f"{names or 'no dict'}; for others, give a her_function"
        )


def check_functions(
    ring: Ring, sample: Sample, functions: Mapping[str, GoalFunction | None], info_keys: Sequence[str]
) -> None:
    """Call functions of goals with those of a first sample, twice, so that one for a single pair is refused at once.

    Raises:
        ValueError: the result is not one number for each pair.
    """

    def pair(path: FieldKey, values: Any) -> Array:
        return np.repeat(as_array(values, path, ring.owner)[:1], 2, axis=0)

    seen: Any = sample
    achieved, desired = (pair((OBS2, name), seen[OBS2][name]) for name in (ACHIEVED, DESIRED))
    info = {key: pair((INFO, key), seen[INFO][key]) for key in info_keys}
    for name, function in functions.items():
        if function is not None:
            _checked_result(name, function, (achieved, desired, info), ring.owner)


def _checked_result(
    name: str, function: GoalFunction, arguments: tuple[Array, Array, dict[str, Array]], owner: str
) -> Array:
    """Return the checked result (N,) of a function of goals."""
    pairs, info = len(arguments[0]), arguments[2]
    try:
        answer = np.asarray(function(*arguments))
    except KeyError as error:
        raise ValueError(
            f"{owner}: {name} reads {error} from info, which has {', '.join(info) or 'nothing'}: add it to info_keys "
            f"if the environments report it and it does not depend on the goal; otherwise give a her_function"
        ) from error
    if answer.size != pairs:
        kind = "termination" if name == "her_terminated" else "reward"
        raise ValueError(
            f"{owner}: {name} must return a {kind} for each of {pairs} pairs of goals, got shape {answer.shape}; it "
            f"must accept batches, as -np.linalg.norm(achieved_goal - desired_goal, axis=-1) does"
        )
    return answer.reshape(-1)


def _refuse_unlike(relabelled: object, original: Mapping[str, Any], owner: str) -> None:
    """Refuse a result of a user's function whose shapes differ from those of its arguments."""
    keys = (OBS, RHS, OBS2, RHS2, REW)
    if not isinstance(relabelled, tuple | list) or len(relabelled) not in (len(keys), len(keys) + 1):
        got = f"{len(relabelled)} values" if isinstance(relabelled, tuple | list) else type(relabelled).__name__
        raise ValueError(
            f"{owner}: her_function must return five values, or a sixth for terminations: (obs, rhs, obs2, rhs2, rew), "
            f"got {got}"
        )
    expected_of = {**original, "terminated": original[REW]}
    for key, value in zip((*keys, "terminated"), relabelled, strict=False):
        if key in expected_of and (value is not None or key == REW):
            expected = {text(path): np.shape(leaf) for path, leaf in leaves({key: expected_of[key]})}
            found = {text(path): np.shape(leaf) for path, leaf in leaves({key: value})}
            if found != expected:
                raise ValueError(
                    f"{owner}: her_function must return values for each of {len(original[REW])} steps, like its "
                    f"arguments of shape {expected}, got {found}"
                )


def _rows_of(value: Any, rows: NDArray[np.int64]) -> Any:
    return {name: leaf[rows] for name, leaf in value.items()} if isinstance(value, Mapping) else value[rows]


def _write(target: Any, rows: NDArray[np.int64], value: Any, where: NDArray[np.int64]) -> None:
    if isinstance(target, Mapping):
        for name, leaf in target.items():
            leaf[rows] = value[name][where]
    else:
        target[rows] = value[where]
