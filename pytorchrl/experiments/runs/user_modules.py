"""User modules with classes and environments that a run is composed of.

Security: modules are imported only because the user names them, never because a file does. Names in a run's
configuration are looked up only in the modules that the user named, and in those that the run names and the modules
that these import, where the process has imported them already, and they are no installed packages.
"""

import ast
import importlib
import shlex
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import gymnasium as gym
from torch import nn

from pytorchrl.installed_files import is_installed
from pytorchrl.scheme.compatibility import CompositionError

_SUFFIX = ".py"
_MADE = (gym.Env, nn.Module)
"""Types that a user's class or function may make to be called because of a configuration."""
_NOT_OF_USERS = frozenset({"pytorchrl", "storages", "gymnasium", "torch", "builtins"})
"""Packages whose classes are not the user's, even if a user's module imports them."""

_imported: dict[str, ModuleType] = {}
_of_run: ContextVar[tuple[str, ...]] = ContextVar("_of_run", default=())
"""Modules that the run names which is being read, as arguments of ``--import``."""


def import_modules(names: Sequence[str]) -> None:
    """Import modules that the user names.

    Args:
        names: of modules, also in the working directory, or paths of files that end in ".py"; commas separate several.

    Raises:
        ValueError: there is no such module.
    """
    if "" not in sys.path:
        # As `python -m` does.
        sys.path.insert(0, "")
    for name in filter(None, (part.strip() for given in names for part in given.split(","))):
        path = Path(name)
        if path.suffix == _SUFFIX:
            if not path.is_file() or not path.stem.isidentifier():
                raise ValueError(f"--import {name}: there is no such file, or its name is not that of a module")
            if path.parent != Path():
                # The directory that Python itself adds when it runs the file; after the working directory.
                sys.path.insert(1, str(path.parent.resolve()))
        module = _module_of(name)
        try:
            _imported[name] = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise
            raise ValueError(
                f"--import {name}: there is no module {module!r}, in {Path.cwd()} or where Python finds modules; a "
                f"file elsewhere is named by its path, --import folder/{path.stem}.py"
            ) from error


def factory_function(name: str) -> Any:
    """Return the class or function of that name that makes environments, wrappers or networks; None if there is none.

    A function must be annotated with such a return type: no other function is called because a file names it.

    Raises:
        CompositionError: several modules define the name differently.
    """
    maker = _only_one(name, lambda value: is_maker(value, name))
    return maker if maker is not None else _maker_of_the_run(name)


def function_named(name: str) -> Callable[..., Any] | None:
    """Return the function of a name that the user has typed, from the imported modules; None if there is none.

    Raises:
        CompositionError: several modules define the name differently.
    """
    function: Callable[..., Any] | None = _only_one(name, lambda value: isinstance(value, FunctionType))
    return function


def is_unannotated_function(name: str) -> bool:
    """Whether a file of the user's that the process has imported has a function of that name that is no maker."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    found = [(module, value) for module in modules if isinstance(value := vars(module).get(name), FunctionType)]
    return any(_is_own_file(module) and not is_maker(value, name) for module, value in found)


def _maker_of_the_run(name: str) -> Any:
    """Return what :func:`factory_function` does from the run's modules, if the process has imported them; else None."""
    named = _of_run.get()
    modules = [module for one in named if (module := sys.modules.get(_module_of(one))) is not None]
    if named and _script() in named:
        modules.append(sys.modules["__main__"])
    found = _makers_in(modules, name)
    if not found:
        # A script may name a module alone, as in `import networks`.
        found = _makers_in([one for module in modules for one in vars(module).values()], name)
    if len(found) > 1:
        files = " and ".join(sorted({maker.__module__ for maker in found}))
        raise CompositionError(f"several modules of the run define {name}, {files}: rename one of them")
    return next(iter(found), None)


def _makers_in(modules: Iterable[Any], name: str) -> list[Any]:
    """Return what :func:`is_maker` accepts under a name in files of the user's, each once."""
    own = [module for module in modules if isinstance(module, ModuleType) and _is_own_file(module)]
    found = [value for module in own if is_maker(value := vars(module).get(name), name)]
    return [maker for maker in dict.fromkeys(found) if _is_defined_in_own_file(maker)]


def _is_defined_in_own_file(value: Any) -> bool:
    module = sys.modules.get(value.__module__)
    return module is not None and _is_own_file(module)


def _is_usable(name: str) -> bool:
    """Whether the process has imported the module that an argument of ``--import`` means, a file of the user's."""
    module = sys.modules.get(_module_of(name))
    return module is not None and _is_own_file(module)


def _is_own_file(module: ModuleType) -> bool:
    """Whether a module is a file of the user's, not of Python or an installed package."""
    file = getattr(module, "__file__", None)
    return file is not None and not is_installed(file)


def _module_of(name: str) -> str:
    """Return the name of the module that an argument of ``--import`` means."""
    path = Path(name)
    return path.stem if path.suffix == _SUFFIX else name


def _only_one(name: str, fits: Callable[[Any], bool]) -> Any:
    found = [value for module in _imported.values() if fits(value := vars(module).get(name))]
    if any(value is not found[0] for value in found):
        raise CompositionError(f"several of the modules {', '.join(_imported)} define {name}; import one of them")
    return found[0] if found else None


@contextmanager
def missing_modules_named(config: Mapping[str, Any]) -> Iterator[None]:
    """Find classes in the run's modules; add to a :class:`CompositionError` which of them are not imported."""
    names = config.get("imports", ())
    before = _of_run.set(tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ())
    try:
        yield
    except CompositionError as error:
        missing = [name for name in config.get("imports", ()) if name not in _imported and not _is_usable(name)]
        if missing:
            options = shlex.join(word for name in missing for word in ("--import", name))
            in_python = ", ".join(_module_of(name) for name in missing)
            error.add_note(f"The run was made with {options}; in Python: import {in_python}")
        raise
    finally:
        _of_run.reset(before)


def is_maker(value: Any, name: str) -> bool:
    """Whether a value is a user's class or function that makes environments, wrappers or networks."""
    # Functions that are made by eval have no module.
    package = str(getattr(value, "__module__", None)).partition(".")[0]
    if getattr(value, "__qualname__", None) != name or package in _NOT_OF_USERS:
        return False
    made = value
    if not isinstance(value, type):
        try:
            made = typing.get_type_hints(value).get("return")
        except (NameError, TypeError, AttributeError):
            return False
    made = typing.get_origin(made) or made
    return isinstance(made, type) and issubclass(made, _MADE)


def is_imported(module: str) -> bool:
    """Whether a module is imported and the user has named it, or a package that contains it."""
    return module in sys.modules and any(module == name or module.startswith(f"{name}.") for name in _imported)


def modules_to_import(modules: Iterable[str | None]) -> list[str] | None:
    """Return the arguments of ``--import`` that define all parts of a composition; None if that is not possible.

    Args:
        modules: that define the parts, ``__main__`` for the running script; None for a part that cannot be imported.
    """
    names = set(modules)
    if None in names:
        return None
    if _imported and names:
        return list(_imported)
    if "__main__" in names:
        # The script imports the others.
        script = _script()
        return None if script is None else [script]
    found = [_as_typed(name) for name in sorted(name for name in names if name)]
    return None if None in found else [name for name in found if name is not None]


def _script() -> str | None:
    """Return the running script as an ``--import`` argument; None if there is none, or it has no ``__main__`` guard."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        return None
    path = Path(file)
    spec = getattr(main, "__spec__", None)
    if not _has_guard(path) or not path.stem.isidentifier():
        return None
    # The module's name, if it was run by `python -m`.
    return _file_as_typed(path) if spec is None else str(spec.name)


def _as_typed(module: str) -> str | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return None
    path, levels = Path(file).resolve(), module.count(".") + 1
    if path.stem == "__init__":
        path = path.parent
    root = path.parents[levels - 1]
    # The first entry of `sys.path` is the running script's directory, which another process does not have.
    if root == Path.cwd() or str(root) in sys.path[1:]:
        return module
    return _file_as_typed(path) if levels == 1 and path.suffix == _SUFFIX else None


def _file_as_typed(path: Path) -> str:
    path = path.resolve()
    if path.parent == Path.cwd():
        return path.stem
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _has_guard(path: Path) -> bool:
    """Whether a script has an ``if __name__ == "__main__"`` guard, so that it can be imported."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    tests = [ast.unparse(statement.test) for statement in body if isinstance(statement, ast.If)]
    return "__name__ == '__main__'" in tests
