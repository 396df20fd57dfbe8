"""Rebuilding factories from a composition as plain data, and comparing compositions."""

import functools
import inspect
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.device import DefaultDtypeError, DeviceError, find_device
from pytorchrl.agent.envs.other_packages import find_registered
from pytorchrl.agent.envs.spaces import have_other_bounds, space_from_data
from pytorchrl.agent.envs.vec_env import VecEnv, one_copy
from pytorchrl.agent.global_generators import seeded
from pytorchrl.experiments.runs import checkpoint, storage_paths
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.user_modules import (
    factory_function,
    function_named,
    is_imported,
    is_unannotated_function,
    missing_modules_named,
)
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.dataset_factory import from_dataset
from pytorchrl.scheme.distributed import RayScheme
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS
from pytorchrl.scheme.hogwild import HogwildScheme
from pytorchrl.scheme.scheme import Scheme
from storages.component.factory import Component, Factory, make_factory
from storages.component.schedule import FunctionSchedule
from storages.component.setting import Setting, is_callable
from storages.errors import DatasetError
from storages.names_on_demand import read_names
from storages.storage import Storage

COMPOSITION = (
    "algorithm",
    "actor",
    "storage",
    "sources",
    "mixed",
    "train_envs",
    "test_envs",
    "normalize_rewards",
    "collection",
    "device",
    "seed",
    "distributed",
    "hogwild",
)
"""Keys of a configuration that belong to the composition."""
_OF_AGENTS = "DrivenEnvs"
"""Name of the environments of :class:`prl.Agent`, which are not here."""


def scheme_from_config(config: Mapping[str, Any], data: Sequence[str] = ()) -> Scheme:
    """Build the scheme that a configuration describes.

    Classes are looked up by name among those already imported: a configuration cannot execute other code. Data sets
    are opened where the user says.

    Args:
        config: the configuration.
        data: the present paths of the data sets that it names, in the order of `storage_paths.data_sets_of`.

    Raises:
        CompositionError: it names a class that is not imported, a function that cannot be rebuilt from plain data, or
            another number of data sets.
    """
    data_sets = _given_data(config, data)
    if (config["train_envs"] or {}).get("name") == _OF_AGENTS:
        raise CompositionError(
            "the run is of a prl.Agent, whose program steps the environments; start that program again, with "
            "prl.Agent(..., resume=True)"
        )
    refuse_to_import(config, _WAY_OUT)
    refuse_classes_of_a_script(without_classes_of_callbacks(config), _WAY_OUT)
    try:
        device = find_device(config["device"])
    except DeviceError as error:
        raise CompositionError(
            f"the run is made on the device that it began on, {config['device']}: {error}"
        ) from error
    parts = {
        "algo_factory": made_of(config["algorithm"]),
        "actor_factory": made_of(config["actor"]),
        "storage_factory": _storage_factory(config["storage"], data_sets),
        "train_envs_factory": made_of(config["train_envs"]),
        "test_envs_factory": made_of(config["test_envs"]),
        "sources": {name: _storage_factory(one, data_sets) for name, one in config.get("sources", {}).items()},
        "mixed": made_of(config.get("mixed", {})),
        "normalize_rewards": config.get("normalize_rewards"),
        "device": device,
        "seed": config["seed"],
        "max_test_episode_steps": config.get("max_test_episode_steps", MAX_EPISODE_STEPS),
        "test_seed": config.get("test_seed"),
    }
    if (distributed := config.get("distributed")) is not None:
        return RayScheme(**parts, **made_of(distributed), resources=config["resources"])
    if (hogwild := config.get("hogwild")) is not None:
        return HogwildScheme(**parts, **made_of(hogwild))
    return Scheme(**parts, collection=made_of(config.get("collection")))


@contextmanager
def made_scheme(config: Mapping[str, Any], data: Sequence[str], file: Path) -> Iterator[Scheme]:
    """Build the scheme that the configuration in a file describes; it is closed again if the context raises.

    Args:
        config: the configuration.
        data: as of :func:`scheme_from_config`.
        file: named by errors of the configuration.

    Raises:
        CheckpointError: the configuration does not fit its own composition.
        CompositionError: as of :func:`scheme_from_config`.
    """
    try:
        with as_checkpoint_error(file):
            scheme = scheme_from_config(config, data)
    except CheckpointError as error:
        if not data or not isinstance(error.__cause__, DatasetError):
            raise
        run = shlex.quote(str(file.parent))
        raise CheckpointError(
            f"{error}. A run goes on with the data that it began with; to learn from other data, begin a new run with "
            f"its weights: python -m pytorchrl train --from {run} --data {shlex.join(data)} --steps COUNT"
        ) from error
    try:
        yield scheme
    except BaseException:
        # Ctrl-C, too, must leave no environments and locks behind. An error while closing must not replace the first.
        with suppress(Exception):
            scheme.close()
        raise


def _given_data(config: Mapping[str, Any], data: Sequence[str]) -> dict[str, str]:
    """Return the given path of each data set that a configuration names."""
    named = storage_paths.data_sets_of(config)
    if data and not named:
        raise CompositionError(f"the run learns from no data set, got {', '.join(data)}; leave it out")
    if len(named) != len(data):
        which = "data set" if len(named) == 1 else "data sets"
        each = "it" if len(named) == 1 else "each of them, in this order,"
        raise CompositionError(
            f"the run learns from the {which} {', '.join(named)}, and {len(data)} were given; name {each} by "
            f"{shlex.join(['--data', *named])}, or in a script by data={named!r}"
        )
    return dict(zip(named, data, strict=True))


def _storage_factory(config: Mapping[str, Any], data_sets: Mapping[str, str]) -> Factory[Storage]:
    """Return the factory of a storage, which is filled from the given data set if the configuration names one."""
    described = {name: config[name] for name in ("name", "hyper_parameters")}
    factory: Factory[Storage] = made_of(described)
    if "dataset" not in config:
        return factory
    return from_dataset(
        factory,
        data_sets[config["dataset"]],
        select=made_of(config.get("select")),
        returns_to_go=config.get("returns_to_go"),
    )


def load_agent(run: str | os.PathLike[str], envs_factory: Factory[VecEnv] | None = None) -> tuple[Algorithm, VecEnv]:
    """Load the algorithm of a run's newest checkpoint, on the CPU, and make environments, but no storage.

    Args:
        run: the run folder.
        envs_factory: of the environments; None makes one copy of the run's test environment.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or the environments have other bounds of actions.
        CompositionError: the algorithm cannot be built from ``config.json`` alone.
    """
    folder = RunFolder(run)
    config = folder.read_config()
    # Mapped: the transitions of a storage in the checkpoint are not needed.
    state = checkpoint.load(folder.checkpoint_file, checkpoint.READING, is_mapped=True)
    with missing_modules_named(config):
        for refuse in (refuse_to_import, refuse_classes_of_a_script):
            refuse(without_classes_of_callbacks(config), f"{_IMPORT}, or make the scheme in a script")
        with as_checkpoint_error(folder.config_file):
            algo_factory, actor_factory = acting_algorithm_of(config["algorithm"]), made_of(config["actor"])
            if envs_factory is None:
                envs_factory = one_copy(envs_of(config, folder.path))
    envs = envs_factory()
    try:
        with as_checkpoint_error(folder.checkpoint_file):
            check_action_bounds(config, envs.action_space, folder.path)
            # The initial weights, which the saved ones replace, are not drawn from the user's random numbers.
            with seeded(np.random.SeedSequence(0), torch.device("cpu")):
                algorithm: Algorithm = algo_factory("cpu", actor_factory("cpu", envs), envs)
            algorithm.load_state_dict(state["scheme"]["algorithm"])
            algorithm.set_progress(state["scheme"]["collector"]["steps"], config["target_steps"])
    except BaseException:
        envs.close()
        raise
    return algorithm, envs


def check_action_bounds(config: Mapping[str, Any], action_space: gym.Space[Any], run: Path) -> None:
    """Check that a run's actions had the bounds of these, to which its policy's outputs were scaled or clipped.

    Args:
        config: of the run.
        action_space: of one environment.
        run: its folder or file, for the error.

    Raises:
        CheckpointError: they had others.
    """
    trained = space_from_data(config["spaces"]["action"])
    if have_other_bounds(trained, action_space):
        raise CheckpointError(
            f"{run} learnt actions of {trained}, but these environments have {action_space}, for which its policy's "
            f"actions would mean others; take environments of the same bounds, for example by the wrapper RescaleAction"
        )


def action_names_in(config: Mapping[str, Any]) -> list[str]:
    """Return the names of a run's discrete actions, in the order of their numbers; none where its data had none."""
    names = config.get("spaces", {}).get("action_names", [])
    return [str(name) for name in names] if isinstance(names, list | tuple) else []


def check_action_names(config: Mapping[str, Any], names: Sequence[str], whose: str, run: Path) -> None:
    """Check that a run's discrete actions had these names, where both have some.

    Args:
        config: of the run.
        names: in the order of their numbers.
        whose: the data that have them, for the error.
        run: its folder or file, for the error.

    Raises:
        CheckpointError: they had others, or another order.
    """
    learnt = action_names_in(config)
    if learnt and names and learnt != list(names):
        raise CheckpointError(
            f"{run} learnt the actions {', '.join(learnt)}, numbered in this order, and {whose} have "
            f"{', '.join(names)}; write the same words in the table, and convert it with --action-names "
            f"{shlex.join(learnt)}"
        )


def envs_of(config: Mapping[str, Any], run: Path) -> Factory[VecEnv]:
    """Return the factory of a run's test environments, built from its configuration.

    Raises:
        CompositionError: the run had none, or they cannot be built from a file.
    """
    described = config["test_envs"] or config["train_envs"]
    if described is None:
        raise CompositionError(
            f"the run in {run} had no environments; name one to act in: python -m pytorchrl evaluate "
            f"{shlex.quote(str(run))} --env ID, or load_policy(RUN).evaluate(ID). The value of its policy is estimated "
            f"from data by: python -m pytorchrl evaluate {shlex.quote(str(run))} --data DATA"
        )
    if described["name"] == _OF_AGENTS:
        raise CompositionError(
            f"the run in {run} is of a prl.Agent, whose program steps the environments, so that it has none to act in; "
            f"name one in a script: prl.load_policy({str(run)!r}).evaluate(ENV)"
        )
    refuse_to_import(described, _WAY_OUT)
    factory: Factory[VecEnv] = made_of(described)
    return factory


def differences(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return the differences of two compositions, a line each: ``storage.size: 1000 here, 500 in the checkpoint``.

    Paths of storages and data sets are not compared; the data itself is compared when it is loaded.
    """
    here, there = (
        dict(_flat({key: config.get(key) for key in COMPOSITION}))
        for config in map(storage_paths.without_paths, (expected, found))
    )
    missing = "nothing"
    return [
        f"{name}: {here.get(name, missing)} here, {there.get(name, missing)} in the checkpoint"
        for name in dict.fromkeys([*here, *there])
        if here.get(name, missing) != there.get(name, missing)
    ]


_MISFITS = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError),
    # Raised by environments that replay their actions when they are restored.
    gym.error.Error,
)
"""Exceptions raised by loading a file with unexpected contents."""


@contextmanager
def as_checkpoint_error(path: Path) -> Iterator[None]:
    """Turn exceptions of unexpected file contents into a :class:`CheckpointError` that names the file.

    Raises:
        CheckpointError: instead of any exception in ``_MISFITS``.
    """
    try:
        yield
    except (CheckpointError, CompositionError, DefaultDtypeError, DeviceError, ImportError):
        raise
    except _MISFITS as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error) or repr(error)
        raise CheckpointError(f"{path} does not fit its own composition: {' '.join(reason.split())}") from error


def refuse_to_import(config: Mapping[str, Any], way_out: str) -> None:
    """Refuse environments that would import a module, are not registered, or write files."""
    for hyper_parameters in _described(config):
        env = hyper_parameters.get("env")
        if isinstance(env, str) and ":" in env and not is_imported(env.partition(":")[0]):
            raise CompositionError(f"env {env!r} would import a module named by a file; {way_out}")
        # EnvPool has ids of its own.
        if isinstance(env, str) and hyper_parameters.get("backend", "gymnasium") != "envpool":
            try:
                find_registered(env)
            except gym.error.Error as error:
                raise CompositionError(f"env {env!r} is not registered here; {way_out}") from error
        for wrapper in hyper_parameters.get("wrappers", ()):
            name, *arguments = [wrapper] if isinstance(wrapper, str) else wrapper
            if name in WRITE_FILES:
                raise CompositionError(
                    f"the wrapper {name} would write to a path given in a file: {arguments}; {way_out}"
                )


def _described(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the hyper-parameters of all parts of a configuration, including nested ones."""
    if isinstance(config, Mapping):
        if isinstance(config.get("hyper_parameters"), Mapping):
            yield config["hyper_parameters"]
        config = list(config.values())
    if isinstance(config, list):
        for item in config:
            yield from _described(item)


WRITE_FILES = frozenset({"RecordVideo"})
"""Wrappers of gymnasium that write to a folder given as an argument."""
_IN_A_SCRIPT = (
    "make the scheme in a script and pass it: Learner.resume(log_dir, scheme=scheme), or Learner(scheme, ...)"
)
_IMPORT = "import the module that defines it, before this call in Python, by --import MODULE in a command"
_WAY_OUT = f"{_IMPORT}, or {_IN_A_SCRIPT}"


def refuse_classes_of_a_script(config: Mapping[str, Any], way_out: str) -> None:
    """Refuse user-defined classes that are not imported, even if a class of the toolkit has the same name."""
    for name in config.get("own_classes", ()):
        if not any(cls.__name__ == name and not is_ours(cls) for cls in _composable()):
            raise CompositionError(f"the run was composed with the class {name} of a script; {way_out}")


def without_classes_of_callbacks(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration that names no user-defined classes of callbacks alone, which only training calls."""
    others = set(_names_in({name: part for name, part in config.items() if name != "callbacks"}))
    left_out = set(_names_in(config.get("callbacks", []))) - others
    return {**config, "own_classes": [name for name in config.get("own_classes", ()) if name not in left_out]}


def refuse_callbacks_of_a_script(config: Mapping[str, Any], way_out: str) -> None:
    """As :func:`refuse_classes_of_a_script`, of the callbacks of a configuration."""
    named = set(_names_in(config.get("callbacks", [])))
    own = [name for name in config.get("own_classes", ()) if name in named]
    refuse_classes_of_a_script({"own_classes": own}, way_out)


def _names_in(config: Any) -> Iterator[str]:
    if isinstance(config, Mapping):
        if isinstance(name := config.get("name"), str):
            yield name
        config = list(config.values())
    if isinstance(config, list):
        for part in config:
            yield from _names_in(part)


def made_of(config: Any) -> Any:
    """Return the factory, setting or plain data that a part of a configuration describes."""
    if isinstance(config, list):
        return [made_of(item) for item in config]
    if not isinstance(config, Mapping):
        return config
    if is_callable(config):
        maker = _maker_named(str(config["callable"]))
        return functools.partial(maker, **config["arguments"]) if "arguments" in config else maker
    if set(config) != {"name", "hyper_parameters"}:
        return {key: made_of(value) for key, value in config.items()}
    _refuse_functions_of_schedules(config)
    hyper_parameters = {name: made_of(value) for name, value in config["hyper_parameters"].items()}
    cls = class_named(config["name"])
    if issubclass(cls, Component):
        return make_factory(cls, (), hyper_parameters)
    return cls(**hyper_parameters)


def _is_function_schedule(config: Any) -> bool:
    return isinstance(config, Mapping) and config.get("name") == FunctionSchedule.__name__


def _refuse_functions_of_schedules(config: Mapping[str, Any]) -> None:
    """Refuse a schedule of a function, imported or not: no function is called because a file names it.

    Raises:
        CompositionError: the message names the hyper-parameter.
    """
    for name, value in config["hyper_parameters"].items():
        function = value["hyper_parameters"].get("function") if _is_function_schedule(value) else None
        if isinstance(function, Mapping) and is_callable(function):
            raise CompositionError(
                f"{name} of {config['name']} is a FunctionSchedule of {function['callable']}, which a run folder "
                f"cannot make again, imported or not, as no function is called because a file names it; go on with the "
                f"same train command, or {_IN_A_SCRIPT}. A schedule of a class of your own can be saved, as "
                f"LinearSchedule can"
            )


def _maker_named(name: str) -> Any:
    """Return the user's class or function of that name that makes environments, wrappers or networks.

    Raises:
        CompositionError: none is imported, or it is a function that a configuration may not name.
    """
    if not name.isidentifier():
        raise CompositionError(
            f"the run was composed with {name}, which a run folder cannot name; {_IN_A_SCRIPT}; load_policy takes the "
            f"factory that has it, prl.load_policy(path, actor_factory=...) or algo_factory=..."
        )
    if (maker := factory_function(name)) is not None:
        return maker
    if function_named(name) is not None or is_unannotated_function(name):
        raise CompositionError(
            f"the run was composed with the function {name}, which a run's configuration may not name unless it is "
            f"annotated to return an environment, wrapper or network, such as -> torch.nn.Module; go on with the same "
            f"train command, or {_IN_A_SCRIPT}"
        )
    raise CompositionError(f"the run was composed with the class or function {name}; {_WAY_OUT}")


def acting_algorithm_of(config: Mapping[str, Any]) -> Factory[Algorithm]:
    """As :func:`made_of` the configuration of an algorithm, for acting greedily: functions of training are left out."""
    cls = class_named(config["name"])
    if not issubclass(cls, Algorithm):
        raise CompositionError(f"the run was composed with {cls.__name__}, which is no algorithm")
    hyper_parameters = {
        name: _left_out if name in cls.called_in_training else made_of(_without_functions(value, name))
        for name, value in config["hyper_parameters"].items()
    }
    return make_factory(cls, (), hyper_parameters)


def _without_functions(config: Any, name: str) -> Any:
    """Replace schedules of functions in the configuration of a hyper-parameter by what greedy actions need of them."""
    if _is_function_schedule(config):
        low, high = (config["hyper_parameters"][bound] for bound in ("low", "high"))
        # Learning rates are read while an algorithm is made; nothing is learnt with them.
        is_rate = name == "lr" or name.startswith("lr_") or name.endswith("_rate")
        return high if is_rate else FunctionSchedule(_left_out, low, high)
    if isinstance(config, Mapping):
        return {key: _without_functions(value, key) for key, value in config.items()}
    return [_without_functions(value, name) for value in config] if isinstance(config, list) else config


def _left_out(*_: Any) -> Any:
    raise CompositionError(
        "the algorithm was loaded to act greedily, without the functions that training calls, such as an expert or a "
        "schedule; to train, make the scheme in a script, and to explore, give algo_factory to load_policy"
    )


def class_named(name: str) -> type:
    """Return the concrete component or setting class of that name, of the toolkit or imported.

    Raises:
        CompositionError: there is none, or more than one.
    """
    read_names("pytorchrl", name)
    # A set, as a class with several bases is found more than once.
    found = {cls for cls in _composable() if cls.__name__ == name and not inspect.isabstract(cls)}
    # Exporting a network makes torch define further classes of the same name.
    candidates = {cls for cls in found if getattr(sys.modules.get(cls.__module__), name, cls) is cls}
    if len(candidates) != 1:
        reason = "is defined more than once" if candidates else "is not defined"
        raise CompositionError(f"the run was composed with the class {name}, which {reason} here; {_WAY_OUT}")
    return candidates.pop()


def is_ours(cls: type) -> bool:
    """Whether a class is defined by the toolkit itself, so that any process that resumes a run has it."""
    return cls.__module__.partition(".")[0] in ("pytorchrl", "storages")


def _composable() -> Iterator[type]:
    yield from _subclasses(Component)
    yield from _subclasses(Setting)


def _subclasses(cls: type) -> Iterator[type]:
    subclasses: list[type] = cls.__subclasses__()
    for subclass in subclasses:
        yield subclass
        yield from _subclasses(subclass)


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            name = prefix if key == "hyper_parameters" else f"{prefix}.{key}" if prefix else key
            yield from _flat(item, name)
    else:
        yield prefix, value
