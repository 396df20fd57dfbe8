"""How long the parts of a run's loop take."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class LoopTimer:
    """Sums the seconds that named parts of a loop take."""

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(("collect", "update", "evaluate", "save"), 0.0)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Within it, time counts for a part."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] += time.perf_counter() - began

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by part, since the learner was made."""
        return dict(self._seconds)
