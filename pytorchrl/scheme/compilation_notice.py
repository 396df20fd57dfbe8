"""A message while kernels are compiled, which takes seconds in the first run on a machine and none in later ones."""

import functools
import time
from multiprocessing import parent_process
from typing import Any

import numba.core.event as numba_events

from pytorchrl.terminal import tell

SECONDS_BEFORE = 1.0
"""Time that compilation takes before the message."""
_COMPILATION = "numba:compile"
_PACKAGES = ("pytorchrl", "storages")
_CACHED = "Compiling kernels that no run here has needed before; later ones load them from the disk."
_NOT_CACHED = (
    "Compiling kernels, which cannot be saved for later runs; set NUMBA_CACHE_DIR to a folder that can be written to."
)


class CompilationNotice(numba_events.Listener):
    """Tells once in a process that kernels of this project are compiled.

    Args:
        seconds_before: time that compilation takes before the message, in all.
    """

    def __init__(self, seconds_before: float = SECONDS_BEFORE) -> None:
        self._seconds_before = seconds_before
        self._depth, self._seconds, self._began = 0, 0.0, 0.0
        self._message: str | None = None
        self._is_told = False

    def on_start(self, event: Any) -> None:
        """Note what is compiled; numba's own functions are compiled inside of those that call them."""
        if not self._depth:
            function = event.data["dispatcher"]
            self._began = time.perf_counter()
            is_ours = function.py_func.__module__.partition(".")[0] in _PACKAGES
            self._message = (_CACHED if function._cache.cache_path else _NOT_CACHED) if is_ours else None
        self._depth += 1
        self._tell()

    def on_end(self, event: Any) -> None:
        """Add up the time."""
        self._tell()
        self._depth -= 1
        if not self._depth and self._message is not None:
            self._seconds += time.perf_counter() - self._began

    def _tell(self) -> None:
        seconds = self._seconds + time.perf_counter() - self._began
        if self._message is not None and not self._is_told and seconds >= self._seconds_before:
            self._is_told = True
            # Beside the output, of which scripts may read a table.
            tell(self._message, is_error=True)


@functools.cache
def announce_compilation() -> None:
    """Tell from now on that kernels are compiled, in a process that no other one of Python has started."""
    if parent_process() is None:
        numba_events.register(_COMPILATION, CompilationNotice())  # type: ignore[no-untyped-call]
