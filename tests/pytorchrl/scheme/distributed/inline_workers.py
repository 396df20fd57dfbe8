"""Workers of a distributed scheme that run in the process of the test, one after another, without Ray."""

from collections.abc import Callable, Sequence
from typing import Any


class InlineWorkers:
    """The interface of workers for the learner; a call runs when it is started."""

    replaced = 0

    def __init__(self, cls: type[Any], arguments: Callable[[int], tuple[Any, ...]], number: int) -> None:
        self.workers = [cls(*arguments(worker)) for worker in range(number)]
        self._finished: list[Any] = []

    def __len__(self) -> int:
        return len(self.workers)

    def finish(self) -> list[Any]:
        """Return the results of the calls that were not asked for because another one failed."""
        finished, self._finished = self._finished, []
        return finished

    def all_of(self, method: str, arguments: Sequence[tuple[Any, ...]], *_: Any) -> list[Any]:
        results, failure = [], None
        for worker, given in zip(self.workers, arguments, strict=True):
            try:
                results.append(getattr(worker, method)(*given))
            except ConnectionError as error:
                failure = error
        if failure is not None:
            self._finished = results
            raise failure
        return results

    def states(self) -> list[Any]:
        return [worker.state_dict() for worker in self.workers]

    def load(self, states: Sequence[Any], _: int) -> list[Any]:
        return [worker.load_state_dict(state) for worker, state in zip(self.workers, states, strict=True)]

    def ask(self, worker: int, question: Callable[[Any], Any]) -> Any:
        return question(self.workers[worker])

    def close(self) -> None:
        pass
