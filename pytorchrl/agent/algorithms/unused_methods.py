"""Refusal of overrides that would never be called."""

from collections.abc import Mapping
from typing import Any


def refuse_unused_overrides(cls: Any) -> None:
    """Refuse a class that defines a method which its base classes inherited, but never call.

    A class names such methods in ``unused``, each with what to override instead. Its subclasses inherit the names of
    all their base classes; one that calls such a method itself declares ``unused`` without it.

    Args:
        cls: a subclass of `Algorithm` that is being made.

    Raises:
        TypeError: it defines one of the methods; the message names what to override instead.
    """
    if "unused" not in vars(cls):
        merged: dict[str, str] = {}
        for base in reversed(cls.__bases__):
            merged |= getattr(base, "unused", {})
        cls.unused = merged
    unused: Mapping[str, str] = cls.unused
    for name, instead in unused.items():
        if name in vars(cls):
            raise TypeError(
                f"{cls.__name__}.{name} would never be called; {instead}, or call {name} in a method of your own and "
                f"declare unused = {{}}"
            )
