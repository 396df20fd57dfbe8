"""The progress of a run: a live display in a terminal, and a line now and then where the output is no terminal."""

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
_SECONDS_BETWEEN_LINES = 60.0
_LINES = 10
"""Lines of a run that takes no longer than as many minutes."""
_SPEED_WINDOW_SECONDS = 5.0
_WIDTH_OF_ONE_LINE = 80
_FIRST_GROUPS = ("train", "test", "losses")
_SHOWN_BESIDE_THE_BAR = frozenset({"steps", "seconds", "speed/steps_per_second"})
_GAP = "   "
_RETURNS = {"test/return": "test return", "train/return": "training return"}
"""The return that lines show, with its best, is the first of them that there is."""


class ProgressDisplay:
    """A bar of steps with speed and time left, above the latest metrics. Used as a context manager.

    Where the output is no terminal, a line with steps, test return (or that of training) and its best, speed and time
    left is printed each minute, and after each tenth of the run.

    Args:
        target_steps: where the bar ends.
        title: what is running.
        initial_steps: where a resumed run begins.
        unit: what steps are.
        best_return: largest mean return of the evaluations before a resume.
        is_shown: False shows nothing at all.
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
        best_return: float = -math.inf,
        is_shown: bool = True,
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
        self._next_line_at = self._next_tenth()
        self._best = {"test/return": best_return}
        self._is_shown, self._prints_lines = is_shown, False
        self._live: Live | None = None

    def __enter__(self) -> "ProgressDisplay":
        if not self._is_shown:
            return self
        self._started = self._clock()
        self._seen = deque([(self._started, self._steps)])
        # TTY_INTERACTIVE makes rich take even what is no terminal for interactive.
        if self._console.is_terminal and self._console.is_interactive:
            self._live = Live(self._render(), console=self._console, auto_refresh=False)
            self._live.start(refresh=True)
        else:
            self._prints_lines, self._next_refresh = True, self._started + _SECONDS_BETWEEN_LINES
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._refresh(self._live, self._clock())
            self._live.stop()
            self._live = None
        self._prints_lines = False

    def update(self, steps: int, metrics: Mapping[str, float] | None = None) -> None:
        """Set the progress of the run, which is drawn a few times per second at most.

        Args:
            steps: so far.
            metrics: the latest values, by their names in the log; None leaves those shown before.
        """
        if self._live is None and not self._prints_lines:
            return
        has_moved, self._steps = steps > self._steps, steps
        if metrics is not None:
            self._metrics = metrics
            for name in _RETURNS:
                if name in metrics:
                    self._best[name] = max(metrics[name], self._best.get(name, -math.inf))
        now = self._clock()
        if self._live is not None:
            if now >= self._next_refresh or steps >= self._target_steps:
                self._next_refresh = now + _REFRESH_SECONDS
                self._refresh(self._live, now)
        elif has_moved and (now >= self._next_refresh or steps >= self._next_line_at):
            self._next_refresh, self._next_line_at = now + _SECONDS_BETWEEN_LINES, self._next_tenth()
            self._see(now)
            # soft_wrap: files and logs have no width.
            self._console.print(Text(f"{self._title}: {' | '.join(self._summary())}"), soft_wrap=True)

    def _next_tenth(self) -> float:
        """Return the step after which the next tenth of the run is complete."""
        tenths = self._steps * _LINES // max(1, self._target_steps) + 1
        return tenths * self._target_steps / _LINES

    def _see(self, now: float) -> None:
        self._seen.append((now, self._steps))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _SPEED_WINDOW_SECONDS:
            self._seen.popleft()

    def _refresh(self, live: Live, now: float) -> None:
        self._see(now)
        live.update(self._render(), refresh=True)

    def _summary(self) -> list[str]:
        """The entries of a line: those beside the bar, with returns after the steps."""
        steps, *speed = self._status()
        returns = [name for name in _RETURNS if name in self._metrics]
        shown = [
            f"{_RETURNS[name]} {_readable(self._metrics[name])} | best {_readable(self._best[name])}"
            for name in returns[:1]
        ]
        return [steps, *shown, *speed]

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
