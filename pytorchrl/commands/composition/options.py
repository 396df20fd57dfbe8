"""Command line options made from hyper-parameters: names, kinds of values and help texts."""

import argparse
import inspect
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pytorchrl.commands.composition.unknown_options import unknown_option
from pytorchrl.terminal import printable
from storages.component.declared import hyper_parameters_of
from storages.component.schedule import Schedule
from storages.component.setting import Setting


class PartsParser(argparse.ArgumentParser):
    """A parser with the options of the parts that a run is composed of."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parts: dict[str, type[Any]] = {}
        """The classes whose hyper-parameters are options, by the prefix of these."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(printable(message), file)


def add_options(parser: PartsParser, prefix: str, cls: type[Any], but: Sequence[str] = ()) -> None:
    """Add an option ``--PREFIX.NAME`` for each hyper-parameter of a class.

    Args:
        parser: gets the options, as a group.
        prefix: of the options' names.
        cls: the class with the hyper-parameters.
        but: hyper-parameters without an option.
    """
    parser.parts[prefix] = cls
    group = parser.add_argument_group(f"{cls.__name__} (--{prefix}.NAME)")
    meanings = _meanings(cls)
    for name, parameter in hyper_parameters_of(cls).items():
        if name in but:
            continue
        default = "" if parameter.default is parameter.empty else f" (default: {parameter.default!r})"
        group.add_argument(
            dashed(f"--{prefix}.{name}"),
            dest=f"{prefix}.{name}",
            default=argparse.SUPPRESS,
            metavar=_kind(parameter.annotation),
            help=(meanings.get(name, "").rstrip(".") + default).replace("%", "%%"),
        )


def given_options(arguments: argparse.Namespace, prefix: str) -> Mapping[str, str]:
    """Return the hyper-parameters that were given by the options of a prefix."""
    begin = f"{prefix}."
    return {name.removeprefix(begin): value for name, value in vars(arguments).items() if name.startswith(begin)}


def dashed(argument: str) -> str:
    """Replace underscores by dashes in the name of an option; other arguments are unchanged."""
    name, equals, value = argument.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if argument.startswith("--") else argument


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse arguments; an unknown option ends the program with a line that names the nearest one."""
    given, unknown = parser.parse_known_args([dashed(argument) for argument in arguments])
    if unknown:
        name = unknown[0].partition("=")[0]
        parts = parser.parts if isinstance(parser, PartsParser) else {}
        parser.error(unknown_option(name, list(parser._option_string_actions), parts))
    return given


def descriptions(cls: type[Any]) -> dict[str, str]:
    """Return the texts of hyper-parameters in the docstring of a class itself, not of its bases, by name."""
    docstring = inspect.cleandoc(vars(cls).get("__doc__") or "")
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _meanings(cls: type[Any]) -> dict[str, str]:
    """Return the texts of hyper-parameters in the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= {name: _plain_text(text) for name, text in descriptions(base).items()}
    return found


def _plain_text(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")


def _kind(annotation: Any) -> str:
    """Return the placeholder of an option's value, for the help text."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return "|".join(dict.fromkeys(_kind(option) for option in arguments))
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence):
        return f"{_kind(arguments[0])},..." if arguments else "LIST"
    words = {
        bool: "true|false",
        int: "INT",
        float: "NUMBER",
        str: "TEXT",
        Path: "TEXT",
        type(None): "none",
        Schedule: "SCHEDULE",
    }
    if annotation in words:
        return words[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Setting):
        return f"{annotation.__name__}(...)"
    return "VALUE"
