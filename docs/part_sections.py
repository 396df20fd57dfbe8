"""Sections of pages for small parts, each with what it is for and a table of its settings, from its docstring."""

import inspect
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from docs.algorithm_parameters import plain_text, shown, values
from pytorchrl.commands.composition.options import argument_texts


def purpose_of(cls: type[Any]) -> str:
    """The docstring of a class up to its arguments."""
    docstring = inspect.getdoc(cls) or ""
    for heading in ("Args:", "Raises:", "Attributes:"):
        docstring = docstring.partition(f"\n{heading}\n")[0]
    return plain_text(docstring).strip()


def settings_of(cls: type[Any]) -> Iterator[Sequence[str]]:
    """Name, default, values and meaning of each setting of a dataclass, or argument of another class."""
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        meanings |= argument_texts(base)
    for name, default, annotation in _fields_of(cls):
        written = "required" if default is MISSING else f"`{shown(default)}`"
        yield f"`{name}`", written, values(annotation), plain_text(meanings[name])


def _fields_of(cls: type[Any]) -> Iterator[tuple[str, Any, Any]]:
    if is_dataclass(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        yield from ((field.name, field.default, hints[field.name]) for field in fields(cls))
        return
    hints = typing.get_type_hints(cls.__init__, include_extras=True)
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        # What a wrapper is put around is given by the environments.
        if name != "env":
            default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
            yield name, default, hints.get(name, Any)
