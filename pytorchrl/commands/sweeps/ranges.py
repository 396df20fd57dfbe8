"""Ranges of numbers, as the command line writes them."""

from dataclasses import dataclass

from pytorchrl.scheme.compatibility import CompositionError


@dataclass(frozen=True)
class Range:
    """A closed interval of numbers: ``1e-5..1e-2:log``, ``16..256``."""

    low: float
    high: float
    log: bool

    @property
    def is_whole(self) -> bool:
        """Whether it is a range of integers."""
        return isinstance(self.low, int)


def range_of(text: str) -> Range | None:
    """Parse a range; return None where the text is none.

    Raises:
        CompositionError: its ends are no numbers, or do not fit.
    """
    if ".." not in text:
        return None
    numbers, colon, scale = text.partition(":")
    try:
        ends = [_number(end) for end in numbers.split("..", 1)]
    except ValueError:
        raise CompositionError(f"{text!r} is no range of numbers, such as 1e-5..1e-2:log or 16..256") from None
    low, high = ends if all(isinstance(end, int) for end in ends) else map(float, ends)
    if not low < high or (colon and scale != "log") or (scale == "log" and low <= 0):
        raise CompositionError(
            f"{text!r} must go from a smaller number to a larger one, both above 0 with :log, such as 1e-5..1e-2:log"
        )
    return Range(low, high, scale == "log")


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)
