"""Compilation of kernels, and a disk cache of compiled code.

numba's own cache has two defects. It invalidates code by the function's own source file alone, although the kernels
that a function calls and constants of other modules are compiled into it: when these change, stale code is loaded. And
its index of a function's files may name the wrong one, if two processes write at the same time or one is killed between
two writes. Here a file's name is a hash of everything that its code depends on, so that no index is needed: a file is
missing, or it is the right one.
"""

import contextlib
import hashlib
import pickle
import sys
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numba
import numpy as np
from numba.core.serialize import dumps

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """Compile a function of a few microseconds that keeps the GIL, or load it from the cache.

    Beside a busy thread, reacquiring the GIL costs more than such a function.
    """
    return _compiled(function, "never", nogil=False)


def parallel_kernel(function: _Function) -> _Function:
    """Compile a function whose time grows with the batch or the storage; it releases the GIL."""
    return _compiled(function, "never", nogil=True)


def arithmetic_kernel(*, nogil: bool) -> Callable[[_Function], _Function]:
    """Compile a function with reassociated floating-point sums and fused multiply-adds.

    Sums of many products are then vectorised.

    Args:
        nogil: as of :func:`parallel_kernel`; False: as of :func:`kernel`.
    """
    return lambda function: _compiled(function, "never", nogil=nogil, fastmath=_REORDERED)


def inlined_kernel(function: _Function) -> _Function:
    """Compile a function that is inlined into each kernel that calls it."""
    return _compiled(function, "always", nogil=False)


class CodeFiles:
    """Cache files of a function's compiled code, one for each combination of argument types.

    Replaces numba's index and data files, with the same methods.

    Args:
        directory: directory of the files.
        function: the compiled function.
        source_hash: hash of the sources that the code is compiled from; files of other sources are removed.
    """

    def __init__(self, directory: Path, function: Callable[..., Any], source_hash: str) -> None:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._directory, self._name = directory, name.replace("<", "").replace(">", "")
        self._source_hash = source_hash
        self._line = function.__code__.co_firstlineno

    def load(self, key: Any) -> Any:
        """Return the data saved under a key, or None."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            # A power failure can leave a renamed file incomplete.
            return None
        # Unpickling is no further risk: who can write this file could also change the sources beside it.
        saved_key, data = pickle.loads(payload)
        return data if saved_key == key else None

    def save(self, key: Any, data: Any) -> None:
        """Save data under a key; a full disk costs only the time of compiling again."""
        payload = dumps((key, data))
        path = self._path(key)
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex[:_NAME_DIGITS]}")
        try:
            unfinished.write_bytes(hashlib.sha256(payload).digest() + payload)
            unfinished.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
        self._remove(lambda name: not name.startswith(f"{self._name}.{self._source_hash}."))

    def flush(self) -> None:
        """Remove all files of the function."""
        self._remove(lambda name: True)

    def _remove(self, is_wanted: Callable[[str], bool]) -> None:
        for path in self._directory.glob(f"{self._name}.*{_SUFFIX}*"):
            if is_wanted(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path(self, key: Any) -> Path:
        key_hash = hash_of(_VERSIONS, f"{self._line} {key!r}".encode())
        return self._directory / f"{self._name}.{self._source_hash}.{key_hash}{_SUFFIX}"


def hash_of(*parts: bytes) -> str:
    """Return a short hash, in hexadecimal digits."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return hashed.hexdigest()[:_NAME_DIGITS]


def _compiled(
    function: _Function,
    inline: Literal["never", "always"],
    nogil: bool,
    fastmath: frozenset[str] = frozenset(),
) -> _Function:
    options: dict[str, Any] = {"nogil": nogil, "inline": inline, "fastmath": set(fastmath)}
    if _SOURCES:
        try:
            compiled = cast("_Function", numba.njit(cache=True, **options)(function))
        except RuntimeError:
            # No directory can be written to.
            pass
        else:
            cache: Any = getattr(compiled, "_cache", None)
            if hasattr(cache, "_cache_file"):
                cache._cache_file = CodeFiles(Path(cache.cache_path), function, _source_hash(function))
                return compiled
            warnings.warn(
                f"storages: numba {numba.__version__} keeps compiled code in a way that is not known here; kernels are "
                f"compiled anew in each process, which takes a minute. Use numba 0.68",
                RuntimeWarning,
                stacklevel=3,
            )
    return cast("_Function", numba.njit(**options)(function))


def _source_hash(function: Callable[..., Any]) -> str:
    """Return a hash of all sources that a function's code depends on: all kernels here, and its own file."""
    path = Path(function.__code__.co_filename)
    return _SOURCE_HASH if path in _SOURCES else hash_of(_SOURCE_HASH.encode(), path.read_bytes())


_REORDERED = frozenset({"contract", "reassoc", "nsz"})
"""LLVM's fast-math flags that do not affect NaN and infinity."""
_DIGEST_BYTES = hashlib.sha256().digest_size
_NAME_DIGITS = 16
_SUFFIX = ".kernel"
_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
"""Source files of all kernels; empty where the package is imported from an archive."""
_SOURCE_HASH = hash_of(*(part for path in _SOURCES for part in (path.name.encode(), path.read_bytes())))
# The memory layout of Python's and NumPy's objects is compiled into kernels.
_VERSIONS = f"{sys.version} numba {numba.__version__} numpy {np.__version__}".encode()
