"""Presets: hyper-parameters that were tried for an algorithm in an environment, and the returns they reached."""

import functools
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from pytorchrl.agent.envs.copies.making import name_of_wrapper
from pytorchrl.agent.envs.other_packages import is_game
from pytorchrl.commands.composition.description import KINDS
from pytorchrl.commands.composition.parts import part_named, value_of
from storages.component.declared import hyper_parameters_of

_FOLDER = Path(str(resources.files("pytorchrl.commands") / "presets"))
_RETURNS, _PUBLISHED = "returns.yaml", "published.yaml"
_ATARI, _ANY = "Atari", "*"
"""Keys of presets for all games of Atari, and for all other environments."""
_MOST_NAMES = 5
"""Settings that a message names."""


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


def expected_return(algorithm: str, env: str, changed: Sequence[str] = ()) -> str | None:
    """Return a sentence about the return that a preset has reached, else about a published one; None without both.

    Args:
        algorithm: name of its class.
        env: id of the environment.
        changed: names of settings in which a run differs from the preset.
    """
    if (said := _return_of(algorithm, env)) is None or not changed:
        return said
    names = ", ".join(changed[:_MOST_NAMES]) + (" and more" if len(changed) > _MOST_NAMES else "")
    return f"{said} That is of the unchanged preset, from which this run differs in {names}."


def _return_of(algorithm: str, env: str) -> str | None:
    found = _content(_RETURNS).get(algorithm, {}).get(env)
    if found is not None:
        returns = found["returns"]
        count = len(returns)
        mean = f"{statistics.mean(returns):,.1f} over {count} seeds" if count > 1 else f"{returns[0]:,.1f}"
        return (
            f"Its policies reached a mean return of {mean} after {found['steps']:,} steps, in {found['minutes']:g} "
            f"minutes of a processor core."
        )
    published = _content(_PUBLISHED).get(algorithm, {}).get(env)
    if published is not None:
        return (
            f"Published: a mean return of {published['return']:,.1f} after {published['steps']:,} steps "
            f"({published['source']}); the preset's own is not measured yet."
        )
    return None


def no_preset(algorithm: type[Any], env: str) -> str:
    """Return a sentence that says that there is no preset, and which algorithms have one there.

    Args:
        algorithm: its class.
        env: id of the environment.
    """
    said = f"No preset for {algorithm.__name__} in {env}: default hyper-parameters"
    for other in (env, *_other_ids(env)):
        if names := _algorithms_with_presets(other):
            return f"{said}; presets {'there' if other == env else f'in {other}'}: {', '.join(names)}."
    return f"{said}."


def replaced_settings(preset: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return the wrappers and arguments of a preset's environments that given ones replace, for a message.

    Args:
        preset: of an algorithm in the environment.
        given: hyper-parameters of :class:`~pytorchrl.agent.envs.vec_env.VecEnv`, as values or texts.
    """
    of_env, replaced = preset.get("env", {}), []
    if "wrappers" in of_env and "wrappers" in given:
        wrappers = value_of(given["wrappers"])
        kept = {name_of_wrapper(one) for one in (wrappers if isinstance(wrappers, list) else [wrappers])}
        names = [name for name in map(name_of_wrapper, of_env["wrappers"]) if name not in kept]
        replaced += [f"the wrapper{'s' if len(names) > 1 else ''} {', '.join(names)}"] if names else []
    if "env_kwargs" in of_env and "env_kwargs" in given:
        arguments = value_of(given["env_kwargs"]) or {}
        replaced += [f"{key}={value!r}" for key, value in of_env["env_kwargs"].items() if key not in arguments]
    return replaced


def _algorithms_with_presets(env: str) -> list[str]:
    found = {env, _ATARI} if is_game(env) else {env}
    return sorted(algorithm for algorithm, of_envs in _presets().items() if found & of_envs.keys())


def _other_ids(env: str) -> list[str]:
    """Return ids of the same task: of another version, or gymnasium's where EnvPool has a shorter one."""
    name, version, _ = env.rpartition("-v")
    ids = {one for of_envs in _presets().values() for one in of_envs if version and one.startswith(f"{name}-v")}
    return [*sorted(ids, reverse=True), f"ALE/{env}"]


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
    files = (file.name for file in sorted(_FOLDER.glob("*.yaml")) if file.name not in (_RETURNS, _PUBLISHED))
    return {algorithm: of_envs for file in files for algorithm, of_envs in _content(file).items()}


@functools.cache
def _content(file: str) -> dict[str, Any]:
    # The loader in C, where it is there, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content: dict[str, Any] = yaml.load((_FOLDER / file).read_text(encoding="utf-8"), loader)
    return content
