"""Names by which libraries call the arrays of steps, and arrays that look like flags."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from storages.datasets.answers import NONE, Answers, FlatNames
from storages.errors import AmbiguousDataError, DatasetError
from storages.transition import ACTPROBS, LOGP

D4RL = FlatNames(terminals="terminals", timeouts="timeouts", next_observations="next_observations")
D3RLPY = FlatNames(terminals="terminals", episode_ends="episode_terminals")
STABLE_BASELINES3 = FlatNames(observations="obs", episode_starts="episode_starts")
RLDS = FlatNames("observation", "action", "reward", terminals="is_terminal", last_rows="is_last")
KNOWN: Mapping[str, tuple[str, ...]] = {
    "observations": ("observations", "observation", "obs", "states", "state"),
    "actions": ("actions", "action", "acts"),
    "rewards": ("rewards", "reward", "rews", "next.reward"),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states", "next_state"),
    "terminals": ("terminals", "terminal", "terminations", "termination", "terminated", "is_terminal"),
    "timeouts": ("timeouts", "timeout", "truncations", "truncation", "truncated"),
    "episode_starts": ("episode_starts", "episode_start", "is_first"),
    "episode_ends": ("episode_terminals", "episode_ends", "next.done"),
    "last_rows": ("is_last",),
    "episode": ("episode", "episode_id", "episode_ids", "episode_index", "traj_id", "trajectory_id"),
    "log_probabilities": (LOGP, "log_probabilities", "log_probability", "log_probs", "log_prob", "logp"),
    "probabilities": (ACTPROBS, "action_probabilities", "action_probs"),
}
"""Names that are recognised, by argument name of :class:`FlatNames`."""
PROBABILITIES = {"log_probabilities": LOGP, "probabilities": ACTPROBS}
"""Fields of a transition with the probabilities of actions, by argument name of :class:`FlatNames`."""
DONES = ("dones", "done")
"""Names of flags of which it depends on the library whether they are true at time limits."""
_ONE_OF_SEVERAL = frozenset(
    {"observations", "actions", "rewards", "episode", "next_observations", "log_probabilities", "probabilities"}
)
"""Roles of which the first name is taken where a file has several; two flags of one role may contradict each other."""
_LIKE_A_FLAG = re.compile(
    r"done|termin|trunc|time.?out|(^|[^a-z])(end|last|first|start|final|limit|reset|absorb)|finish|episode|traj", re.I
)


def recognise_names(arrays: Iterable[str], path: Path) -> FlatNames | None:
    """Recognise the names of known libraries; None if those of observations or actions are unknown.

    ``rewards`` is None where there are none.

    Raises:
        AmbiguousDataError: two names stand for the same flag.
    """
    there = set(arrays)
    found: dict[str, str | None] = {}
    for role, names in KNOWN.items():
        of_role = [name for name in names if name in there]
        if len(of_role) > 1 and role not in _ONE_OF_SEVERAL:
            raise AmbiguousDataError(
                f"{path} has {' and '.join(of_role)}, which both may be its {role}; choose one: "
                f"names=FlatNames(..., {role}={of_role[0]!r}), or --names in commands"
            )
        found[role] = of_role[0] if of_role else None
    if found["observations"] is None or found["actions"] is None:
        return None
    if found["terminals"] is None and found["episode_starts"] is None:
        # `is_last` alone may as well mark a last step.
        found["last_rows"] = None
    return FlatNames(**found)  # type: ignore[arg-type]


def names_in(arrays: Mapping[str, Any], answers: Answers, path: Path) -> FlatNames:
    """Return the names that the user gives, or those of known libraries in a file.

    Raises:
        AmbiguousDataError: the names are unknown, or there are no rewards.
        DatasetError: an array that the user names is missing.
    """
    names = answers.names or recognise_names(arrays, path)
    if names is None:
        raise AmbiguousDataError(
            f"{path} has arrays of unknown names, {', '.join(arrays)}; specify their meaning: "
            f"names=FlatNames(observations=..., actions=..., rewards=..., terminals=..., ...), or --names in commands"
            f"{_describe_flags(flags_in(arrays, ()))}{HOW_TO_ANSWER}"
        )
    if answers.rewards is not None:
        names = replace(names, rewards=None if answers.rewards == NONE else answers.rewards)
    elif names.rewards is None and answers.names is None:
        raise AmbiguousDataError(f"{path} has no array of a known name for {NO_REWARDS}; it has {', '.join(arrays)}")
    if answers.names is not None:
        # The names of fields of a transition mean one thing only.
        names = replace(
            names,
            log_probabilities=names.log_probabilities or (LOGP if LOGP in arrays else None),
            probabilities=names.probabilities or (ACTPROBS if ACTPROBS in arrays else None),
        )
    if answers.timeouts not in (None, NONE):
        names = replace(names, timeouts=answers.timeouts)
    return names if answers.episode is None else replace(names, episode=answers.episode)


def with_dones(names: FlatNames, arrays: Mapping[str, Any], answers: Answers) -> FlatNames:
    """Add flags called ``dones`` to names that were recognised, where it follows what they mean.

    Beside terminals they are true at all ends; where time limits are known, all other ends are terminations. Alone
    they are not used: libraries differ in whether they are true at time limits.
    """
    done = next((name for name in DONES if name in arrays), None)
    if answers.names is not None or done is None or names.last_rows is not None or names.episode_ends is not None:
        return names
    is_clear = names.terminals is not None or knows_limits(names, answers)
    return replace(names, episode_ends=done) if is_clear else names


def knows_limits(names: FlatNames, answers: Answers) -> bool:
    """Whether the time limits are known that ended episodes, so that all other ends are terminations."""
    return names.timeouts is not None or answers.timeouts == NONE or answers.max_episode_steps is not None


def flags_in(arrays: Mapping[str, Any], used: Iterable[str], rows: int | None = None) -> list[str]:
    """Return names of arrays that are not used, and look like flags: by their name, or as they are booleans.

    Args:
        arrays: all arrays of the file by name.
        used: names of those that are used.
        rows: number of steps, which flags have as well; None if it is unknown.
    """
    taken = {part for name in used for part in (name, *name.split(","))}
    return [name for name in arrays if name not in taken and _looks_like_flags(name, arrays, rows)]


def unused_in(arrays: Mapping[str, Any], used: Iterable[str]) -> list[str]:
    """Return the names of arrays that are not used, with those of columns that cannot be read.

    Args:
        arrays: all arrays of the file by name.
        used: names of those that are used; names joined by commas are several.
    """
    taken = {part.strip() for name in used for part in ((name,) if name in arrays else name.split(","))}
    columns_of = getattr(arrays, "columns_of", lambda name: [name])
    columns = {column for name in taken for column in columns_of(name)}
    there = dict.fromkeys([*(column for name in arrays for column in columns_of(name)), *getattr(arrays, "unread", ())])
    return [column for column in there if column not in columns]


def refuse_unclear(path: Path, missing: str, flags: Iterable[str]) -> NoReturn:
    """Refuse a file that leaves open where its episodes end.

    Args:
        path: the file.
        missing: what it lacks, and what answers.
        flags: names of arrays that look like flags.

    Raises:
        AmbiguousDataError: always.
    """
    raise AmbiguousDataError(f"{path} does not say where episodes ended, {missing}{_describe_flags(flags)}")


def refuse_unknown_end(path: Path, flags: Iterable[str]) -> NoReturn:
    """Refuse a file with flags of unknown names that may say how its episodes ended.

    Raises:
        AmbiguousDataError: always.
    """
    raise AmbiguousDataError(
        f"{path} does not say whether episodes terminated or were truncated{_describe_flags(flags)}; answer by "
        f"names=FlatNames(..., terminals=...) or ends= (terminated, truncated, unknown), in commands --names or --ends"
    )


NO_REWARDS = "rewards; name it by rewards=, or read it with rewards of 0 by rewards='none' (in commands --rewards)"
HOW_TO_ANSWER = (
    "; answer by timeouts= (the array that is true there, or 'none'), max_episode_steps= or episode= (an array with a "
    "number for each episode), in commands --timeouts, --max-episode-steps or --episode"
)


def _describe_flags(flags: Iterable[str]) -> str:
    named = ", ".join(flags)
    return f"; {named} may be flags, and of these it is not known what they mean" if named else ""


def _looks_like_flags(name: str, arrays: Mapping[str, Any], rows: int | None) -> bool:
    if "success" in name.lower():
        # That the task is solved says nothing of the end.
        return False
    if _LIKE_A_FLAG.search(name) is None and not getattr(arrays, "is_boolean", lambda _: False)(name):
        return False
    try:
        array = arrays[name]
    except DatasetError:
        return False
    shape: tuple[int, ...] = getattr(array, "shape", ())
    return len(shape) > 0 and math.prod(shape) == shape[0] == (shape[0] if rows is None else rows)
