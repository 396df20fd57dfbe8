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

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """The most steps of ``num_envs`` environments in a row that never make more than so many phases due.

        Args:
            phases: of updates.
            num_envs: transitions of a step.
            rollout_steps: steps after which a storage of rollouts is full.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say how many steps lie between update phases, which collecting while "
            f"the learner updates has to know; define steps_within"
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
        """None as long as there is nothing to learn from."""
        if collected.is_empty:
            return 0
        done, had = (max(0, steps - self.start) // self.number for steps in (collected.after, collected.before))
        return done - had

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """As many as have no more transitions than lie between so many phases."""
        return phases * self.number // num_envs


@dataclass(frozen=True)
class EveryRollout(UpdatePlan):
    """An update phase when the storage is full."""

    def phases_due(self, collected: Collected) -> int:
        """One when the rollout is full."""
        return int(collected.is_full)

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """Those of as many rollouts."""
        return phases * rollout_steps


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

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """One for each: it is not known before how long episodes are."""
        return phases
