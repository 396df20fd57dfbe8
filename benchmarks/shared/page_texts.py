"""Lines and numbers of the pages that benchmarks write."""

import statistics
import textwrap
from collections.abc import Sequence


def paragraphs(text: str) -> list[str]:
    """Wrap a text at 120 characters, between words."""
    return textwrap.fill(text, 120, break_on_hyphens=False).split("\n")


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean of at least two values."""
    return float(statistics.stdev(values) / len(values) ** 0.5)
