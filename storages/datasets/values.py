"""Values of episodes that cannot be right: NaN, actions outside of their space, impossible probabilities."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import text
from storages.datasets.dataset import Space, arrays_of
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import ACT, ACTPROBS, LOGP, OBS, REW, Array

Place: TypeAlias = Callable[[int, int], str]
"""Returns the name of a place from the number of an episode and that of its step."""
_CHECKED = (OBS, ACT, REW)
_ROUNDING = 1e-4
"""How far a probability may be above 1."""


def step_of_episode(number: int, step: int) -> str:
    """Return the name of a step, both counted from 0."""
    return f"step {step} of episode {number}"


def with_possible_values(
    episodes: Iterable[Episode],
    action_space: Space | None = None,
    *,
    allow_nonfinite: bool = False,
    place: Place = step_of_episode,
) -> Iterator[Episode]:
    """Yield the episodes, whose values must be possible.

    Args:
        episodes: the episodes.
        action_space: of the actions, which are counted from 0 here if it is Discrete or MultiDiscrete; None if unknown.
        allow_nonfinite: whether observations, actions and rewards may hold NaN and infinity.
        place: names the place of a value in errors.

    Raises:
        DatasetError: a number is NaN or infinite, an action is not in a Discrete, MultiDiscrete or MultiBinary space,
            or was taken with a probability of zero or above 1; the text names its place.
    """
    for number, episode in enumerate(episodes):
        if ACT not in episode.fields or not len(episode):
            # Refused, or left out, where it is written.
            yield episode
            continue
        if not allow_nonfinite:
            refuse_nonfinite(episode, number, place, "; correct it, or leave the episode out")
        step, what = _wrong_action(np.asarray(episode.fields[ACT]), action_space)
        if what:
            raise DatasetError(f"{what} in {place(number, step)}; {_said_of(action_space)}")
        step, what = _impossible_action(episode, discrete_choices(action_space) is not None)
        if what:
            raise DatasetError(f"{what} in {place(number, step)}; correct it, or leave the probabilities out")
        yield episode


def refuse_nonfinite(episode: Episode, number: int, place: Place, way_out: str) -> None:
    """Refuse NaN and infinity in observations, actions and rewards.

    Args:
        episode: the episode.
        number: of the episode.
        place: names the place of a value.
        way_out: the end of the error.

    Raises:
        DatasetError: there is one.
    """
    for path, array in arrays_of(episode).items():
        if path[0] not in _CHECKED or array.dtype.kind != "f":
            continue
        wrong = ~np.isfinite(array.reshape(len(array), -1))
        if wrong.any():
            step, component = (int(axis[0]) for axis in np.nonzero(wrong))
            of = f"[{component}]" if wrong.shape[1] > 1 else ""
            value = array.reshape(len(array), -1)[step, component]
            is_final = step == len(episode)
            where = f"the observation after {place(number, step - 1)}" if is_final else place(number, step)
            raise DatasetError(f"{text(path)}{of} is {value} in {where}{way_out}")


def discrete_choices(space: Space | None) -> NDArray[np.int64] | None:
    """Return the number of choices of each component of an action; None of a space without choices, or unknown."""
    kind = None if space is None else space["type"]
    if space is None or kind not in ("Discrete", "MultiDiscrete", "MultiBinary"):
        return None
    if kind == "MultiBinary":
        return np.full(space["n"], 2)
    return np.array([space["n"]]) if kind == "Discrete" else np.asarray(space["nvec"], np.int64)


def _wrong_action(actions: Array, space: Space | None) -> tuple[int, str]:
    """Return the first step whose action is none of a space of choices, and what it is; "" if there is none."""
    choices = discrete_choices(space)
    # Arrays of other shapes are refused where they are used.
    if choices is None or actions.shape[1:] != choices.shape:
        return 0, ""
    outside = (actions < 0) | (actions >= choices) | (actions != np.floor(actions))
    wrong = outside.reshape(len(actions), -1).any(1)
    if not wrong.any():
        return 0, ""
    step = int(wrong.argmax())
    value = f"{actions[step].item():g}" if actions[step].size == 1 else actions[step].tolist()
    return step, f"{ACT} is {value}"


def _said_of(space: Space | None) -> str:
    """Return which actions a space of choices has."""
    choices, kind = discrete_choices(space), "" if space is None else space["type"]
    number = "" if choices is None else choices.item() if choices.size == 1 else choices.tolist()
    return f"those of a {kind} space are counted from 0, and it has {number} choices"


def _impossible_action(episode: Episode, is_discrete: bool) -> tuple[int, str]:
    """Return the first step whose action has an impossible probability, and what is wrong; "" if there is none.

    An action that was taken has none of 0, and a discrete one none above 1, as densities may be.
    """
    for name in (LOGP, ACTPROBS):
        if name not in episode.fields:
            continue
        of_taken, are_logarithms = probabilities_of_taken(episode, name)
        wrong = ~(np.isfinite(of_taken) if are_logarithms else of_taken > 0)
        if is_discrete:
            wrong |= of_taken > (_ROUNDING if are_logarithms else 1 + _ROUNDING)
        if wrong.any():
            step = int(wrong.argmax())
            return step, f"{name} gives the action taken the {'logarithm' if are_logarithms else 'probability'} " + (
                f"{of_taken[step]:g}"
            )
    return 0, ""


def probabilities_of_taken(episode: Episode, name: str) -> tuple[NDArray[np.float64], bool]:
    """Return the stored probabilities of the actions taken (L,), and whether they are logarithms.

    Args:
        episode: the episode.
        name: the field, LOGP or ACTPROBS; the latter may hold logarithms as well, and numbers of all actions (L, n).
    """
    stored = np.asarray(episode.fields[name], np.float64).reshape(len(episode), -1)
    of_taken = stored
    if stored.shape[1] > 1:
        taken = np.asarray(episode.fields[ACT]).reshape(len(episode), -1)[:, :1].astype(np.int64)
        of_taken = np.take_along_axis(stored, taken, 1)
    are_logarithms = bool(name == LOGP or (stored < 0).any() or (stored == 0).all())
    return of_taken[:, 0], are_logarithms
