"""The live display of a run in a terminal, and the lines that are printed elsewhere."""

import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from pytorchrl.logging import ProgressDisplay

TITLE = "DQN in runs/cartpole-seed-1"
METRICS = {
    "steps": 500,
    "seconds": 5.0,
    "losses/policy_loss": -0.123456,
    "losses/q_loss": 12345.6,
    "train/return": 21.5,
    "train/episodes": 12,
    "speed/steps_per_second": 77.0,
    "test/return": 200.0,
    "updates": 17,
}


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Terminal:
    """A terminal of a given width, and the contents of its screen."""

    def __init__(self, width: int = 120) -> None:
        self._file = StringIO()
        self.console = Console(force_terminal=True, file=self._file, width=width, height=50)

    @property
    def received(self) -> str:
        return self._file.getvalue()

    @property
    def frames(self) -> int:
        """How often the display was drawn."""
        return self.received.count(TITLE)

    @property
    def lines(self) -> list[str]:
        """The lines of the display as it was drawn last."""
        last = self.received.rpartition("\x1b[2K")[2]
        return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", last).splitlines()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of an ordinary terminal, regardless of the one in which the tests run."""
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def display(terminal: Terminal, clock: Clock, target_steps: int = 1000, initial_steps: int = 0) -> ProgressDisplay:
    return ProgressDisplay(target_steps, TITLE, initial_steps, console=terminal.console, clock=clock)


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"])
def test_nothing_is_drawn_if_the_output_is_not_a_terminal(
    variable: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(variable, "1")
    with ProgressDisplay(10, TITLE) as progress:
        progress.update(5, METRICS)
        progress.update(10)
    printed, errors = capfd.readouterr()
    assert "\x1b" not in printed
    assert [line.partition(" | ")[0] for line in printed.splitlines()] == [
        f"{TITLE}: 5 / 10 steps",
        f"{TITLE}: 10 / 10 steps",
    ]
    assert not errors


class Log:
    """An output that is no terminal, such as a file."""

    def __init__(self, target_steps: int = 1000, initial_steps: int = 0, **options: Any) -> None:
        self._file, self.clock = StringIO(), Clock()
        console = Console(file=self._file, width=40)
        self.display = ProgressDisplay(target_steps, TITLE, initial_steps, console=console, clock=self.clock, **options)

    def update(self, steps: int, seconds: float = 1.0, **metrics: float) -> None:
        self.clock.seconds += seconds
        self.display.update(steps, {name.replace("_", "/"): value for name, value in metrics.items()})

    @property
    def lines(self) -> list[str]:
        return self._file.getvalue().splitlines()


def test_a_log_gets_a_line_after_each_tenth_of_a_run() -> None:
    log = Log()
    with log.display:
        for steps in range(10, 1001, 10):
            log.update(steps, seconds=0.1)
    assert [line.split(" | ")[0] for line in log.lines] == [f"{TITLE}: {n * 100:,} / 1,000 steps" for n in range(1, 11)]


def test_a_log_gets_a_line_each_minute_of_a_slow_run() -> None:
    log = Log(1_000_000)
    with log.display:
        for minute in range(5):
            for second in range(60):
                log.update(60 * minute + second + 1)
    assert [line.split(" | ")[0] for line in log.lines] == [
        f"{TITLE}: {n} / 1,000,000 steps" for n in range(60, 301, 60)
    ]


def test_a_line_says_which_return_it_has_with_its_best_speed_and_time_left() -> None:
    log = Log()
    with log.display:
        log.update(50, train_return=40.0)
        log.update(100, train_return=30.0)
        log.update(200, seconds=2.0, train_return=35.0)
    assert log.lines == [
        f"{TITLE}: 100 / 1,000 steps | training return 30 | best 40 | 50 steps/s | 0:18 left",
        f"{TITLE}: 200 / 1,000 steps | training return 35 | best 40 | 50 steps/s | 0:16 left",
    ]


def test_the_return_of_evaluations_is_logged_where_there_are_any() -> None:
    log = Log(initial_steps=500, best_return=90.0)
    with log.display:
        log.update(600, train_return=99.0, test_return=80.0)
    assert log.lines == [f"{TITLE}: 600 / 1,000 steps | test return 80 | best 90 | 100 steps/s | 0:04 left"]


def test_nothing_is_shown_where_silence_is_asked_for() -> None:
    log, terminal = Log(is_shown=False), Terminal()
    with log.display, ProgressDisplay(1000, TITLE, is_shown=False, console=terminal.console) as progress:
        log.update(1000)
        progress.update(1000, METRICS)
    assert not log.lines
    assert not terminal.received


def test_the_display_draws_on_the_standard_output_if_it_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class TerminalOutput(StringIO):
        def isatty(self) -> bool:
            return True

    output = TerminalOutput()
    monkeypatch.setattr("sys.stdout", output)
    with ProgressDisplay(10, TITLE) as progress:
        progress.update(10)
    assert TITLE in output.getvalue()
    assert "10 / 10 steps" in output.getvalue()


@pytest.mark.parametrize(("variable", "value"), [("TERM", "dumb"), ("TTY_INTERACTIVE", "0")])
def test_lines_are_printed_to_a_dumb_or_non_interactive_terminal(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    terminal = Terminal()
    with display(terminal, Clock()) as progress:
        progress.update(1000, METRICS)
    assert terminal.received.strip() == f"{TITLE}: 1,000 / 1,000 steps | test return 200 | best 200"


def test_the_display_shows_steps_speed_and_time_left() -> None:
    terminal, clock = Terminal(), Clock()
    with display(terminal, clock, target_steps=100_000) as progress:
        assert terminal.lines[0] == TITLE
        assert terminal.lines[1].endswith("  0 / 100,000 steps")
        clock.seconds += 4.0
        progress.update(10_000)
        assert terminal.lines[1].endswith("  10,000 / 100,000 steps   2,500 steps/s   0:36 left")


def test_a_finished_run_shows_its_duration_and_its_average_speed() -> None:
    terminal, clock = Terminal(), Clock()
    with display(terminal, clock, target_steps=7325) as progress:
        for steps, seconds in ((3500, 1750.0), (7000, 1750.0), (7300, 3850.0), (7324, 49.0), (7325, 1.0)):
            # The run slows down: its last speed differs from its average.
            clock.seconds += seconds
            progress.update(steps)
    assert terminal.lines[1].endswith("  7,325 / 7,325 steps   0.9899 steps/s   took 2:03:20")


def test_the_speed_is_that_of_the_last_seconds() -> None:
    terminal, clock = Terminal(), Clock()
    with display(terminal, clock, target_steps=100_000) as progress:
        for second in range(1, 21):
            clock.seconds += 1.0
            progress.update(1000 * second)
        assert "1,000 steps/s" in terminal.lines[1]
        for second in range(1, 6):
            clock.seconds += 1.0
            progress.update(20_000 + 10 * second)
        assert "   10 steps/s" in terminal.lines[1]


def test_the_speed_of_a_resumed_run_excludes_the_steps_before_the_resume() -> None:
    terminal, clock = Terminal(), Clock()
    with display(terminal, clock, target_steps=1_000_100, initial_steps=1_000_000) as progress:
        assert terminal.lines[1].endswith("  1,000,000 / 1,000,100 steps")
        clock.seconds += 2.0
        progress.update(1_000_050)
        assert terminal.lines[1].endswith("  1,000,050 / 1,000,100 steps   25 steps/s   0:02 left")
        clock.seconds += 2.0
        progress.update(1_000_100)
    assert terminal.lines[1].endswith("  1,000,100 / 1,000,100 steps   25 steps/s   took 0:04")


def test_the_latest_metrics_are_shown_below_the_bar_with_those_of_training_first() -> None:
    terminal, clock = Terminal(), Clock()
    with display(terminal, clock) as progress:
        progress.update(1, METRICS)
        clock.seconds += 1.0
        progress.update(2, None)
        assert terminal.lines[2:6] == [
            "train   return 21.5   episodes 12",
            "test    return 200",
            "losses  policy loss -0.1235   q loss 12,346",
            "other   updates 17",
        ]
        clock.seconds += 1.0
        progress.update(3, METRICS | {"train/return": 1e9, "losses/q_loss": float("nan"), "losses/policy_loss": 0.0})
        assert terminal.lines[2:6] == [
            "train   return 1e+09   episodes 12",
            "test    return 200",
            "losses  policy loss 0   q loss nan",
            "other   updates 17",
        ]


@pytest.mark.parametrize("width", [30, 40, 57, 79, 80, 200])
def test_a_narrow_terminal_does_not_break_entries_across_lines(width: int) -> None:
    terminal, clock = Terminal(width), Clock()
    with display(terminal, clock, target_steps=10_000) as progress:
        clock.seconds += 10.0
        progress.update(5000, METRICS)
        lines = terminal.lines
    status = ["5,000 / 10,000 steps", "500 steps/s", "0:10 left"]
    metrics = ["return 21.5", "episodes 12", "return 200", "policy loss -0.1235", "q loss 12,346", "updates 17"]
    for entry in status + metrics:
        assert [re.search(rf"(^|  ){re.escape(entry)}($|  )", line) is not None for line in lines].count(True) == 1, (
            entry
        )
    assert all(len(line) <= width for line in lines)


def test_lines_that_are_too_long_for_a_very_narrow_terminal_are_truncated() -> None:
    terminal = Terminal(24)
    with display(terminal, Clock()) as progress:
        progress.update(1000, METRICS)
        assert all(len(line) <= 24 for line in terminal.lines)
        assert terminal.lines[0] == "DQN in runs/cartpole-se…"
        assert any("policy loss" in line and line.endswith("…") for line in terminal.lines)


def test_the_display_draws_few_frames_per_second_even_with_frequent_updates() -> None:
    terminal, clock = Terminal(), Clock()
    with display(terminal, clock, target_steps=100_000) as progress:
        before = terminal.frames
        for step in range(1, 10_001):
            clock.seconds += 0.0005
            progress.update(step)
        assert 10 <= terminal.frames - before <= 25


def test_the_last_step_is_shown_although_the_display_was_just_drawn() -> None:
    terminal, clock = Terminal(), Clock()
    with display(terminal, clock) as progress:
        progress.update(999)
        clock.seconds += 0.001
        progress.update(1000)
        assert "1,000 / 1,000 steps" in terminal.lines[1]


def test_a_run_that_fails_leaves_its_last_state_and_a_usable_terminal() -> None:
    terminal, clock = Terminal(), Clock()

    def train() -> None:
        with display(terminal, clock) as progress:
            progress.update(400)
            clock.seconds += 0.1
            progress.update(410, {"losses/q_loss": float("inf")})
            raise RuntimeError("the loss is infinite")

    with pytest.raises(RuntimeError, match="the loss is infinite"):
        train()
    assert "410 / 1,000 steps" in terminal.lines[1]
    assert "q loss inf" in terminal.text
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert terminal.received.rindex(shown) > terminal.received.rindex(hidden)
    assert terminal.received.endswith("\n" + shown)


def test_steps_are_shown_with_the_given_unit() -> None:
    terminal, clock = Terminal(), Clock()
    with ProgressDisplay(100, TITLE, unit="updates", console=terminal.console, clock=clock) as progress:
        clock.seconds += 2
        progress.update(50)
        assert "50 / 100 updates   25 updates/s   0:02 left" in terminal.text
