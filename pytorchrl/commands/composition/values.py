"""Values of hyper-parameters as text: numbers, lists, words, and settings such as ``LinearSchedule(1e-3, 0)``."""

import ast
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pytorchrl.commands.composition.parts import names_of
from pytorchrl.experiments.runs.composition import class_named
from pytorchrl.experiments.runs.user_modules import factory_function
from pytorchrl.scheme.compatibility import CompositionError
from storages.component.setting import Setting

_WORDS = {"true": True, "false": False, "none": None, "null": None}
"""Constants as YAML writes them."""
_BEGINS_A_CALL = re.compile(r"^\s*[A-Za-z_]\w*\(")


class TextError(ValueError):
    """Text that is no value of a hyper-parameter."""


def value_of(text: Any) -> Any:
    """Convert a text to the value that it means, also within lists and mappings; other values stay unchanged.

    A Python literal is evaluated. ``Name(...)`` makes a setting: a schedule, an optimiser, an explorer, a kind of
    window, or a class of an imported module that extends ``Setting``; its arguments are converted in the same way. A
    bare name is an object of an imported module that makes environments, wrappers or networks, found by
    :func:`factory_function`. Any other text stays a text. No other code is run.

    Raises:
        TextError: there is no such setting, its arguments do not fit, or the text is incomplete.
    """
    if isinstance(text, Mapping):
        return {key: value_of(value) for key, value in text.items()}
    if isinstance(text, list | tuple):
        return [value_of(value) for value in text]
    if not isinstance(text, str):
        return text
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if _BEGINS_A_CALL.match(text):
            raise TextError(f"cannot parse {text!r}: {getattr(error, 'msg', error)}") from None
        return text
    return _of(node, text)


def _of(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Call):
        return _setting(node, text)
    if isinstance(node, ast.Name):
        maker = factory_function(node.id)
        return _WORDS.get(node.id, node.id) if maker is None else maker
    if isinstance(node, ast.List | ast.Tuple):
        return [_of(element, text) for element in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_of(key, text): _of(value, text) for key, value in zip(node.keys, node.values, strict=True) if key}
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        # Such as an environment's id with a slash.
        return text


def _setting(node: ast.Call, text: str) -> Any:
    if not isinstance(node.func, ast.Name) or any(keyword.arg is None for keyword in node.keywords):
        raise TextError(f"{text!r} is not a setting with plain arguments, such as LinearSchedule(1e-3, 0)")
    name = node.func.id
    try:
        cls = class_named(name)
    except CompositionError:
        cls = object
    if not issubclass(cls, Setting):
        near = get_close_matches(name, names_of(Setting), n=1)
        hint = f"did you mean {near[0]}?" if near else "--import the module that defines it"
        raise TextError(f"there is no setting {name!r}, which {text!r} names; {hint}")
    arguments = [_of(argument, text) for argument in node.args]
    named = {str(keyword.arg): _of(keyword.value, text) for keyword in node.keywords}
    try:
        return cls(*arguments, **named)
    except (TypeError, ValueError) as error:
        raise TextError(f"{text!r}: {error}") from error
