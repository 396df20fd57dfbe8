"""Descriptions of runs by names and values: configuration files, and checks of what they say."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs import VecEnv
from pytorchrl.scheme.compatibility import CompositionError
from storages import Storage
from storages.component.factory import Component

KINDS: Mapping[str, type[Component]] = {"algorithm": Algorithm, "actor": Actor, "storage": Storage, "env": VecEnv}
"""Base classes of the parts of a run, by their names in options and files."""
_SETTINGS = ("steps", "preprocessing")
_Check = tuple[Callable[[Any], bool], str]


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def whole_number(text: str) -> int:
    """Return the whole number that a text means, such as "4000" or "4e3".

    Raises:
        ArgumentTypeError: it means none.
    """
    try:
        # Not by way of a float, which has fewer digits.
        return int(text) if text.strip().lstrip("+-").isdigit() else _whole(float(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}") from None


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError(f"{number} is no whole number")
    return int(number)


def _as_whole_number(value: Any) -> Any:
    """Return the whole number that a value means; YAML reads 4e3 as a text, and 4.0e+3 as a float; else the value."""
    try:
        return whole_number(str(value)) if isinstance(value, float | str) else value
    except argparse.ArgumentTypeError:
        return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_TEXT: _Check = _is_text, "a text"

_COUNT: _Check = _is_count, "a whole number from 1"

_CHECKS: Mapping[str, _Check] = {
    "steps": _COUNT,
    "device": _TEXT,
    "test_seed": (lambda value: type(value) is int and value >= 0, "a whole number from 0"),
    "normalize_rewards": (lambda value: value in ("returns", "rewards"), "returns or rewards"),
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


def merge_descriptions(*descriptions: Mapping[str, Any]) -> dict[str, Any]:
    """Merge descriptions; the hyper-parameters of later ones replace those of earlier ones.

    Where a later one names another class for a part, the hyper-parameters of the earlier class are dropped.
    """
    whole: dict[str, Any] = {kind: {} for kind in KINDS}
    for description in descriptions:
        for name, value in description.items():
            if name not in KINDS:
                whole[name] = value
            elif value.get("name") not in (None, whole[name].get("name")) and whole[name].get("name") is not None:
                whole[name] = dict(value)
            else:
                whole[name] |= value
    return whole


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping of plain data from a YAML file.

    Raises:
        CompositionError: it cannot be read, is no mapping, no YAML, or has a key twice.
    """
    try:
        content = yaml.load(path.read_text(), _UniqueKeysLoader)
    except _RepeatedKeyError as error:
        raise CompositionError(f"{path}: {error}") from error
    except OSError as error:
        raise CompositionError(f"the configuration file {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise CompositionError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise CompositionError(f"{path} must be a mapping of names to values, got {type(content).__name__}")
    return content


def check_description(
    description: Mapping[str, Any], path: Path, further: tuple[str, ...], hint: Callable[[str], str] = lambda _: ""
) -> dict[str, Any]:
    """Check the description in a configuration file, and return it with each part as a mapping.

    Args:
        description: the content of the file.
        path: of the file, for errors.
        further: names of other settings that are allowed.
        hint: returns what is said of an unknown key, such as the right one, after its name.

    Raises:
        CompositionError: a name is unknown, or a part is neither a name nor a mapping.
    """
    known = (*KINDS, *_SETTINGS, *further)
    for name in description:
        if name not in known:
            said = hint(str(name))
            choose = " Choose" if said.endswith("?") else "; choose"
            raise CompositionError(f"{path}: unknown key {name!r}{said}{choose} from {', '.join(known)}")
    parts = {}
    for kind in KINDS:
        part = description.get(kind, {})
        parts[kind] = {"name": part} if isinstance(part, str) else part
        if not isinstance(parts[kind], dict):
            raise CompositionError(f"{path}: {kind} must be a name, or a mapping of hyper-parameters, got {part!r}")
        if not isinstance(named := parts[kind].get("name"), str | None):
            raise CompositionError(f"{path}: the name of {kind} must be a text, got {named!r}")
    return {**description, **parts}


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
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
            if fits is _is_count:
                checked[name] = value = _as_whole_number(value)
            is_good = fits(value)
        else:
            continue
        if not is_good:
            raise CompositionError(f"{name} must be {wanted}, got {value!r}")
        if name == "seeds" and len(set(checked[name])) < len(checked[name]):
            raise CompositionError(f"seeds must differ, as runs of equal seeds are equal; got {value!r}")
    return checked


class _RepeatedKeyError(ValueError):
    """A mapping of a YAML file has a key twice."""


class _UniqueKeysLoader(yaml.SafeLoader):
    """Loads plain data and refuses repeated keys, of which YAML's own loader takes the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Not where mappings are constructed, as keys that `<<` merges in are not repeated ones.
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            name, line = (key.tag, str(key.value)), key.start_mark.line + 1
            if name in lines:
                raise _RepeatedKeyError(
                    f"the key {key.value!r} is in line {lines[name]} and again in line {line}; leave one of them out"
                )
            lines[name] = line
        return node
