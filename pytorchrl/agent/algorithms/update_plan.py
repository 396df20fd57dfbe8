"""When update phases are due."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from storages.component.hyper_parameters import Count, CountOrZero
from storages.component.setting import Setting


class Collected(NamedTuple):
    """What one step of the environments added."""

    before: int
    """Environment transitions before it."""
    after: int
    """Environment transitions after it."""
    episodes_before: int
    """Episodes that had ended since the last update phase, before it."""
    episodes_after: int
    """Episodes that have ended since the last update phase, after it."""
    is_full: bool
    """Whether the main storage holds a whole rollout, so that nothing more fits."""
    is_empty: bool
    """Whether the main storage has nothing to learn from yet."""


class UpdatePlan(Setting, ABC):
    """When update phases are due."""

    @abstractmethod
    def phases_due(self, collected: Collected) -> int:
        """How many update phases are due after a step of the environments."""


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
        """None as long as there is nothing to learn from."""
        if collected.is_empty:
            return 0
        done, had = (max(0, steps - self.start) // self.number for steps in (collected.after, collected.before))
        return done - had


@dataclass(frozen=True)
class EveryRollout(UpdatePlan):
    """An update phase when the storage is full."""

    def phases_due(self, collected: Collected) -> int:
        """One when the rollout is full."""
        return int(collected.is_full)


@dataclass(frozen=True)
class EveryEpisodes(UpdatePlan):
    """An update phase after ``number`` episodes, or when a rollout is full before.

    Args:
        number: of episodes between update phases, of all environments together.
    """

    number: Count

    def phases_due(self, collected: Collected) -> int:
        """One when enough episodes have ended since the last update phase."""
        return int(collected.is_full or (collected.episodes_after >= self.number and not collected.is_empty))
