"""A disk that records the changes of a directory, and whose calls can be made to fail.

It replaces functions of :mod:`os`: calls that change files below a directory are counted, and one call, or several in a
row, can be made to fail.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

WRITES = frozenset({"write", "pwrite", "writev"})
FAILURES: dict[str, int] = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EINTR": errno.EINTR}
SHORT, TORN = "short", "torn"
"""A write that writes half and returns that number, and one that writes half and fails."""


@dataclass(frozen=True)
class Fault:
    """A fault of a disk.

    Args:
        kind: a key of :data:`FAILURES`, :data:`SHORT` or :data:`TORN`.
        first: number of the first failing call.
        calls: number of failing calls in a row.
    """

    kind: str
    first: int
    calls: int = 1

    def meets(self, number: int) -> bool:
        return self.first <= number < self.first + self.calls


@dataclass(frozen=True)
class Event:
    """A call that changed a file or directory.

    Args:
        call: its name in :mod:`os`.
        path: path of the file or directory.
        inode: inode of the opened, created or renamed file; 0 if there is none.
        data: the written data.
        place: offset of a write, or the length of a truncated file.
        target: target of a rename.
    """

    call: str
    path: Path
    inode: int = 0
    data: bytes = b""
    place: int = 0
    target: Path | None = None


@dataclass
class Disk:
    """The changes of a directory, in order.

    Args:
        folder: folder below which calls count.
        fault: fault that occurs, or None.
    """

    folder: Path
    fault: Fault | None = None
    events: list[Event] = field(default_factory=list)
    failed: int = 0
    """Number of failed calls."""
    calls: list[str] = field(default_factory=list)
    """Names of all calls, including failed ones."""
    _files: dict[int, tuple[Path, int]] = field(default_factory=dict)
    """Path and inode of each open file."""
    _lock: Any = field(default_factory=threading.RLock)

    def is_below(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and f"{path}{os.sep}".startswith(f"{self.folder}{os.sep}")

    def path_of(self, file: int) -> tuple[Path, int] | None:
        """Path and inode of an open file below the folder, or None."""
        known = self._files.get(file)
        return known if known is not None and _inode(file) == known[1] else None

    def whole(self, path: Any, folder: int | None) -> Any:
        """A path, joined with the open folder that it is relative to, if that is known."""
        known = None if folder is None else self.path_of(folder)
        return path if known is None else known[0] / path

    def fails(self, call: str, target: Any) -> str | None:
        """Count a call; raise its error, or return the kind of an incomplete write."""
        self.calls.append(call)
        fault = self.fault
        if fault is None or not fault.meets(len(self.calls) - 1):
            return None
        self.failed += 1
        if call in WRITES and fault.kind in (SHORT, TORN):
            return fault.kind
        if fault.kind != SHORT:
            code = FAILURES.get(fault.kind, errno.EIO)
            raise OSError(code, os.strerror(code), str(target))
        return None

    # Replacements of functions of os

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        with self._lock:
            path, dir_fd = self.whole(path, dir_fd), None if self.path_of(dir_fd or -1) else dir_fd
            below = dir_fd is None and self.is_below(path)
            makes = below and bool(flags & os.O_CREAT) and not os.path.lexists(path)
            if makes:
                self.fails("open", path)
            file = _REAL["open"](path, flags, mode, dir_fd=dir_fd)
            self._files.pop(file, None)
            if below:
                known = self._files[file] = Path(path), _inode(file)
                if makes:
                    self.events.append(Event("create", *known))
                elif flags & os.O_TRUNC:
                    self.events.append(Event("truncate", *known))
            return int(file)

    def write(self, file: int, data: Any) -> int:
        return self._written("write", file, data, None)

    def pwrite(self, file: int, data: Any, offset: int) -> int:
        return self._written("pwrite", file, data, offset)

    def writev(self, file: int, buffers: Any) -> int:
        return self._written("writev", file, b"".join(buffers), None)

    def _written(self, call: str, file: int, data: Any, offset: int | None) -> int:
        with self._lock:
            known = self.path_of(file)
            if known is None:
                return int(_REAL["write"](file, data) if offset is None else _REAL["pwrite"](file, data, offset))
            fails = self.fails(call, known[0])
            given = bytes(data) if fails is None else bytes(data)[: max(1, len(data) // 2)]
            status = os.fstat(file)
            # Logs are only appended to, and other files are written from their beginning.
            begin = status.st_size if offset is None else offset
            done = _REAL["write"](file, given) if offset is None else _REAL["pwrite"](file, given, offset)
            self.events.append(Event("write", *known, data=given[:done], place=begin))
            if fails == TORN:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(known[0]))
            return int(done)

    def _of_file(self, call: str, noted: str) -> Callable[..., None]:
        def stand_in(file: Any, *arguments: int) -> None:
            with self._lock:
                known = self.path_of(file) if isinstance(file, int) else (Path(file), Path(file).stat().st_ino)
                if known is None or not self.is_below(known[0]):
                    _REAL[call](file, *arguments)
                    return
                self.fails(call, known[0])
                if noted != "sync":
                    # Power cuts are only simulated, so a real sync would only take time.
                    _REAL[call](file, *arguments)
                self.events.append(Event(noted, *known, place=arguments[0] if arguments else 0))

        return stand_in

    def _of_path(self, call: str, noted: str) -> Callable[..., None]:
        def stand_in(path: Any, *arguments: Any, dir_fd: int | None = None) -> None:
            with self._lock:
                path, dir_fd = self.whole(path, dir_fd), None if self.path_of(dir_fd or -1) else dir_fd
                # The call has no effect if the path is already in the wanted state.
                done = os.path.lexists(path) == (call == "mkdir")
                if dir_fd is not None or not self.is_below(path) or done:
                    _REAL[call](path, *arguments, dir_fd=dir_fd)
                    return
                self.fails(call, path)
                _REAL[call](path, *arguments)
                self.events.append(Event(noted, Path(path)))

        return stand_in

    def _of_names(self, call: str) -> Callable[..., None]:
        def stand_in(source: Any, target: Any, **given: Any) -> None:
            with self._lock:
                if not self.is_below(source):
                    _REAL[call](source, target, **given)
                    return
                self.fails(call, target)
                inode = Path(source).stat().st_ino
                _REAL[call](source, target, **given)
                self.events.append(Event("rename", Path(source), inode, target=Path(target)))

        return stand_in

    def stand_ins(self) -> dict[str, Any]:
        """The replacement of each function of os."""
        return {
            **{call: getattr(self, call) for call in ("open", *WRITES)},
            **{call: self._of_file(call, "sync") for call in ("fsync", "fdatasync")},
            **{call: self._of_file(call, "truncate") for call in ("truncate", "ftruncate")},
            **{call: self._of_path(call, noted) for call, noted in _OF_PATHS.items()},
            **{call: self._of_names(call) for call in ("rename", "replace")},
        }


_OF_PATHS = {"mkdir": "mkdir", "unlink": "unlink", "remove": "unlink", "rmdir": "unlink"}
_REAL = {
    call: getattr(os, call)
    for call in ("open", *WRITES, "fsync", "fdatasync", "truncate", "ftruncate", *_OF_PATHS, "rename", "replace")
}


def _inode(file: int) -> int:
    try:
        return os.fstat(file).st_ino
    except OSError:
        return -1


@contextmanager
def watched(folder: Path, fault: Fault | None = None) -> Iterator[Disk]:
    """Record the changes below a folder, and let a fault occur."""
    disk = Disk(folder, fault)
    with mock.patch.multiple(os, **disk.stand_ins()):
        yield disk
