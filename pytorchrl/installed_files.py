"""Which files belong to Python and installed packages, rather than to the user."""

import functools
import sysconfig
from pathlib import Path

_FOLDERS_OF_PACKAGES = frozenset({"site-packages", "dist-packages"})
"""Names of the folders that hold packages, those of a user, of the system and of another environment included."""


def is_installed(file: str | Path) -> bool:
    """Whether a file is of Python's standard library or an installed package."""
    path = Path(file).resolve()
    return not _FOLDERS_OF_PACKAGES.isdisjoint(path.parts) or any(map(path.is_relative_to, _folders()))


@functools.cache
def _folders() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(sysconfig.get_paths()[name]).resolve() for name in names})
