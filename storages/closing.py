"""Objects that hold files, processes or other resources until they are closed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Protocol, Self


class Closing(ABC):
    """An object that a ``with`` statement closes, also where an exception ends it."""

    @abstractmethod
    def close(self) -> None:
        """Release everything that the object holds."""

    def __enter__(self) -> Self:
        """Return the object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the object."""
        self.close()


class _Closable(Protocol):
    def close(self) -> None: ...


def close_all(closables: Iterable[_Closable]) -> None:
    """Close all in their order, the others too if some raise an exception, which is raised at the end."""
    with ExitStack() as stack:
        for each in reversed([*closables]):
            stack.callback(each.close)
