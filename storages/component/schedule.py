"""Schedules of hyper-parameters over a run, such as a learning rate or an exploration rate that decays.

A schedule can be given for every hyper-parameter whose annotation admits one. It is stateless: its value is a function
of the run's progress, so that a resumed run needs only its step counter.
"""

import bisect
import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from storages.component.annotations import Finite, Within
from storages.component.setting import Setting


class Schedule(Setting):
    """Base class of schedules: numbers as functions of the run's progress."""

    of_functions: ClassVar[str] = (
        "; LinearSchedule(initial, final) changes with the run's progress, FunctionSchedule(function, low, high) by a "
        "function of the part of the run that is over, from 0 to 1 (in stable-baselines3, of the part that is left)"
    )
    """Added to the error about a function in the place of a schedule."""

    @abstractmethod
    def at(self, steps: int, target_steps: int) -> float:
        """Return the value after ``steps`` of the run's ``target_steps`` environment transitions."""

    @property
    @abstractmethod
    def extremes(self) -> tuple[float, ...]:
        """The smallest and the largest value of the schedule, checked against a hyper-parameter's range."""


@dataclass(frozen=True)
class _BetweenTwoValues(Schedule):
    """From ``initial`` to ``final`` over a part of the run, and ``final`` from there on."""

    initial: Annotated[float, Finite()]
    final: Annotated[float, Finite()]
    fraction: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.fraction <= 1:
            raise ValueError(f"{type(self).__name__}: fraction must lie in (0, 1], got {self.fraction!r}")

    def at(self, steps: int, target_steps: int) -> float:
        """Return the value after ``steps`` of ``target_steps``."""
        progress = min(1.0, steps / max(1.0, self.fraction * target_steps))
        # Rounding must not leave the range that `extremes` states.
        low, high = sorted(self.extremes)
        return min(max(self._between(progress), low), high)

    @abstractmethod
    def _between(self, progress: float) -> float:
        """Return the value at a ``progress`` in [0, 1] from the initial to the final one."""

    @property
    def extremes(self) -> tuple[float, ...]:
        """The initial and the final value."""
        return (self.initial, self.final)


@dataclass(frozen=True)
class LinearSchedule(_BetweenTwoValues):
    """Linear from ``initial`` to ``final``, and ``final`` from there on.

    Args:
        initial: value at the start of the run.
        final: value from the end of the line on.
        fraction: part of the run that the line takes, in (0, 1].
    """

    def _between(self, progress: float) -> float:
        return self.initial + progress * (self.final - self.initial)


@dataclass(frozen=True)
class ExponentialSchedule(_BetweenTwoValues):
    """Exponential from ``initial`` to ``final``, by a constant factor per step, and ``final`` from there on.

    Args:
        initial: value at the start of the run, greater than 0.
        final: value from the end of the curve on, greater than 0.
        fraction: part of the run that the curve takes, in (0, 1].
        below_one: let the distance to 1 change by a constant factor, as of a discount factor, instead of that to 0;
            both values are less than 1.

    Raises:
        ValueError: a value is not less than 1 with ``below_one``.
    """

    initial: Annotated[float, Finite(), Within(0, open=True)]
    final: Annotated[float, Finite(), Within(0, open=True)]
    below_one: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.below_one and max(self.initial, self.final) >= 1:
            raise ValueError(
                f"ExponentialSchedule: with below_one, initial and final must be less than 1, got {self.initial:g} and "
                f"{self.final:g}"
            )

    def _between(self, progress: float) -> float:
        if self.below_one:
            return 1 - _geometric(1 - self.initial, 1 - self.final, progress)
        return _geometric(self.initial, self.final, progress)


def _geometric(initial: float, final: float, progress: float) -> float:
    """Return the value between two positive ones at a progress in [0, 1], by a constant factor per step."""
    # Not as a power of their ratio, which may overflow.
    return math.exp((1 - progress) * math.log(initial) + progress * math.log(final))


@dataclass(frozen=True)
class CosineSchedule(_BetweenTwoValues):
    """Cosine annealing from ``initial`` to ``final``, over half a period, and ``final`` from there on.

    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts" (arXiv 1608.03983), equation 5,
    without restarts, which :class:`RepeatedSchedule` adds.

    Args:
        initial: value at the start of the run.
        final: value from the end of the curve on.
        fraction: part of the run that the curve takes, in (0, 1].
    """

    def _between(self, progress: float) -> float:
        share = (1 - math.cos(math.pi * progress)) / 2
        return (1 - share) * self.initial + share * self.final


@dataclass(frozen=True)
class PiecewiseSchedule(Schedule):
    """Linear interpolation between points, constant before the first and after the last one.

    Args:
        points: pairs of a position in the run and the value there, positions increasing.
        positions: unit of positions: ``"progress"``, the part of the run, in [0, 1], or ``"steps"``, environment
            transitions.

    Raises:
        ValueError: there is no point, a value is not finite, or positions do not increase or lie outside the run.
    """

    points: tuple[tuple[float, ...], ...]
    positions: Literal["progress", "steps"] = "progress"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.points or any(len(point) != 2 for point in self.points):
            raise ValueError(f"PiecewiseSchedule: points must be pairs of a position and a value, got {self.points!r}")
        reached = [position for position, _ in self.points]
        if not all(before < after for before, after in itertools.pairwise(reached)):
            raise ValueError(f"PiecewiseSchedule: the positions of points must rise, got {reached}")
        last = 1.0 if self.positions == "progress" else math.inf
        if not (reached[0] >= 0 and reached[-1] <= last):
            must = "lie in [0, 1]; positions='steps' counts transitions" if last == 1 else "be at least 0"
            raise ValueError(f"PiecewiseSchedule: the positions of points must {must}, got {reached}")
        values = [value for _, value in self.points]
        if not all(map(math.isfinite, values)):
            raise ValueError(f"PiecewiseSchedule: the values of points must be finite, got {values}")

    def at(self, steps: int, target_steps: int) -> float:
        """Return the value after ``steps`` of ``target_steps``."""
        position = float(steps) if self.positions == "steps" else steps / max(1, target_steps)
        after = bisect.bisect_right(self.points, position, key=lambda point: point[0])
        if after in (0, len(self.points)):
            return self.points[max(0, after - 1)][1]
        (left, initial), (right, final) = self.points[after - 1 : after + 1]
        share = (position - left) / (right - left)
        return min(max((1 - share) * initial + share * final, min(initial, final)), max(initial, final))

    @property
    def extremes(self) -> tuple[float, ...]:
        """The smallest and the largest value of all points."""
        values = [value for _, value in self.points]
        return (min(values), max(values))


@dataclass(frozen=True)
class RepeatedSchedule(Schedule):
    """Another schedule again and again, each time as if a run of ``every`` transitions began.

    It is that of annealing after each reset of the networks (Schwarzer et al., BBF, arXiv 2305.19452), and of warm
    restarts of a learning rate (Loshchilov and Hutter, arXiv 1608.03983).

    Args:
        schedule: within each repetition.
        every: environment transitions of a repetition.
        after: transitions before the first one begins; until then it has its first value.
    """

    schedule: Schedule
    every: Annotated[int, Within(1)]
    after: Annotated[int, Within(0)] = 0

    def at(self, steps: int, target_steps: int) -> float:
        """Return the value after ``steps``."""
        return self.schedule.at(max(0, steps - self.after) % self.every, self.every)

    @property
    def extremes(self) -> tuple[float, ...]:
        """Those of the schedule that is repeated."""
        return self.schedule.extremes


@dataclass(frozen=True)
class FunctionSchedule(Schedule):
    """An arbitrary function of the run's progress.

    A function cannot be serialised: a run is resumed with the script that defines it.

    Args:
        function: maps the part of the run that is over, in [0, 1], to the value.
        low: the smallest value of the function.
        high: the largest value of the function.

    Raises:
        ValueError: ``low`` is greater than ``high``.
    """

    function: Callable[[float], float]
    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low <= self.high:
            raise ValueError(f"FunctionSchedule: low must not be greater than high={self.high}, got {self.low}")

    def at(self, steps: int, target_steps: int) -> float:
        """Return the value after ``steps`` of ``target_steps``.

        Raises:
            ValueError: the function returns a value outside [low, high].
        """
        progress = min(1.0, steps / max(1, target_steps))
        value = float(self.function(progress))
        if not self.low <= value <= self.high:
            raise ValueError(
                f"FunctionSchedule: the function's values must lie in [low, high] = [{self.low:g}, {self.high:g}], got "
                f"{value!r} at a progress of {progress:g}; widen the range or change the function"
            )
        return value

    @property
    def extremes(self) -> tuple[float, ...]:
        """The bounds ``low`` and ``high``."""
        return (self.low, self.high)


def value_at(value: float | Schedule, steps: int, target_steps: int) -> float:
    """Return the current value of a hyper-parameter that may be a schedule.

    Raises:
        TypeError: a name was given.
    """
    # isinstance() with an abstract class takes much longer.
    if isinstance(value, (float, int)):
        return value
    if isinstance(value, str):
        raise TypeError(f"the value of a hyper-parameter is needed, such as self.{value}, not its name {value!r}")
    return value.at(steps, target_steps)
