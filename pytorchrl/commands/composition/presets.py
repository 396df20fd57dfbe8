"""Presets: hyper-parameters that were tried for an algorithm in an environment, and the returns they reached."""

import functools
import statistics
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from pytorchrl.agent.envs.other_packages import is_game
from pytorchrl.commands.composition.description import KINDS
from pytorchrl.commands.composition.parts import part_named
from storages.component.declared import hyper_parameters_of

_FOLDER = Path(str(resources.files("pytorchrl.commands") / "presets"))
_RETURNS = "returns.yaml"
_ATARI, _ANY = "Atari", "*"
"""Keys of presets for all games of Atari, and for all other environments."""


def preset_of(algorithm: type[Any], env: str) -> tuple[dict[str, Any], str | None]:
    """Return the preset of an algorithm for an environment, and its name; empty and None where there is none.

    A class of a user's has that of the class of the toolkit that it extends, but for hyper-parameters that it declares.

    Args:
        algorithm: its class.
        env: id of the environment.
    """
    classes = algorithm.__mro__
    extended = next(cls for cls in classes if cls.__module__.partition(".")[0] == "pytorchrl")
    of_algorithm = _presets().get(extended.__name__, {})
    names = {env: env} | ({_ATARI: "games of Atari"} if is_game(env) else {}) | {_ANY: "any environment"}
    for name, said in names.items():
        if name in of_algorithm:
            preset = dict(of_algorithm[name])
            declared = {attribute for cls in classes[: classes.index(extended)] for attribute in vars(cls)}
            if declared and "algorithm" in preset:
                preset["algorithm"] = {key: value for key, value in preset["algorithm"].items() if key not in declared}
            extending = "" if algorithm is extended else f", which {algorithm.__name__} extends"
            return preset, f"{extended.__name__}, {said}{extending}"
    return {}, None


def measured_return(algorithm: str, env: str) -> str | None:
    """Return a sentence about the return that a preset has reached; None where it was not measured.

    Args:
        algorithm: name of its class.
        env: id of the environment.
    """
    found = _content(_RETURNS).get(algorithm, {}).get(env)
    if found is None:
        return None
    returns = found["returns"]
    mean = f"{statistics.mean(returns):,.1f} over {len(returns)} seeds" if len(returns) > 1 else f"{returns[0]:,.1f}"
    return f"Its policies reached a mean return of {mean} after {found['steps']:,} steps."


def fit_preset(preset: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset without hyper-parameters that classes which were chosen instead of its defaults do not have."""
    kept = dict(preset)
    for kind, cls in KINDS.items():
        name = chosen.get(kind, {}).get("name")
        if kind in preset and "name" not in preset[kind] and name is not None and kind != "env":
            known = hyper_parameters_of(part_named(cls, name))
            kept[kind] = {key: value for key, value in preset[kind].items() if key in known}
    return kept


@functools.cache
def _presets() -> dict[str, Any]:
    files = (file.name for file in sorted(_FOLDER.glob("*.yaml")) if file.name != _RETURNS)
    return {algorithm: of_envs for file in files for algorithm, of_envs in _content(file).items()}


@functools.cache
def _content(file: str) -> dict[str, Any]:
    # The loader in C, where it is there, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: dict[str, Any] = yaml.load((_FOLDER / file).read_text(encoding="utf-8"), loader)
    return content
