"""The lock of a run folder, to which only one learner may write at a time."""

import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from storages.persistent.log.lock import InUseError, Lock
from storages.system_calls import NoLocksError


class RunInUseError(RuntimeError):
    """Raised when another learner writes to a run folder."""


class RunLock:
    """Exclusive lock of a run folder, held until it is released or its process ends.

    Within a process, the newest lock wins: a second learner made in a notebook for the same run takes over. On file
    systems without locks, nothing is locked or refused.

    Args:
        folder: the run folder, which must exist.
        directories: of the run's storages. A storage in the run folder itself has already locked it.

    Raises:
        RunInUseError: another process holds the lock.
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
                # Also released when this object is garbage-collected.
                self._release = weakref.finalize(self, Lock(folder).release)
            except InUseError as error:
                raise RunInUseError(
                    f"{folder} is in use by {error.holder}, which trains this run. Reading it needs no learner: "
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
        """Release the lock if the context raised; otherwise keep it."""
        if kind is not None:
            self.release()

    def check(self) -> None:
        """Check that the lock is still held.

        Raises:
            RunInUseError: another learner of this process took over, or the learner was closed.
        """
        if not self._is_held:
            raise RunInUseError(
                f"this learner no longer holds the lock of {self._folder}: it was closed, or another learner of this "
                f"process took the run over; continue with that one, or with Learner.resume"
            )

    def release(self) -> None:
        """Release the lock."""
        self._is_held = False
        self._release()


_held: "weakref.WeakValueDictionary[Path, RunLock]" = weakref.WeakValueDictionary()


def _nothing() -> None:
    """Do nothing: there is no lock to release."""
