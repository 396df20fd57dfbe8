"""Time the same work of several libraries in turn, so that changes of the machine's load affect all alike."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.table import Table

_WARM_UP_CALLS = 5
"""Before each block, since the caches still hold the data of the previous library."""


@dataclass(frozen=True)
class Target:
    """The speed that our library, the first row of a contest, has to reach."""

    at_least: float
    """Speed relative to the other row; below 1 where ours may be slower."""
    other: str | None = None
    """The name of the other row; None for the fastest peer."""


@dataclass
class Contest:
    """Microseconds per call of the same work, by library: ours first, one entry per repetition.

    Args:
        title: what the work is.
        microseconds: a row's name, and its times.
        peers: names of the rows that ours is compared with.
        targets: speeds that ours has to reach.
    """

    title: str
    microseconds: dict[str, list[float]]
    peers: list[str]
    targets: tuple[Target, ...] = ()

    @property
    def ours(self) -> str:
        """The name of our row."""
        return next(iter(self.microseconds))

    @property
    def fastest_peer(self) -> str | None:
        """The name of the peer whose median is the smallest, if there is any."""
        return min(self.peers, key=self.median, default=None)

    def median(self, name: str) -> float:
        """Return the median microseconds per call of a row."""
        return statistics.median(self.microseconds[name])

    def speed(self, name: str, other: str) -> float:
        """Return the speed of a row relative to another: the median of the ratios of neighbouring repetitions."""
        pairs = zip(self.microseconds[name], self.microseconds[other], strict=True)
        return statistics.median(theirs / ours for ours, theirs in pairs)

    def reached(self, target: Target) -> float | None:
        """Return our speed relative to the other row of a target; None where there is no such row."""
        other = target.other or self.fastest_peer
        return self.speed(self.ours, other) if other in self.microseconds else None

    def table(self) -> Table:
        """Return a row for each library, with our targets below."""
        fastest = self.fastest_peer
        table = Table(title=self.title, title_justify="left", caption=self._verdicts(), caption_justify="left")
        table.add_column("", no_wrap=True)
        for heading in ("microseconds", "lowest to highest", "times as fast as the fastest peer"):
            table.add_column(heading, justify="right")
        for name, times in self.microseconds.items():
            table.add_row(
                name,
                f"{self.median(name):,.1f}",
                f"{min(times):,.1f} to {max(times):,.1f}",
                f"{self.speed(name, fastest):.2f}x" if fastest else "",
            )
        return table

    def figures(self) -> dict[str, object]:
        """Return all figures, for a file."""
        return {
            "microseconds": self.microseconds,
            "fastest_peer": self.fastest_peer,
            "targets": [
                {"beside": target.other or self.fastest_peer, "at_least": target.at_least, "reached": reached}
                | {"met": None if reached is None else reached >= target.at_least}
                for target in self.targets
                for reached in (self.reached(target),)
            ],
        }

    def _verdicts(self) -> str:
        verdicts = []
        for target in self.targets:
            other, reached = target.other or self.fastest_peer or "any peer", self.reached(target)
            goal = (
                f"at least {target.at_least:g}x as fast as {other}"
                if target.at_least >= 1
                else f"at most {1 / target.at_least:g}x the time of {other}"
            )
            if reached is None:
                verdicts.append(f"target: {goal}: not measured")
            else:
                figure = f"{reached:.2f}x as fast" if target.at_least >= 1 else f"{1 / reached:.2f}x the time"
                verdicts.append(f"target: {goal}: {figure}, {'met' if reached >= target.at_least else 'NOT MET'}")
        return "\n".join(verdicts)


def measure(work: Mapping[str, Callable[[], object]], repetitions: int, calls: int) -> dict[str, list[float]]:
    """Return the microseconds per call of each work, timed in alternating blocks of ``calls`` calls."""
    microseconds: dict[str, list[float]] = {name: [] for name in work}
    for call in work.values():
        call()
    for _ in range(repetitions):
        gc.collect()
        for name, call in work.items():
            microseconds[name].append(_microseconds(call, calls))
    return microseconds


def _microseconds(call: Callable[[], object], calls: int) -> float:
    for _ in range(_WARM_UP_CALLS):
        call()
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls * 1e6
