"""Compilation of kernels, and the files that keep compiled code for the next process.

numba's own cache falls short in two ways. It compares a function's own source file alone, although the kernels that a
function calls and the constants of other modules are compiled into it: where these changed, stale code is loaded. And
its index of a function's files may name the wrong one, where two processes write at the same time or one is killed
between two writes. Here a file's name is a hash of all that its code depends on, so that there is no index: a file is
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
    """Compile a function of a few microseconds, which keeps the GIL, or load what an earlier process compiled.

    Beside a thread that works, taking the GIL back costs more than such a function does: an insertion of one
    environment's step took 10.5 instead of 6.8 microseconds when it released the GIL, and 3.3 instead of 3.1 alone.
    """
    return _compiled(function, "never", nogil=False)


def parallel_kernel(function: _Function) -> _Function:
    """Compile a function whose time grows with a batch or a storage; it runs without the GIL, beside other threads."""
    return _compiled(function, "never", nogil=True)


def arithmetic_kernel(*, nogil: bool) -> Callable[[_Function], _Function]:
    """Compile a function of sums and products, which may be added up in any order and rounded less often.

    So a processor multiplies and adds at once, and sums of many products are vectorised: tangents of 131,072 numbers
    took 34 instead of 49 microseconds.

    Args:
        nogil: as of :func:`parallel_kernel`; False: as of :func:`kernel`.
    """
    return lambda function: _compiled(function, "never", nogil=nogil, fastmath=_REORDERED)


def inlined_kernel(function: _Function) -> _Function:
    """Compile a function as part of each kernel that calls it."""
    return _compiled(function, "always", nogil=False)


class CodeFiles:
    """Files of a function's compiled code, one for each combination of types of arguments.

    Takes the place of the index and the files that numba writes, by the same methods.

    Args:
        directory: where they are.
        function: whose code they hold.
        source_hash: of the sources that the code is compiled from; files of other sources are removed.
    """

    def __init__(self, directory: Path, function: Callable[..., Any], source_hash: str) -> None:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._directory, self._name = directory, name.replace("<", "").replace(">", "")
        self._source_hash = source_hash
        self._line = function.__code__.co_firstlineno

    def load(self, key: Any) -> Any:
        """Return what was saved under a key, None where nothing was."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(payload).digest() != digest:
            # Replacing a file is not atomic in a power failure.
            return None
        # As numba does: a file beside the sources, which its writer could have changed as well.
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
    """Of all that a function's code depends on: the kernels here, and its own file, where that is another."""
    path = Path(function.__code__.co_filename)
    return _SOURCE_HASH if path in _SOURCES else hash_of(_SOURCE_HASH.encode(), path.read_bytes())


_REORDERED = frozenset({"contract", "reassoc", "nsz"})
"""Of what LLVM calls fast math, what leaves infinities and what is no number as they are."""
_DIGEST_BYTES = hashlib.sha256().digest_size
_NAME_DIGITS = 16
_SUFFIX = ".kernel"
_SOURCES = sorted(Path(__file__).parent.glob("*.py"))
"""Of all kernels; none where the package lies in an archive."""
_SOURCE_HASH = hash_of(*(part for path in _SOURCES for part in (path.name.encode(), path.read_bytes())))
# Where things lie in the memory of Python's and NumPy's objects is compiled into kernels.
_VERSIONS = f"{sys.version} numba {numba.__version__} numpy {np.__version__}".encode()
