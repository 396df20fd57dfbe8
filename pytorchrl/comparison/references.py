"""Reference returns, which scores of several environments are normalised to 0 and 1 by."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from pytorchrl.logging.bootstrap import Floats

_FILE = Path(__file__).with_name("reference_returns.yaml")
_VERSION = re.compile(r"(NoFrameskip|Deterministic)?-v\d+$")
_OF_ATARI = "ALE/"
_SPAN = "smallest and largest return of the compared runs"


@dataclass(frozen=True)
class Reference:
    """The reference returns of an environment, and their source."""

    environment: str
    low: float
    high: float
    source: str

    def normalised(self, returns: Floats) -> Floats:
        """Scale returns so that the references are 0 and 1."""
        return (returns - self.low) / (self.high - self.low)


def check_references(given: Mapping[str, Sequence[float]]) -> None:
    """Check that the reference returns of each environment span a range, whether they are needed or not.

    Raises:
        ValueError: there are not two, the first is not below the second, or one is infinite.
    """
    for name, bounds in given.items():
        if len(bounds) != 2:
            raise ValueError(
                f"the references of {name} must be two returns, normalised to 0 and to 1, got {tuple(bounds)}"
            )
        low, high = bounds
        if not low < high:
            raise ValueError(f"the first reference of {name} must be below the second, got {low:g} and {high:g}")
        if math.isinf(low) or math.isinf(high):
            raise ValueError(f"the references of {name} must be finite, got {low:g} and {high:g}")


def reference_of(environment: str, given: Mapping[str, Sequence[float]], returns: Floats) -> Reference:
    """Return the reference returns of an environment: given ones, else known ones, else the range of returns.

    Args:
        environment: its id, with arguments or without.
        given: reference returns by environment.
        returns: of all runs that are compared.
    """
    name = environment.partition("(")[0]
    for key in (environment, name):
        if key in given:
            low, high = given[key]
            return Reference(environment, low, high, "given")
    known = known_reference(environment)
    if known is not None:
        return known
    low, high = float(returns.min()), float(returns.max())
    return Reference(environment, low, high if high > low else low + 1.0, _SPAN)


def known_reference(environment: str) -> Reference | None:
    """Return the reference returns of an environment in `reference_returns.yaml`; None where it has none.

    Args:
        environment: its id, with arguments or without; the version is ignored if the file names the id without one,
            and so is the namespace of Atari's games. Other namespaces have environments of their own.
    """
    name = environment.partition("(")[0]
    for key in (name, _VERSION.sub("", name.removeprefix(_OF_ATARI))):
        if key in _known():
            low, high, source = _known()[key]
            return Reference(environment, low, high, source)
    return None


@cache
def _known() -> dict[str, tuple[float, float, str]]:
    lists = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {name: (*bounds, of["source"]) for of in lists for name, bounds in of["environments"].items()}
