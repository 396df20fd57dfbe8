"""Values of hyper-parameters as text: numbers, lists, words, and settings such as ``LinearSchedule(1e-3, 0)``."""

import ast
import re
from collections.abc import Mapping
from typing import Any

from pytorchrl.experiments.runs.composition import class_named
from pytorchrl.experiments.runs.own_modules import maker_named
from pytorchrl.scheme.fitting import CompositionError
from storages.component.setting import Setting

_WORDS = {"true": True, "false": False, "none": None, "null": None}
"""As configuration files write them."""
_BEGINS_A_CALL = re.compile(r"^\s*[A-Za-z_]\w*\(")


class TextError(ValueError):
    """Text that is no value of a hyper-parameter."""


def value_of(text: Any) -> Any:
    """The value that a text means; what is no text is a value already, in lists and mappings too.

    A Python literal is what it says. ``Name(...)`` is a setting: a schedule, an optimiser, an explorer, a kind of
    window, a class of an imported module that extends ``Setting``; its arguments are values again. A name is what an
    imported module has under it that makes environments, wrappers or networks, as :func:`maker_named` finds it.
    Anything else is the text itself. Nothing else is called, and no other code runs.

    Raises:
        TextError: a setting of that name is not there, its arguments do not fit, or the text breaks off.
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
            raise TextError(f"{text!r} cannot be read: {getattr(error, 'msg', error)}") from None
        return text
    return _of(node, text)


def _of(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Call):
        return _setting(node, text)
    if isinstance(node, ast.Name):
        maker = maker_named(node.id)
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
        raise TextError(f"{text!r} is no setting with its arguments, such as LinearSchedule(1e-3, 0)")
    name = node.func.id
    try:
        cls = class_named(name)
    except CompositionError:
        cls = object
    if not issubclass(cls, Setting):
        raise TextError(f"there is no setting {name!r}, as {text!r} says; --import the module that defines it")
    arguments = [_of(argument, text) for argument in node.args]
    named = {str(keyword.arg): _of(keyword.value, text) for keyword in node.keywords}
    try:
        return cls(*arguments, **named)
    except (TypeError, ValueError) as error:
        raise TextError(f"{text!r}: {error}") from error
