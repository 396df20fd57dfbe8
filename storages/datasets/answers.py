"""What a user says about a file that does not say it itself: names, ends of episodes, rewards, first actions."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal, TypeAlias

from storages.errors import DatasetError

Ends: TypeAlias = Literal["unknown", "terminated", "truncated"]
"""How episodes ended, for files that do not distinguish termination from truncation."""
NONE = "none"
"""In place of the name of an array: there is none, and the user knows."""


@dataclass(frozen=True)
class FlatNames:
    """The names of the arrays (N, ...) of N steps in a file.

    Several arrays, such as the columns of a table, are one if their names are joined by commas: ``"x,v,angle"``.

    Args:
        observations: the observation before each step.
        actions: the action of each step.
        rewards: the reward of each step; None for a file without rewards, whose rewards are read as 0.
        terminals: true where the environment terminated an episode.
        timeouts: true where a time limit truncated an episode.
        episode_starts: true at the first step of an episode.
        next_observations: the observation after each step.
        episode_ends: true at the last step of an episode, whatever ended it.
        last_rows: true at rows that hold only the final observation of an episode, and no step.
        episode: a number or a text for each episode, the same at all of its steps.
        log_probabilities: the logarithm of the probability, or density, with which the policy that made the data took
            its action (N,); it becomes the field LOGP.
        probabilities: the probabilities of all n actions of a discrete space under that policy (N, n), in the order of
            their numbers, or that of the action taken (N,); they become the field ACTPROBS. Columns that are named
            after the texts of actions are ordered by these.
        step: a number that grows by the same amount from each step of an episode to the next, such as that of a week;
            an episode is cut where it does not.
    """

    observations: str = "observations"
    actions: str = "actions"
    rewards: str | None = "rewards"
    terminals: str | None = None
    timeouts: str | None = None
    episode_starts: str | None = None
    next_observations: str | None = None
    episode_ends: str | None = None
    last_rows: str | None = None
    episode: str | None = None
    log_probabilities: str | None = None
    probabilities: str | None = None
    step: str | None = None

    def named(self) -> dict[str, str]:
        """Return the names that are not None, by argument name."""
        return {key: name for key, name in asdict(self).items() if name is not None}


@dataclass(frozen=True)
class Answers:
    """What the user says about a file; None where nothing is said.

    Args:
        names: the names of flat arrays.
        ends: how episodes ended, if no array distinguishes termination from truncation.
        timeouts: name of the array that is true where a time limit ended an episode; "none" if none ever did.
        max_episode_steps: a time limit: an episode of so many steps ended by it, unless it terminated.
        episode: name of the array with a number or a text for each episode.
        rewards: name of the array of rewards; "none" for a file without any, whose rewards are read as 0.
        first_action: the number of the first choice of discrete actions, which are counted from 0 elsewhere.
        leave_out: names of parts of the observations that are not read.
        action_names: names of discrete actions, in the order of their numbers, which are texts in the file or numbers.

    Raises:
        DatasetError: a number is not valid.
    """

    names: FlatNames | None = None
    ends: Ends | None = None
    timeouts: str | None = None
    max_episode_steps: int | None = None
    episode: str | None = None
    rewards: str | None = None
    first_action: int | None = None
    leave_out: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ends not in (None, "unknown", "terminated", "truncated"):
            raise DatasetError(f"ends must be unknown, terminated or truncated, got {self.ends!r}")
        if self.max_episode_steps is not None and self.max_episode_steps < 1:
            raise DatasetError(f"max_episode_steps must be at least 1, got {self.max_episode_steps}")

    @property
    def are_ends_given(self) -> bool:
        """Whether something is said about where episodes ended without terminating."""
        return not (self.timeouts is None and self.max_episode_steps is None and self.episode is None)

    def refuse_others(self, path: Path, layout: str, used: Collection[str]) -> None:
        """Refuse what a layout does not ask for, instead of ignoring it.

        Args:
            path: the file.
            layout: its description, for the error.
            used: what the layout may ask for.

        Raises:
            DatasetError: something else was said.
        """
        said = [field.name for field in fields(self) if getattr(self, field.name) not in (None, ())]
        if needless := [name for name in said if name not in used]:
            raise DatasetError(
                f"{path} is {layout}, to which {', '.join(f'{name}=' for name in needless)} does not apply; "
                f"leave it out"
            )
