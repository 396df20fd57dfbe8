"""Timing of the parts of the training loop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class LoopTimer:
    """Accumulates the time spent in named parts of a loop."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(("collect", "update", "evaluate", "save"), 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Return a context manager whose duration is added to a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - began

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by part, since the learner was made."""
        return dict(self._seconds)
