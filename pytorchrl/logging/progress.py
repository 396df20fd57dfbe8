"""A live display of a run in a terminal; nothing is shown where the output is not a terminal."""

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pytorchrl.terminal import TextConsole

_REFRESH_SECONDS = 0.25
_SPEED_WINDOW_SECONDS = 5.0
_WIDTH_OF_ONE_LINE = 80
_FIRST_GROUPS = ("train", "test", "losses")
_SHOWN_BESIDE_THE_BAR = frozenset({"steps", "seconds", "speed/steps_per_second"})
_GAP = "   "


class ProgressDisplay:
    """A bar of steps with speed and time left, above the latest metrics. Used as a context manager.

    Args:
        target_steps: where the bar ends.
        title: what is running.
        initial_steps: where a resumed run begins.
        unit: what steps are.
        console: where to draw; None takes the standard output.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        target_steps: int,
        title: str,
        initial_steps: int = 0,
        *,
        unit: str = "steps",
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # FORCE_COLOR and its like make rich take pipes for terminals; only the output itself knows.
        self._console = console or TextConsole(force_terminal=sys.stdout.isatty())
        self._clock = clock
        self._title = title
        self._unit = unit
        self._target_steps = target_steps
        self._initial_steps = self._steps = initial_steps
        self._metrics: Mapping[str, float] = {}
        self._started = clock()
        self._seen = deque([(self._started, initial_steps)])
        self._next_refresh = -math.inf
        self._live: Live | None = None

    def __enter__(self) -> "ProgressDisplay":
        # TTY_INTERACTIVE makes rich take even what is no terminal for interactive.
        if self._console.is_terminal and self._console.is_interactive:
            self._started = self._clock()
            self._seen = deque([(self._started, self._steps)])
            self._live = Live(self._render(), console=self._console, auto_refresh=False)
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._refresh(self._live, self._clock())
            self._live.stop()
            self._live = None

    def update(self, steps: int, metrics: Mapping[str, float] | None = None) -> None:
        """Set the progress of the run; it is drawn a few times per second at most.

        Args:
            steps: so far.
            metrics: the latest values, by their names in the log; None leaves those shown before.
        """
        if self._live is None:
            return
        self._steps = steps
        if metrics is not None:
            self._metrics = metrics
        now = self._clock()
        if now >= self._next_refresh or steps >= self._target_steps:
            self._next_refresh = now + _REFRESH_SECONDS
            self._refresh(self._live, now)

    def _refresh(self, live: Live, now: float) -> None:
        self._seen.append((now, self._steps))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _SPEED_WINDOW_SECONDS:
            self._seen.popleft()
        live.update(self._render(), refresh=True)

    def _render(self) -> RenderableType:
        width = self._console.width
        bar, status = ProgressBar(total=self._target_steps, completed=self._steps), self._status()
        head = Table.grid(expand=True, padding=(0, 2))
        head.add_column(ratio=1)
        if width >= _WIDTH_OF_ONE_LINE:
            head.add_column(no_wrap=True)
            head.add_row(bar, _line(status))
        else:
            head.add_row(bar)
            for entries in _filled(status, width):
                head.add_row(_line(entries))
        return Group(Text(self._title, style="bold", no_wrap=True, overflow="ellipsis"), head, self._table(width))

    def _status(self) -> list[str]:
        status = [f"{self._steps:,} / {self._target_steps:,} {self._unit}"]
        now, steps = self._seen[-1]
        done = steps >= self._target_steps
        then, steps_then = (self._started, self._initial_steps) if done else self._seen[0]
        if now > then and steps > steps_then:
            speed = (steps - steps_then) / (now - then)
            remaining = (
                f"took {_duration(now - then)}" if done else f"{_duration((self._target_steps - steps) / speed)} left"
            )
            status += [f"{_readable(speed)} {self._unit}/s", remaining]
        return status

    def _table(self, width: int) -> Table:
        """A row for each group of metrics, that of training first."""
        groups: dict[str, list[str]] = {group: [] for group in _FIRST_GROUPS}
        for path, value in self._metrics.items():
            if path not in _SHOWN_BESIDE_THE_BAR:
                group, _, name = path.rpartition("/")
                groups.setdefault(group or "other", []).append(f"{name.replace('_', ' ')} {_readable(value)}")
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True, style="dim")
        table.add_column(no_wrap=True)
        room = width - max(map(len, groups)) - 2
        for group, entries in groups.items():
            for number, line in enumerate(_filled(entries, room)):
                table.add_row(Text("" if number else group), _line(line))
        return table


def _line(entries: Iterable[str]) -> Text:
    return Text(_GAP.join(entries), no_wrap=True, overflow="ellipsis")


def _filled(entries: Iterable[str], width: int) -> list[list[str]]:
    """Fill lines of a width with entries; none is broken, so that a value stays beside its name."""
    lines: list[list[str]] = []
    for entry in entries:
        if lines and len(_GAP.join([*lines[-1], entry])) <= width:
            lines[-1].append(entry)
        else:
            lines.append([entry])
    return lines


def _readable(value: float) -> str:
    """Format a number with four significant digits, or without decimals from a thousand to a billion."""
    if math.isfinite(value) and 1_000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
