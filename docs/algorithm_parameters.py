"""The hyper-parameters of algorithms as rows of a table: name, default, values, meaning, and the class that has it."""

import inspect
import math
import re
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal

import pytorchrl as prl
from pytorchrl.commands.composition.options import argument_texts
from storages.component.annotations import Within
from storages.component.declared import hyper_parameters_of
from storages.component.setting import Setting


def rows_of(classes: Sequence[type[Any]]) -> Iterator[Sequence[str]]:
    """Of classes of one page, each of which extends the one before: those of the last."""
    last = classes[-1]
    parameters = hyper_parameters_of(last)
    describing = {name: next(base for base in last.__mro__ if name in argument_texts(base)) for name in parameters}
    for name in sorted(parameters, key=lambda name: last.__mro__.index(describing[name])):
        base = describing[name]
        meaning = plain_text(argument_texts(base)[name])
        defaults = {cls.__name__: _default(hyper_parameters_of(cls)[name].default) for cls in classes}
        yield f"`{name}`", _defaults(defaults), values(parameters[name].annotation), meaning, f"`{base.__name__}`"


def _defaults(defaults: dict[str, str]) -> str:
    """One, or, where those of several classes differ, each with its class."""
    if len(set(defaults.values())) == 1:
        return next(iter(defaults.values()))
    return ", ".join(f"{value} ({name})" for name, value in defaults.items())


def _default(value: Any) -> str:
    return "required" if value is inspect.Parameter.empty else f"`{shown(value)}`"


def shown(value: Any) -> str:
    """A value as it is written, without what has its default."""
    if not isinstance(value, Setting):
        return repr(value)
    arguments = []
    for field in fields(value):  # type: ignore[arg-type]
        given = getattr(value, field.name)
        if field.default is MISSING or given != field.default:
            arguments.append(f"{field.name}={shown(given)}")
    return f"{type(value).__name__}({', '.join(arguments)})"


def values(annotation: Any, limits: str = "") -> str:
    """What an annotation admits, in words."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return values(arguments[0], _interval([limit for limit in arguments[1:] if isinstance(limit, Within)]))
    if origin in (typing.Union, types.UnionType):
        return ", or ".join(dict.fromkeys(values(option, limits) for option in arguments))
    if origin is Literal:
        return ", ".join(f"`{option!r}`" for option in arguments).replace("'", '"')
    if origin is Sequence:
        return f"several of: {values(arguments[0])}"
    if annotation in (None, type(None)):
        return "None"
    words = {bool: "True, False", int: "whole number", float: "number", str: "text", prl.Schedule: "a schedule"}
    if annotation in words:
        return f"{words[annotation]} {limits}".strip() if annotation in (int, float) else words[annotation]
    return f"`{getattr(annotation, '__name__', annotation)}`"


def _interval(limits: Sequence[Within]) -> str:
    """The numbers that lie in all of some intervals."""
    # Of two equal bounds, the open one is the tighter.
    low, low_open = max(((limit.low, limit.open) for limit in limits), default=(-math.inf, True))
    high, high_closed = min(((limit.high, not limit.open) for limit in limits), default=(math.inf, False))
    if low == -math.inf and high == math.inf:
        return ""
    if low == -math.inf:
        return f"{'≤' if high_closed else '<'} {high:g}"
    if high == math.inf:
        return f"{'>' if low_open else '≥'} {low:g}"
    return f"in {'(' if low_open else '['}{low:g}, {high:g}{']' if high_closed else ')'}"


def plain_text(text: str) -> str:
    """A docstring's text as Markdown has it."""
    return re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text).replace("``", "`")
