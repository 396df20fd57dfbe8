"""What services show of a run: its name, group, tags, and its settings by the names of options."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pytorchrl.logging.curves import Run, without_places
from pytorchrl.logging.formats import as_written
from pytorchrl.logging.groups import composition_of, environment

Value: TypeAlias = float | bool | str | list[float | bool | str] | None

_DIGITS_OF_A_GROUP = 6
LONGEST_TAG = 64
"""Of wandb, which refuses longer ones."""
_NOT_SHOWN = ("spaces", "own_classes", "log_to")
_OPTIONS = {"train_envs.env": "env", "target_steps": "steps"}
"""Names of settings whose options have other names."""
_OF_ENVIRONMENTS = re.compile(r"^train_envs\.")
_PLAIN = (bool, int, float, str)


def name_of_run(config: Mapping[str, Any], folder: Path) -> str:
    """Return a name such as ``PPO-CartPole-v1-seed-1``; that of the folder where the algorithm is not known."""
    title, seed = _title(config), config.get("seed")
    if not title:
        return folder.resolve().name
    return title if seed is None else f"{title}-seed-{seed}"


def group_of_run(config: Mapping[str, Any]) -> str | None:
    """Return a name that runs share where they differ only in seed, steps and logging: ``PPO-CartPole-v1-3f2a9c``."""
    title = _title(config)
    composition = without_places({name: value for name, value in config.items() if name != "target_steps"})
    text = composition_of(Run(Path(), composition, ()))
    return (
        f"{title}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:_DIGITS_OF_A_GROUP]}" if title else None
    )


def tags_of_run(config: Mapping[str, Any]) -> list[str]:
    """Return the names of the algorithm, the environment and the storage."""
    names = (_part(config, "algorithm"), environment(config), _part(config, "storage"))
    return [name for name in dict.fromkeys(names) if 0 < len(name) <= LONGEST_TAG]


def settings_by_option(config: Mapping[str, Any]) -> dict[str, Value]:
    """Return the settings of a run by the names of ``train``'s options: ``algorithm.lr``, ``env``, ``seed``, ``steps``.

    Schedules and other objects are texts as on the command line: ``LinearSchedule(initial=1.0, final=0.05)``.
    """
    found: dict[str, Value] = {}
    for name, value in dotted_settings({key: value for key, value in config.items() if key not in _NOT_SHOWN}):
        if name == "train_envs":
            continue  # the class of vector environments, which no option chooses
        found[_OPTIONS.get(name) or _OF_ENVIRONMENTS.sub("env.", name)] = _plain(value)
    return found


def dotted_settings(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of a composition by dotted names: ``algorithm``, ``algorithm.lr``, ``hogwild.processes``."""
    for name, value in config.items():
        if not isinstance(value, Mapping) or "callable" in value:
            yield f"{prefix}{name}", value
        elif "hyper_parameters" in value:
            yield f"{prefix}{name}", value.get("name")
            if "dataset" in value:
                yield f"{prefix}{name}.dataset", value["dataset"]
            for hyper_parameter, setting in value["hyper_parameters"].items():
                yield f"{prefix}{name}.{hyper_parameter}", setting
        else:
            yield from dotted_settings(value, f"{prefix}{name}.")


def _plain(value: Any) -> Value:
    """Return a value that services show as it is; other objects as a text."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, list) and all(isinstance(one, _PLAIN) for one in value):
        return value
    return as_written(value)


def _title(config: Mapping[str, Any]) -> str:
    """Return algorithm and environment; empty where the algorithm is not known."""
    algorithm, env = _part(config, "algorithm"), environment(config).partition("(")[0]
    return "-".join(filter(None, (algorithm, env.replace("/", "-")))) if algorithm else ""


def _part(config: Mapping[str, Any], part: str) -> str:
    return str((config.get(part) or {}).get("name") or "")
