"""Names of a package that are imported when they are first read, so that a program pays for what it uses."""

import ast
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


def names_on_demand(
    package: str, refuse: Callable[[str], NoReturn] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, of the imports in its stub file (PEP 562).

    Its modules can be read as attributes too, as if one of the imports had imported them.

    Args:
        package: its ``__name__``.
        refuse: raises the error for a name that is neither.
    """
    module = sys.modules[package]
    stub = Path(str(module.__file__)).with_suffix(".pyi")
    modules = {
        alias.asname or alias.name: str(statement.module)
        for statement in ast.parse(stub.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }

    def read(name: str) -> Any:
        if name in modules:
            # As `from module import name` does, it imports a submodule of that name where there is one.
            value = getattr(__import__(modules[name], fromlist=[name]), name)
        elif not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}") is not None:
            __import__(f"{package}.{name}")
            value = sys.modules[f"{package}.{name}"]
        elif refuse is not None:
            refuse(name)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(module), *modules})

    return read, names, sorted(modules)


def read_names(package: str, name: str | None = None) -> None:
    """Import a name of such a package where it has it, or all its names, so that their classes are known subclasses.

    Args:
        package: its ``__name__``.
        name: None for all names.
    """
    module = sys.modules[package]
    for one in module.__all__:
        if name in (one, None):
            getattr(module, one)
