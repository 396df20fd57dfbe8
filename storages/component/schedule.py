"""Numbers that change over a run: a learning rate that falls, an exploration that fades.

A schedule stands wherever a hyper-parameter says so. It holds no state: its value follows from how far the run has
come, so a resumed run needs nothing but its step counter.
"""

from abc import abstractmethod
from dataclasses import dataclass

from storages.component.setting import Setting


class Schedule(Setting):
    """A number as a function of how far the run has come."""

    @abstractmethod
    def at(self, steps: int, target_steps: int) -> float:
        """The value after ``steps`` of the run's ``target_steps`` environment transitions."""

    @property
    @abstractmethod
    def extremes(self) -> tuple[float, ...]:
        """The smallest and the largest value it ever takes, to be held against a hyper-parameter's range."""


@dataclass(frozen=True)
class LinearSchedule(Schedule):
    """A straight line from ``initial`` to ``final``, and ``final`` from there on.

    Args:
        initial: value at the start of the run.
        final: value from the end of the line on.
        fraction: part of the run that the line takes, in (0, 1].
    """

    initial: float
    final: float
    fraction: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.fraction <= 1:
            raise ValueError(f"LinearSchedule: fraction must lie in (0, 1], got {self.fraction!r}")

    def at(self, steps: int, target_steps: int) -> float:
        """The value after ``steps`` of ``target_steps``."""
        progress = min(1.0, steps / max(1.0, self.fraction * target_steps))
        return self.initial + progress * (self.final - self.initial)

    @property
    def extremes(self) -> tuple[float, ...]:
        """Both ends of the line."""
        return (self.initial, self.final)


def value_at(value: float | Schedule, steps: int, target_steps: int) -> float:
    """What a hyper-parameter that may be a schedule is worth now."""
    # Asking whether it is of an abstract class takes much longer, and no number is one.
    return value if isinstance(value, (float, int)) else value.at(steps, target_steps)
