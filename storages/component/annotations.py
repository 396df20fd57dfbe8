"""Checks of values against annotations of type and range.

A range is part of the annotation: ``alpha: Annotated[float, Within(0, 1)]``. :func:`conform` returns a value in the
annotation's own type (an int becomes a float, a list a tuple, a path the string of a configuration file), so that two
factories made from equal values are equal, whether the values came from a script or from a configuration file.
"""

import collections.abc
import functools
import inspect
import math
import numbers
import pathlib
import sys
import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union

import numpy as np


@dataclass(frozen=True)
class Within:
    """A closed interval, or an open one; infinite bounds are no bounds."""

    low: float
    high: float = float("inf")
    open: bool = False

    def admits(self, number: float) -> bool:
        """Return whether the number lies inside; NaN never does."""
        return self.low < number < self.high if self.open else self.low <= number <= self.high

    def __str__(self) -> str:
        if self.high == float("inf"):
            return f"must be greater than {self.low:g}" if self.open else f"must be at least {self.low:g}"
        if self.low == -float("inf"):
            return f"must be less than {self.high:g}" if self.open else f"must be at most {self.high:g}"
        left, right = "()" if self.open else "[]"
        return f"must lie in {left}{self.low:g}, {self.high:g}{right}"


@dataclass(frozen=True)
class Whole:
    """Mark of an int that may be given as a float without a fraction, such as 3.0."""


@dataclass(frozen=True)
class Finite:
    """A range without infinity; the bounds that a schedule states may be infinite."""


class MisfitError(ValueError):
    """A value that its annotation does not admit; the message says what it must be."""


def conform(value: Any, annotation: Any) -> Any:
    """Return the value, checked and converted to the annotation's type.

    Raises:
        MisfitError: the value is of another type, or outside the range; the message continues "<name> ...".
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _conform_to_range(value, arguments[0], arguments[1:])
    if annotation is Any or isinstance(annotation, typing.TypeVar):
        return value
    if origin in (Union, types.UnionType):
        return _conform_to_one(value, arguments)
    if origin is Literal:
        if value not in arguments:
            raise MisfitError(f"must be one of {', '.join(map(repr, arguments))}, got {value!r}")
        return value
    if origin is tuple or origin is collections.abc.Sequence:
        return _conform_to_sequence(value, arguments)
    if annotation is pathlib.Path and isinstance(value, pathlib.PurePath):
        return str(value)
    if annotation is None or annotation is type(None):
        if value is not None:
            raise MisfitError(f"must be None, got {value!r}")
        return None
    if origin is collections.abc.Callable:
        if not callable(value):
            raise MisfitError(f"must be callable, got {value!r}")
        return value
    if origin is type:
        return _conform_to_type(value, arguments[0])
    value = _conform_to_class(value, origin or annotation)
    made, kind = getattr(value, "cls", None), arguments[0] if arguments else Any
    if isinstance(made, type) and kind is not Any and isinstance(kind, type) and not issubclass(made, kind):
        # It is a factory of another class.
        raise MisfitError(f"must make {_with_article(kind)}, got {value!r}")
    return value


def conform_named(value: Any, annotation: Any, what: str) -> Any:
    """Return the value as :func:`conform` does, with an error that names the argument.

    Args:
        value: the argument.
        annotation: its type and range.
        what: owner and name of the argument: "PERBuffer: alpha".

    Raises:
        ValueError: the annotation does not admit it.
    """
    try:
        return conform(value, annotation)
    except MisfitError as misfit:
        raise ValueError(f"{what} {misfit}") from None


def _conform_to_range(value: Any, annotation: Any, ranges: tuple[Any, ...]) -> Any:
    if (
        isinstance(value, float | np.floating)
        and float(value).is_integer()
        and any(type(one) is Whole for one in ranges)
    ):
        value = int(value)
    value = conform(value, annotation)
    # Of a schedule, the smallest and the largest value.
    reached = getattr(value, "extremes", (value,))
    if isinstance(value, float) and math.isinf(value) and any(isinstance(limit, Finite) for limit in ranges):
        raise MisfitError(f"must be finite, got {value!r}")
    for limit in ranges:
        for number in reached:
            if isinstance(limit, Within) and isinstance(number, numbers.Real) and not limit.admits(float(number)):
                raise MisfitError(f"{limit}, got {value!r}")
    return value


def _conform_to_one(value: Any, options: tuple[Any, ...]) -> Any:
    reasons = []
    # An exact class first: of float | int, an int stays an int.
    for option in sorted(options, key=lambda option: type(value) is not option):
        try:
            return conform(value, option)
        except MisfitError as misfit:
            if option is not type(None):
                # What it got may be the value as converted for that option: 2.0 in the place of 2.
                reasons.append(str(misfit).partition(", got ")[0])
    hints = (getattr(option, "of_functions", "") for option in options if callable(value))
    hint = next(filter(None, hints), "")
    raise MisfitError(f"{', or '.join(dict.fromkeys(reasons))}, got {value!r}{hint}")


def _conform_to_sequence(value: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, collections.abc.Sequence):
        raise MisfitError(f"must be a sequence, got {value!r}")
    kind = arguments[0] if arguments else Any
    try:
        return tuple(conform(item, kind) for item in value)
    except MisfitError as misfit:
        raise MisfitError(f"holds a value that {misfit}") from None


def _conform_to_class(value: Any, kind: type) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if math.isnan(value):
            raise MisfitError(f"must be a number, got {value!r}")
        return float(value)
    if kind is int and isinstance(value, bool):
        raise MisfitError(f"must be an int, got {value!r}")
    if not isinstance(value, kind):
        raise MisfitError(f"must be {_with_article(kind)}, got {value!r}")
    return value


def _conform_to_type(value: Any, kind: Any) -> Any:
    if not isinstance(value, type) or (isinstance(kind, type) and not issubclass(value, kind)):
        raise MisfitError(f"must be a class{'' if kind is Any else f' that extends {kind.__name__}'}, got {value!r}")
    return value


def _with_article(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'aeiouAEIOU' else 'a'} {kind.__name__}"


def is_class_variable(annotation: Any) -> bool:
    """Whether an annotation, resolved or not, is a ``ClassVar``."""
    if isinstance(annotation, str):
        return annotation.removeprefix("typing.").startswith("ClassVar")
    return annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar


def _annotation_of(cls: type[Any], name: str) -> Any:
    """Return the resolved annotation of an attribute in the body of a class, or of the nearest of its base classes."""
    owner = next(each for each in cls.__mro__ if name in inspect.get_annotations(each))
    module = sys.modules.get(owner.__module__)
    holder = types.SimpleNamespace(__annotations__={"field": inspect.get_annotations(owner)[name]})
    names = vars(module) if module is not None else {}
    return typing.get_type_hints(holder, names, dict(vars(owner)), include_extras=True)["field"]


# Kept, because resolving takes longer than making most parts. The cast is for mypy, which considers classes unhashable.
annotation_of = typing.cast(
    "collections.abc.Callable[[type[Any], str], Any]", functools.lru_cache(maxsize=4096)(_annotation_of)
)
