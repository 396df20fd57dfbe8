"""Schedules of update phases."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from storages.component.hyper_parameters import Count, CountOrZero
from storages.component.setting import Setting


class Collected(NamedTuple):
    """Counts before and after one step of all environments."""

    before: int
    """Environment transitions before the step."""
    after: int
    """Environment transitions after the step."""
    episodes_before: int
    """Episodes that ended since the last update phase, before the step."""
    episodes_after: int
    """Episodes that ended since the last update phase, after the step."""
    is_full: bool
    """Whether the main storage holds a complete rollout."""
    is_empty: bool
    """Whether the main storage cannot yield a batch yet."""


class Wait(NamedTuple):
    """Why no update phase is due, and what makes one due."""

    reason: str
    """A sentence."""
    waits_for: str
    """A noun phrase."""


class UpdatePlan(Setting, ABC):
    """Schedule of update phases."""

    @abstractmethod
    def phases_due(self, collected: Collected) -> int:
        """Return how many update phases are due after a step of the environments."""

    def explain_wait(self, collected: Collected, stored: int, capacity: int) -> Wait:
        """Return why no update phase is due.

        Args:
            collected: counts of the last step.
            stored: transitions in the main storage.
            capacity: transitions that fit.
        """
        return Wait(f"{self!r} makes no update phase due yet.", "steps after which it does")

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """Return the most consecutive steps that never make more than ``phases`` update phases due.

        Args:
            phases: number of update phases.
            num_envs: environments, each of which adds a transition per step.
            rollout_steps: steps after which a rollout storage is full.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not define steps_within, the number of steps between update phases, which "
            f"collecting during updates needs; define it"
        )


@dataclass(frozen=True)
class EveryTransitions(UpdatePlan):
    """An update phase after every ``number`` environment transitions.

    Args:
        number: of transitions between update phases.
        start: transitions before the first.
    """

    number: Count
    start: CountOrZero = 0

    def phases_due(self, collected: Collected) -> int:
        """Return how many multiples of ``number`` the step passed; 0 while no batch can be made."""
        if collected.is_empty:
            return 0
        done, had = (max(0, steps - self.start) // self.number for steps in (collected.after, collected.before))
        return done - had

    def explain_wait(self, collected: Collected, stored: int, capacity: int) -> Wait:
        """Return why no update phase is due: start steps, a storage without rows, or the interval."""
        made, start, number = collected.after, self.start, self.number
        if made < start:
            return Wait(
                f"Updates begin after start_steps={start:,} transitions, of which {made:,} are made.",
                f"{start + number - made:,} more transitions",
            )
        missing = start + number * ((made - start) // number + 1) - made
        if collected.is_empty:
            return Wait(
                "The storage holds no row from which a batch could be made.",
                "a complete row, such as the end of an episode where rows are episodes",
            )
        return Wait(f"An update phase is due every {number:,} transitions.", f"{missing:,} more transitions")

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """Return the steps that have at most ``phases * number`` transitions."""
        return phases * self.number // num_envs


@dataclass(frozen=True)
class EveryRollout(UpdatePlan):
    """An update phase whenever the storage is full."""

    def phases_due(self, collected: Collected) -> int:
        """Return 1 when the rollout is full."""
        return int(collected.is_full)

    def explain_wait(self, collected: Collected, stored: int, capacity: int) -> Wait:
        """Return how much of the rollout is missing."""
        return Wait(
            f"An update phase is due after each full rollout, which holds {stored:,} of {capacity:,} transitions.",
            f"{capacity - stored:,} more transitions",
        )

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """Return the steps of ``phases`` rollouts."""
        return phases * rollout_steps


@dataclass(frozen=True)
class EveryEpisodes(UpdatePlan):
    """An update phase after ``number`` episodes, or earlier if the rollout is full.

    Args:
        number: of episodes between update phases, over all environments.
    """

    number: Count

    def phases_due(self, collected: Collected) -> int:
        """Return 1 when enough episodes have ended since the last update phase."""
        return int(collected.is_full or (collected.episodes_after >= self.number and not collected.is_empty))

    def explain_wait(self, collected: Collected, stored: int, capacity: int) -> Wait:
        """Return how many episodes are missing."""
        ended = collected.episodes_after
        return Wait(
            f"An update phase is due after {self.number:,} episodes, of which {ended:,} have ended since the last one.",
            f"the end of {max(1, self.number - ended):,} more episodes",
        )

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """Return one step per phase, as the length of episodes is not known in advance."""
        return phases
