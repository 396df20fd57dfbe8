"""One live display for a run in a terminal, nothing where the output is none."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

_REFRESH_SECONDS = 0.25
_SPEED_WINDOW_SECONDS = 5.0


class ProgressDisplay:
    """A bar of steps with speed and time left, above the latest metrics. Used as a context manager.

    Args:
        target_steps: where the bar ends.
        title: what is running.
        initial_steps: where a resumed run begins.
        console: where to draw; None takes the standard output.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        target_steps: int,
        title: str,
        initial_steps: int = 0,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console or Console()
        self._clock = clock
        self._target_steps = target_steps
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            console=self._console,
            expand=True,
        )
        self._task = self._bar.add_task(title, total=target_steps, completed=initial_steps, speed="")
        self._metrics: Mapping[str, float] = {}
        self._seen: deque[tuple[float, int]] = deque([(clock(), initial_steps)])
        self._next_refresh = 0.0
        self._live: Live | None = None

    def __enter__(self) -> "ProgressDisplay":
        if self._console.is_terminal:
            self._live = Live(self._render(), console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(self._render(), refresh=True)
            self._live.stop()
            self._live = None

    def update(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Say how far the run is; drawn a few times a second, else next to free."""
        if self._live is None:
            return
        now = self._clock()
        if now < self._next_refresh and steps < self._target_steps:
            return
        self._next_refresh = now + _REFRESH_SECONDS
        self._metrics = metrics
        self._seen.append((now, steps))
        while len(self._seen) > 2 and now - self._seen[0][0] > _SPEED_WINDOW_SECONDS:
            self._seen.popleft()
        self._bar.update(self._task, completed=steps, speed=self._speed())
        self._live.update(self._render(), refresh=True)

    def _speed(self) -> str:
        (then, steps_then), (now, steps) = self._seen[0], self._seen[-1]
        if now <= then or steps <= steps_then:
            return ""
        speed = (steps - steps_then) / (now - then)
        minutes, seconds = divmod(round(max(0, self._target_steps - steps) / speed), 60)
        return f"{speed:,.0f} steps/s, {minutes}:{seconds:02d} left"

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        shown = [(name, f"{value:,.4g}") for name, value in self._metrics.items() if "/" in name]
        columns = max(1, min(3, self._console.width // 40))
        for start in range(0, len(shown), columns):
            table.add_row(*(f"[dim]{name}[/dim] {value}" for name, value in shown[start : start + columns]))
        return Group(self._bar, table)
