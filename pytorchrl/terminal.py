"""Output of commands: names from run folders and data sets are text there, never markup or control codes."""

import os
import select
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text


def printable(text: object) -> str:
    r"""Return a text in which control characters, but for ends of lines and tabs, are escaped: ``\x1b``.

    Escaped are all that have no glyph, those that reverse the direction of text and halves of surrogate pairs too.
    """
    return _escaped(str(text), "\n\t")


def on_one_line(text: object) -> str:
    """Return a text as :func:`printable` does, with ends of lines and tabs escaped too, for a cell of a table."""
    return _escaped(str(text), "")


def tell(*texts: object, end: str = "\n", is_error: bool = False) -> None:
    """Print texts as :func:`printable` returns them, separated by spaces.

    Args:
        texts: what is printed.
        end: printed after them.
        is_error: print to the standard error output.
    """
    print(*map(printable, texts), end=end, file=sys.stderr if is_error else sys.stdout, flush=True)


def format_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Return what :func:`warnings.formatwarning` does, as :func:`printable` text."""
    return printable(_formatted(message, category, filename, lineno, line))


_formatted = warnings.formatwarning


CLOSED_OUTPUT = 141
"""Exit status of a program whose output is read no longer: that of shells for SIGPIPE."""


@contextmanager
def ending_with_its_reader() -> Iterator[None]:
    """End the process without a traceback where nothing reads its output any longer, as after ``| head -1``.

    Raises:
        SystemExit: the standard output is closed, with the status :data:`CLOSED_OUTPUT`.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        if not _output_is_closed():
            raise  # of another pipe, such as that of a process
        # Otherwise, Python would write the rest, and fail again, at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        for note in getattr(error, "__notes__", ()):
            # How an interrupted run is continued.
            tell(note, is_error=True)
        raise SystemExit(CLOSED_OUTPUT) from None


def _output_is_closed() -> bool:
    """Whether the standard output is a pipe whose other end is closed."""
    if sys.platform == "win32":
        return False
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


class TextConsole(Console):
    """A console of rich to which texts are text: no markup, emoji or highlights, and control characters escaped.

    Args:
        options: of :class:`rich.console.Console`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Convert a text."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of what is rendered."""
        if isinstance(renderable, Text) and printable(renderable.plain) != renderable.plain:
            escaped = Text(printable(renderable.plain), renderable.style)
            escaped.justify, escaped.overflow, escaped.no_wrap = (
                renderable.justify,
                renderable.overflow,
                renderable.no_wrap,
            )
            renderable = escaped
        return super().render(renderable, options)


def _escaped(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in kept else repr(sign)[1:-1] for sign in text)
