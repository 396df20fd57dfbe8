"""Descriptions of runs by names and values, from presets, configuration files and the command line."""

import collections.abc
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.envs.games.atari_envs import preprocessed
from pytorchrl.commands.composition.parts import actor_for, part_named, storage_for
from pytorchrl.commands.composition.values import value_of
from pytorchrl.experiments.runs.user_modules import factory_function, function_named
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.compatibility import CompositionError
from storages import Storage
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Component, Factory
from storages.component.setting import text_of

KINDS: Mapping[str, type[Component]] = {"algorithm": Algorithm, "actor": Actor, "storage": Storage, "env": VecEnv}
"""Base classes of the parts of a run, by their names in options and files."""
_SETTINGS = ("steps", "preprocessing")
_ANY_ENVIRONMENT = "*"
_REPLAYED_TRANSITIONS, _ROLLOUT_TRANSITIONS = 100_000, 2_048
_STEPS = 100_000


@dataclass(frozen=True)
class Composed:
    """The factories and the number of steps that a description is resolved to."""

    algorithm: Factory[Algorithm]
    actor: Factory[Actor]
    storage: Factory[Storage]
    envs: Factory[VecEnv] | None
    """None for a run that learns from data alone, whose spaces are those of the data."""
    steps: int
    env_name: str | None
    """The environment's name as it was given; that of a game of Atari is not in its factory."""
    is_preprocessed: bool
    """Whether frames of Atari are preprocessed that would be raw."""

    def scheme(self, seed: int, device: str) -> Scheme:
        """Make a scheme of the parts."""
        return Scheme(self.algorithm, self.actor, self.storage, self.envs, device=device, seed=seed)

    def __str__(self) -> str:
        parts = (self.algorithm, self.actor, self.storage, self.envs)
        return "\n".join(_told(part) for part in parts if part is not None)


def preset_of(algorithm: str, env: str) -> tuple[dict[str, Any], str | None]:
    """Return the preset of an algorithm for an environment, and its name; empty and None where there is none."""
    presets = read_yaml(Path(str(resources.files("pytorchrl.commands") / "presets.yaml")))
    of_algorithm = presets.get(algorithm, {})
    for name in (env, _ANY_ENVIRONMENT):
        if name in of_algorithm:
            return of_algorithm[name], f"{algorithm}, {'any environment' if name == _ANY_ENVIRONMENT else name}"
    return {}, None


def fitted(preset: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset without hyper-parameters that classes which were chosen instead of its defaults do not have."""
    kept = dict(preset)
    for kind, cls in KINDS.items():
        name = chosen.get(kind, {}).get("name")
        if kind in preset and "name" not in preset[kind] and name is not None and kind != "env":
            known = hyper_parameters_of(part_named(cls, name))
            kept[kind] = {key: value for key, value in preset[kind].items() if key in known}
    return kept


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


def checked(description: Mapping[str, Any], path: Path, further: tuple[str, ...]) -> dict[str, Any]:
    """Check the description in a configuration file, and return it with each part as a mapping.

    Args:
        description: the content of the file.
        path: of the file, for errors.
        further: names of other settings that are allowed.

    Raises:
        CompositionError: a name is unknown, or a part is neither a name nor a mapping.
    """
    known = (*KINDS, *_SETTINGS, *further)
    for name in description:
        if name not in known:
            raise CompositionError(f"{path}: unknown key {name!r}; choose from {', '.join(known)}")
    parts = {}
    for kind in KINDS:
        part = description.get(kind, {})
        parts[kind] = {"name": part} if isinstance(part, str) else part
        if not isinstance(parts[kind], dict):
            raise CompositionError(f"{path}: {kind} must be a name, or a mapping of hyper-parameters, got {part!r}")
        if not isinstance(named := parts[kind].get("name"), str | None):
            raise CompositionError(f"{path}: the name of {kind} must be a text, got {named!r}")
    return {**description, **parts}


def merged(*descriptions: Mapping[str, Any]) -> dict[str, Any]:
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


def composed(
    description: Mapping[str, Any], factories: Mapping[str, Factory[Any]] | None = None, *, needs_env: bool = True
) -> Composed:
    """Make the factories of a description.

    Args:
        description: names and hyper-parameters of the parts.
        factories: parts given as factories, which are used unchanged.
        needs_env: whether an environment must be named; else one without hyper-parameters may be missing.

    Raises:
        CompositionError: it names an unknown class, no algorithm or no environment.
        ValueError: a hyper-parameter is not valid.
    """
    made = dict(factories or {})
    for kind in ("algorithm", "env"):
        is_optional = kind == "env" and not needs_env and not description[kind]
        if kind not in made and not description[kind].get("name") and not is_optional:
            raise CompositionError(f"no {kind} is given; name one by --{kind}")
    if "algorithm" not in made:
        algorithm = part_named(Algorithm, description["algorithm"]["name"])
        made["algorithm"] = _factory(algorithm, _without_name(description["algorithm"]))
    if "env" not in made and description["env"]:
        named = description["env"]["name"]
        made["env"] = _factory(
            VecEnv, {"env": factory_function(str(named)) or named} | _without_name(description["env"])
        )
    given_envs = made.get("env")
    if given_envs is not None and "env" not in (factories or {}) and description.get("preprocessing", True):
        made["env"] = preprocessed(given_envs)
    if "storage" not in made:
        storage = storage_class(description, made["algorithm"].cls)
        of_storage = _without_name(description["storage"])
        if "size" not in of_storage and "size" in hyper_parameters_of(storage):
            transitions = _ROLLOUT_TRANSITIONS if storage.on_policy else _REPLAYED_TRANSITIONS
            num_envs = made["env"].hyper_parameters["num_envs"] if "env" in made else 1
            of_storage = {"size": max(1, transitions // num_envs)} | of_storage
        made["storage"] = _factory(storage, of_storage)
    if "actor" not in made:
        name = description["actor"].get("name")
        actor = actor_for(made["storage"].cls) if name is None else part_named(Actor, name)
        made["actor"] = _factory(actor, _without_name(description["actor"]))
    env = None if given_envs is None else given_envs.hyper_parameters["env"]
    return Composed(
        made["algorithm"],
        made["actor"],
        made["storage"],
        made.get("env"),
        description.get("steps") or _STEPS,
        env if env is None or isinstance(env, str) else text_of(env),
        made.get("env") is not given_envs,
    )


def storage_class(description: Mapping[str, Any], algorithm: type[Algorithm]) -> type[Storage]:
    """Return the storage class that a description names, or the default for an algorithm."""
    name = description["storage"].get("name")
    chosen: type[Storage] = storage_for(algorithm) if name is None else part_named(Storage, name)
    return chosen


def _told(factory: Factory[Any]) -> str:
    """Format a factory with its non-default hyper-parameters."""
    defaults = {name: parameter.default for name, parameter in hyper_parameters_of(factory.cls).items()}
    changed = [f"{k}={v!r}" for k, v in factory.hyper_parameters.items() if k not in defaults or v != defaults[k]]
    return f"{factory.name}({', '.join(changed)})"


def _without_name(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in part.items() if name != "name"}


def _factory(cls: type[Any], given: Mapping[str, Any]) -> Factory[Any]:
    """Make a factory from values or texts.

    Where a sequence is expected, a single value becomes one; where a function is, the name of one of an imported module
    becomes the function.
    """
    parameters = hyper_parameters_of(cls)
    values = {name: value_of(value) for name, value in given.items()}
    for name, value in values.items():
        wanted = parameters[name].annotation if name in parameters else Any
        if typing.get_origin(wanted) is collections.abc.Sequence and not isinstance(value, list):
            values[name] = [value]
        elif isinstance(value, str) and _is_of_functions(wanted):
            values[name] = function_named(value) or value
    try:
        factory: Factory[Any] = cls.create_factory(**values)
    except TypeError as error:
        # A hyper-parameter that a file names, but the class does not have.
        raise CompositionError(str(error)) from error
    return factory


def _is_of_functions(annotation: Any) -> bool:
    """Whether an annotation is that of functions, or None, alone."""
    kinds = {typing.get_origin(one) or one for one in (typing.get_args(annotation) or (annotation,))}
    return kinds - {type(None)} == {collections.abc.Callable}
