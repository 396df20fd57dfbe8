"""Checks of the settings of a run beside its parts: seeds, folders, callbacks, data."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from pytorchrl.scheme.compatibility import CompositionError

_Check = tuple[Callable[[Any], bool], str]


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_TEXT: _Check = _is_text, "a text"
_COUNT: _Check = _is_count, "a whole number from 1"
_CHECKS: Mapping[str, _Check] = {
    "steps": _COUNT,
    "device": _TEXT,
    "log_dir": (lambda value: isinstance(value, str | os.PathLike), "the path of a folder"),
    "checkpoint_every": _COUNT,
    "from": _TEXT,
    "data": _TEXT,
    "preprocessing": (lambda value: isinstance(value, bool), "true or false"),
    "online": (lambda value: isinstance(value, bool), "true or false"),
}
_LISTS: Mapping[str, _Check] = {
    "seeds": (lambda value: type(value) is int and value >= 0, "whole numbers from 0"),
    "log_to": (_is_text, "names of destinations"),
    "callbacks": (_is_text, "callbacks, such as StopAtReturn(475)"),
}
"""Settings that are lists, with a check of each item; a single value becomes a list of it."""


def checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check the types and ranges of settings, given on the command line or in a file, and return them.

    Raises:
        CompositionError: the message names the setting and its value.
    """
    checked = dict(settings)
    for name, value in settings.items():
        if value is None:
            continue
        if name in _LISTS:
            fits, wanted = _LISTS[name]
            checked[name] = items = list(value) if isinstance(value, list | tuple) else [value]
            is_good = all(map(fits, items))
        elif name in _CHECKS:
            fits, wanted = _CHECKS[name]
            is_good = fits(value)
        else:
            continue
        if not is_good:
            raise CompositionError(f"{name} must be {wanted}, got {value!r}")
        if name == "seeds" and len(set(checked[name])) < len(checked[name]):
            raise CompositionError(f"seeds must differ, as runs of equal seeds are equal; got {value!r}")
    return checked
