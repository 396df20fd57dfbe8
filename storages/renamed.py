"""Errors for names of PyTorchRL's storages that are called, or overridden, here."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from storages.component.other_names import STORAGE_ARGUMENTS, STORAGE_METHODS

P = ParamSpec("P")
T = TypeVar("T")


def refuse_overridden(owner: str, attributes: Mapping[str, Any]) -> None:
    """Refuse a class that overrides what is not called here.

    Args:
        owner: name of the class.
        attributes: its own attributes.

    Raises:
        TypeError: the text says what is called instead.
    """
    for name in STORAGE_METHODS:
        if name in attributes:
            raise TypeError(f"{owner}.{name} would never be used: {STORAGE_METHODS[name]}")
    for name, renamed in STORAGE_ARGUMENTS.items():
        own = attributes.get(name)
        if callable(own) and (old := renamed.keys() & inspect.signature(own).parameters.keys()):
            raise TypeError(f"{owner}.{name} is called with other arguments: {_told(old, renamed)}")


def missing_attribute(owner: str, name: str) -> AttributeError:
    """Return the error for an attribute that a storage does not have."""
    hint = f": {STORAGE_METHODS[name]}" if name in STORAGE_METHODS else ""
    return AttributeError(f"{owner!r} object has no attribute {name!r}{hint}", name=name)


def arguments_named(method: Callable[P, T]) -> Callable[P, T]:
    """Name the right arguments in the error of a call with those of PyTorchRL."""
    renamed = STORAGE_ARGUMENTS[method.__name__]

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if old := renamed.keys() & kwargs.keys():
            raise TypeError(f"{type(args[0]).__name__}.{method.__name__}: {_told(old, renamed)}")
        return method(*args, **kwargs)

    return call


def _told(old: set[str], renamed: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name} is {renamed[name]} here" if renamed[name] else f"there is no {name}" for name in renamed if name in old
    )
