"""Make the parts of a run from names and texts: look up classes, convert values, and make factories."""

import ast
import collections.abc
import difflib
import functools
import inspect
import itertools
import re
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytorchrl as prl
from pytorchrl.agent.actors import Actor, OffPolicyActor, OnPolicyActor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.envs.copies.making import class_of_wrapper
from pytorchrl.agent.envs.games.atari_envs import preprocessed
from pytorchrl.agent.other_names.items import answers
from pytorchrl.experiments.runs.composition import class_named, is_ours
from pytorchrl.experiments.runs.user_modules import factory_function, function_named
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.compatibility import CompositionError
from storages import GAEBuffer, ReplayBuffer, Storage, VanillaOnPolicyBuffer, VTraceBuffer
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Factory
from storages.component.schedule import Schedule
from storages.component.setting import Setting, text_of
from storages.names_on_demand import read_names

_REPLAYED_TRANSITIONS, _ROLLOUT_TRANSITIONS = 100_000, 2_048
_STEPS = 100_000
_WORDS = {"true": True, "false": False, "none": None, "null": None}
"""Constants as YAML writes them."""
_BEGINS_A_CALL = re.compile(r"^\s*[A-Za-z_]\w*\(")


@dataclass(frozen=True)
class RunParts:
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
    named: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Hyper-parameters that a preset names, by the kind of part; they are printed even where they are the default."""

    def scheme(self, seed: int, device: str) -> Scheme:
        """Make a scheme of the parts."""
        return Scheme(**self.scheme_arguments(), device=device, seed=seed)

    def scheme_arguments(self) -> dict[str, Any]:
        """Return the factories by the names of the scheme's arguments."""
        return {
            "algo_factory": self.algorithm,
            "actor_factory": self.actor,
            "storage_factory": self.storage,
            "train_envs_factory": self.envs,
        }

    def __str__(self) -> str:
        parts = {"algorithm": self.algorithm, "actor": self.actor, "storage": self.storage, "env": self.envs}
        return "\n".join(
            _format_factory(part, self.named.get(kind, ())) for kind, part in parts.items() if part is not None
        )


def make_parts(
    description: Mapping[str, Any], factories: Mapping[str, Factory[Any]] | None = None, *, needs_env: bool = True
) -> RunParts:
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
    return RunParts(
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


_ALL_BUT_INITIALS = re.compile("[^A-Z]")
"""All but the upper-case letters, which are the initials of a class name."""


def part_named(kind: type[Any], name: str) -> type[Any]:
    """Find a class by its name or short name: "per" and "per-buffer" mean PERBuffer, "off-policy" OffPolicyActor.

    Raises:
        CompositionError: there is none.
    """
    found: dict[str, type[Any]] = {}
    for cls in _concrete(kind):
        key = _key(cls.__name__)
        for name_of_kind in ("actor", "buffer", "replaybuffer"):
            found.setdefault(key.removesuffix(name_of_kind) or key, cls)
    # A whole name comes before a shortened one.
    found |= {_key(cls.__name__): cls for cls in _concrete(kind)}
    if _key(name) in found:
        return found[_key(name)]
    # BC is the name of behaviour cloning in papers.
    initials = [each for each in names_of(kind) if _key(_ALL_BUT_INITIALS.sub("", each)) == _key(name)]
    if not initials and (answer := answers().get(name) or _answers_by_key().get(_key(name))):
        raise CompositionError(f"there is no {kind.__name__.lower()} {name!r}; {answer}")
    near = initials or [found[key].__name__ for key in difflib.get_close_matches(_key(name), found, n=1)]
    hint = f"; did you mean {near[0]}?" if near else ""
    names = ", ".join(names_of(kind))
    raise CompositionError(f"there is no {kind.__name__.lower()} {name!r}{hint} (choose from {names})")


@functools.cache
def _answers_by_key() -> Mapping[str, str]:
    """Return what is here for each name of another library, by its key."""
    return {_key(name): answer for name, answer in answers().items()}


def names_of(kind: type[Any]) -> list[str]:
    """Return the names of all classes of a kind, sorted."""
    return sorted({cls.__name__ for cls in _concrete(kind)})


def storage_for(algorithm: type[Algorithm]) -> type[Storage]:
    """Return the default storage class of an algorithm."""
    if algorithm.sources["main"].older_policies:
        return VTraceBuffer
    if algorithm.sources["main"].kind == "rollout":
        return GAEBuffer if algorithm.sources["main"].values else VanillaOnPolicyBuffer
    return ReplayBuffer


def actor_for(storage: type[Storage]) -> type[Actor]:
    """Return the default actor class for a storage."""
    return OnPolicyActor if storage.on_policy else OffPolicyActor


class TextError(ValueError):
    """Text that is no value of a hyper-parameter."""


def value_of(text: Any) -> Any:
    """Convert a text to the value that it means, also within lists and mappings; other values stay unchanged.

    A Python literal is evaluated. ``Name(...)`` makes a setting: a schedule, an optimiser, an explorer, a kind of
    window, or a class of an imported module that extends ``Setting``; its arguments are converted in the same way, and
    the name of a function of an imported module becomes the function where an argument is one. A bare name is an object
    of an imported module that makes environments, wrappers or networks, found by :func:`factory_function`. Any other
    text stays a text. No other code is run.

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
    return _node_value(node, text)


def _format_factory(factory: Factory[Any], named: Collection[str] = ()) -> str:
    """Format a factory with its non-default hyper-parameters, and those that are named."""
    defaults = {name: parameter.default for name, parameter in hyper_parameters_of(factory.cls).items()}
    shown = [
        f"{name}={value!r}"
        for name, value in factory.hyper_parameters.items()
        if name in named or name not in defaults or value != defaults[name]
    ]
    return f"{factory.name}({', '.join(shown)})"


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
        if name == "wrappers" and issubclass(cls, VecEnv):
            values[name] = [wrapper_named(one) for one in values[name]]
        elif isinstance(value, str) and _is_of_functions(wanted):
            values[name] = function_named(value) or value
        elif isinstance(value, str) and (initial := _LINEAR.fullmatch(value)) and Schedule in _kinds_of(wanted):
            raise TextError(
                f"{cls.__name__}: {name}: {value!r} of other libraries is 'LinearSchedule({initial[1]}, 0)'"
            )
    try:
        factory: Factory[Any] = cls.create_factory(**values)
    except TypeError as error:
        # A hyper-parameter that a file names, but the class does not have.
        raise CompositionError(str(error)) from error
    return factory


def wrapper_named(given: Any) -> Any:
    """Return a wrapper of the environments, in which the name of a class of an imported module stands for the class."""
    is_pair = isinstance(given, list) and len(given) == 2 and isinstance(given[1], Mapping)
    name, arguments = given if is_pair else (given, {})
    if isinstance(name, str):
        made = None if class_of_wrapper(name) is not None else factory_function(name)
    else:
        made = name if callable(name) else None
    if made is None:
        return given
    return functools.partial(made, **arguments) if arguments else made


_LINEAR = re.compile(r"lin_([\d.]+(?:[eE][+-]?\d+)?)")
"""A learning rate that decays linearly, in the files of stable-baselines3's zoo."""


def _kinds_of(annotation: Any) -> set[Any]:
    """Return the types that an annotation admits."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _kinds_of(typing.get_args(annotation)[0])
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return set().union(*map(_kinds_of, typing.get_args(annotation))) if is_union else {annotation}


def _is_of_functions(annotation: Any) -> bool:
    """Whether an annotation is that of functions, or None, alone."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = {typing.get_origin(one) or one for one in (typing.get_args(annotation) if is_union else (annotation,))}
    return kinds - {type(None)} == {collections.abc.Callable}


def _node_value(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Call):
        return _setting(node, text)
    if isinstance(node, ast.Name):
        maker = factory_function(node.id)
        return _WORDS.get(node.id, node.id) if maker is None else maker
    if isinstance(node, ast.List | ast.Tuple):
        return [_node_value(element, text) for element in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {
            _node_value(key, text): _node_value(value, text)
            for key, value in zip(node.keys, node.values, strict=True)
            if key
        }
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        # A text such as an environment's id with a slash.
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
        near = difflib.get_close_matches(name, names_of(Setting), n=1)
        hint = f"did you mean {near[0]}?" if near else "--import the module that defines it"
        hint = answers().get(name, hint)
        raise TextError(f"there is no setting {name!r}, which {text!r} names; {hint}")
    parameters = inspect.signature(cls).parameters
    arguments = [
        _function_of(_node_value(argument, text), parameter)
        for argument, parameter in itertools.zip_longest(node.args, [*parameters.values()][: len(node.args)])
    ]
    named = {
        str(keyword.arg): _function_of(_node_value(keyword.value, text), parameters.get(str(keyword.arg)))
        for keyword in node.keywords
    }
    try:
        return cls(*arguments, **named)
    except (TypeError, ValueError) as error:
        raise TextError(f"{text!r}: {error}") from error


def _function_of(value: Any, parameter: inspect.Parameter | None) -> Any:
    """Return the function of an imported module that a value names, where a parameter takes one; else the value."""
    if isinstance(value, str) and parameter is not None and _is_of_functions(parameter.annotation):
        return function_named(value) or value
    return value


def _concrete(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield the concrete classes that the toolkit exports or that users define."""
    read_names(prl.__name__)
    for cls in _subclasses(kind):
        if not inspect.isabstract(cls) and (cls.__name__ in prl.__all__ or not is_ours(cls)):
            yield cls


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _key(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
