"""One learner at a time writes to a run folder."""

import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from storages.persistent.log.lock import InUseError, Lock
from storages.persistent.log.system_calls import NoLocksError


class RunInUseError(RuntimeError):
    """A run folder that another learner writes to."""


class RunLock:
    """The right to write to a run folder, held until it is released or its process is gone.

    In one process the newest has it: a learner made in a notebook for a run that another one there has, takes over.
    On file systems without locks there is none to be had, and nothing is refused.

    Args:
        folder: the run folder, which is there.
        directories: where the run's storages are kept. A storage in the run folder itself has locked it.

    Raises:
        RunInUseError: another process has it.
    """

    def __init__(self, folder: Path, directories: Iterable[str | os.PathLike[str]] = ()) -> None:
        self._folder = folder
        self._is_held = True
        key = folder.resolve()
        earlier = _held.get(key)
        if earlier is not None:
            earlier.release()
        if key not in (Path(directory).resolve() for directory in directories):
            try:
                # Released when this is gone, too.
                self._release = weakref.finalize(self, Lock(folder).release)
            except InUseError as error:
                raise RunInUseError(
                    f"{folder} is in use by {error.holder}, which trains this run. Looking at it needs no learner: "
                    f"read_metrics, python -m pytorchrl plot and inspect only read. To continue the run here, end it "
                    f"there, or close() its learner"
                ) from error
            except NoLocksError:
                self._release = weakref.finalize(self, _nothing)
        else:
            self._release = weakref.finalize(self, _nothing)
        _held[key] = self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release it where an error ends the context; else it stays held."""
        if kind is not None:
            self.release()

    def check(self) -> None:
        """Refuse to go on where it was released.

        Raises:
            RunInUseError: another learner of this process took over, or the learner was closed.
        """
        if not self._is_held:
            raise RunInUseError(
                f"{self._folder} is not this learner's any more: it was closed, or another learner of this process "
                f"took the run over; go on with that one, or with Learner.resume"
            )

    def release(self) -> None:
        """Let others have it."""
        self._is_held = False
        self._release()


_held: "weakref.WeakValueDictionary[Path, RunLock]" = weakref.WeakValueDictionary()


def _nothing() -> None:
    """There is no lock to release."""
