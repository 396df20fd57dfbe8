"""Workers of a distributed scheme that run in the process of the test, one after another, without Ray."""

from collections.abc import Callable, Sequence
from typing import Any


class InlineWorkers:
    """The interface of workers for the learner; a call runs when it is started."""

    replaced = 0

    def __init__(self, cls: type[Any], arguments: Callable[[int], tuple[Any, ...]], number: int) -> None:
        self.workers = [cls(*arguments(worker)) for worker in range(number)]

    def __len__(self) -> int:
        return len(self.workers)

    def finish(self) -> tuple[Any, ...]:
        return ()

    def all_of(self, method: str, arguments: Sequence[tuple[Any, ...]], *_: Any) -> list[Any]:
        pairs = zip(self.workers, arguments, strict=True)
        return [getattr(worker, method)(*given) for worker, given in pairs]

    def close(self) -> None:
        pass
