"""Instructions for resuming a run in a new process, by a command or from a script."""

import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from pytorchrl.agent.envs.other_packages import PACKAGES
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.experiments.runs.composition import WRITE_FILES, is_ours
from pytorchrl.experiments.runs.user_modules import is_maker, modules_to_import
from pytorchrl.scheme.dataset_factory import DatasetFactory
from storages.component.factory import Factory
from storages.component.schedule import FunctionSchedule
from storages.component.setting import Configured, is_callable, plain


class OwnPart(NamedTuple):
    """A user-defined part of a composition."""

    name: str
    module: str | None
    """The module that defines or registers it; None if a command cannot make it even with that module."""


def resume_command(folder: Path, modules: Iterable[str] = (), data_sets: Sequence[str] = ()) -> str:
    """Return the shell command that resumes the run in a folder.

    Args:
        folder: the run folder.
        modules: names of modules that define parts of the run.
        data_sets: paths of the data sets that the run learns from.
    """
    imports = [word for module in modules for word in ("--import", module)]
    data = ["--data", *data_sets] if data_sets else []
    return shlex.join([_python(), "-m", "pytorchrl", "resume", str(folder), *data, *imports])


def next_commands(
    folder: Path,
    factories: Sequence[Factory[Any]],
    callbacks: Iterable[Configured],
    target_steps: int,
    *,
    needs_scheme: bool = True,
) -> dict[str, str]:
    """Return what can be done with a complete run: to play or evaluate the policy, to plot curves, to train on.

    Args:
        folder: the run folder.
        factories: of the scheme, the algorithm's and the actor's first.
        callbacks: of the run.
        target_steps: the steps that it made.
        needs_scheme: whether a script has to make the scheme again, if ``modules`` is None.
    """
    modules, data_sets = modules_of(factories, callbacks), data_sets_of(factories)
    plot = shlex.join([_python(), "-m", "pytorchrl", "plot", str(folder)])
    if modules is None:
        scheme = "scheme=scheme, " if needs_scheme else ""
        more = f"prl.Learner.resume({str(folder)!r}, {scheme}target_steps={2 * target_steps})"
        return {"act": _code_of_loading(folder, *factories[:2]), "plot": plot, "train on": more}
    imports = [word for module in modules for word in ("--import", module)]
    play = shlex.join([_python(), "-m", "pytorchrl", "play", str(folder), *imports])
    more = f"{resume_command(folder, modules, data_sets)} --target-steps {2 * target_steps}"
    evaluate = [_python(), "-m", "pytorchrl", "evaluate", str(folder), "--data", *data_sets[:1], *imports]
    on_data = {"evaluate": shlex.join(evaluate)} if data_sets else {}
    return {"play": play, **on_data, "plot": plot, "train on": more}


def _code_of_loading(folder: Path, algorithm: Factory[Any], actor: Factory[Any]) -> str:
    """Return the code that loads the policy of a run, with those factories that its folder cannot describe."""
    training = algorithm.cls.called_in_training
    acting = {name: value for name, value in algorithm.hyper_parameters.items() if name not in training}
    parts = {"algo_factory": acting, "actor_factory": actor.hyper_parameters}
    functions = {
        name: [found for one in _parts_of(each, acting=True) if (found := _function_of(one))]
        for name, each in parts.items()
    }
    given = [name for name, each in functions.items() if modules_to_import(one.module for one in each) is None]
    return f"prl.load_policy({', '.join([repr(str(folder)), *(f'{name}={name}' for name in given)])})"


def data_sets_of(factories: Iterable[Factory[Any]]) -> list[str]:
    """Return the paths of the data sets that fill a run's storages, each once."""
    return list(dict.fromkeys(factory.path for factory in factories if isinstance(factory, DatasetFactory)))


def how_to_continue(
    folder: Path,
    factories: Iterable[Factory[Any]],
    callbacks: Iterable[Configured] = (),
    loggers: Sequence[str] = (),
    *,
    needs_scheme: bool = True,
) -> str:
    """Return instructions for resuming the run in a folder, to be printed after the word "continue".

    Args:
        folder: the run folder.
        factories: of the scheme.
        callbacks: of the run.
        loggers: class names of those that only a script can make.
        needs_scheme: whether a script has to make a scheme with user-defined parts again.
    """
    factories, callbacks = list(factories), list(callbacks)
    modules = modules_of(factories, callbacks)
    if modules is not None and not loggers:
        return f"with\n  {resume_command(folder, modules, data_sets_of(factories))}"
    of_scheme = dict.fromkeys(part.name for part in own_parts(factories) if needs_scheme)
    of_callbacks = dict.fromkeys(part.name for part in own_parts(callbacks))
    parts = {"scheme": of_scheme, "callbacks": of_callbacks, "log_to": dict.fromkeys(loggers)}
    given = [name for name, names in parts.items() if names]
    arguments = "".join(f", {name}={name}" for name in given)
    defined = ", ".join(dict.fromkeys(name for names in parts.values() for name in names))
    where = f"in the script that defines {defined}, with the {' and the '.join(given)} made as before"
    return (
        f"{where if given else 'in a script with the same imports'}:\n"
        f"  learner = prl.Learner.resume({str(folder)!r}{arguments})\n"
        f"  learner.run()"
    )


def modules_that_can_be_imported(factories: Iterable[Factory[Any]], callbacks: Iterable[Configured] = ()) -> list[str]:
    """Return the modules that define parts of a run, without the parts that only a script can make."""
    modules = [part.module for part in own_parts([*factories, *callbacks]) if part.module]
    found = [modules_to_import([module]) or () for module in dict.fromkeys(modules)]
    return modules_to_import(modules) or list(dict.fromkeys(name for names in found for name in names))


def modules_of(factories: Iterable[Factory[Any]], callbacks: Iterable[Configured] = ()) -> list[str] | None:
    """Return the modules that a command must import to rebuild a run; None if only a script can rebuild it."""
    return modules_to_import(part.module for part in own_parts([*factories, *callbacks]))


def own_parts(configured: Iterable[Configured]) -> Iterator[OwnPart]:
    """Yield the classes, functions, environments and wrappers that a new process lacks without further imports."""
    for one in configured:
        yield from _of_the_script(one)
        if not issubclass(one.cls, VecEnv):
            continue
        env = one.hyper_parameters.get("env")
        is_gymnasiums = one.hyper_parameters.get("backend", "gymnasium") == "gymnasium"
        if isinstance(env, str) and is_gymnasiums and _is_registered_by_the_script(env):
            yield OwnPart(f"the environment {env}", env.partition(":")[0] if ":" in env else "__main__")
        wrappers = one.hyper_parameters.get("wrappers", ())
        names = [name[0] if isinstance(name, list | tuple) else name for name in wrappers]
        yield from (OwnPart(f"the wrapper {name}", None) for name in names if name in WRITE_FILES)


def classes_of_the_script(parts_of_the_run: Iterable[Configured]) -> list[str]:
    """Return the names of user-defined classes among parts of a run and their hyper-parameters."""
    parts = (part for one in parts_of_the_run for part in _parts_of(one))
    return sorted({part.cls.__name__ for part in parts if isinstance(part, Configured) and not is_ours(part.cls)})


def _of_the_script(configured: Configured) -> Iterator[OwnPart]:
    for part in _parts_of(configured):
        if isinstance(part, Configured):
            if not is_ours(part.cls):
                name = part.cls.__name__
                yield OwnPart(name, part.cls.__module__ if part.cls.__qualname__ == name else None)
        elif (found := _function_of(part)) is not None:
            yield found


def _function_of(part: Any) -> OwnPart | None:
    """Return a class or function among the values of a composition, or a partial of one; None of another value."""
    described = plain(part)
    if not is_callable(described):
        return None
    name, made_by = str(described["callable"]), part.func if "arguments" in described else part
    module = made_by.__module__ if is_maker(made_by, name) else None
    return OwnPart(name.replace("<lambda>", "a lambda"), module)


def _parts_of(value: Any, *, acting: bool = False) -> Iterator[Any]:
    """Yield a value and all factories, settings and plain values that it contains.

    Args:
        value: of a composition.
        acting: leave out schedules of functions, which greedy actions do not need.
    """
    if acting and isinstance(value, FunctionSchedule):
        return
    if isinstance(value, Configured):
        yield value
        value = value.hyper_parameters
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _parts_of(item, acting=acting)
    else:
        yield value


def _is_registered_by_the_script(env_id: str) -> bool:
    """Whether gymnasium knows the id only after a script has registered it."""
    if ":" in env_id:
        # Its module has to be imported, which resuming from a file alone never does.
        return True
    entry = gym.spec(env_id).entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    package = module.partition(".")[0]
    if package in {"gymnasium", "pytorchrl", *PACKAGES}:
        return False
    # Last, as this reads the metadata of every installed package.
    return package not in {plugin.module.partition(".")[0] for plugin in entry_points(group="gymnasium.envs")}


def _python() -> str:
    """Return the interpreter's name if the shell finds it by that name, else its path."""
    executable = Path(sys.executable)
    if shutil.which(executable.name) == sys.executable:
        return executable.name
    if executable.is_relative_to(Path.cwd()):
        return str(executable.relative_to(Path.cwd()))
    return sys.executable
