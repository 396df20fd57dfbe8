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


class UpdatePlan(Setting, ABC):
    """Schedule of update phases."""

    @abstractmethod
    def phases_due(self, collected: Collected) -> int:
        """Return how many update phases are due after a step of the environments."""

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

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """Return the steps that have at most ``phases * number`` transitions."""
        return phases * self.number // num_envs


@dataclass(frozen=True)
class EveryRollout(UpdatePlan):
    """An update phase whenever the storage is full."""

    def phases_due(self, collected: Collected) -> int:
        """Return 1 when the rollout is full."""
        return int(collected.is_full)

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

    def steps_within(self, phases: int, num_envs: int, rollout_steps: int) -> int:
        """Return one step per phase, as the length of episodes is not known in advance."""
        return phases
