"""How a run is continued in a new process: by a command, or by the script that defines a part of its composition."""

import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import gymnasium as gym

from pytorchrl.agent.envs.other_packages import PACKAGES
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.experiments.composition import WRITE_FILES, is_ours
from pytorchrl.scheme.dataset_factory import DatasetFactory
from storages.component.factory import Factory
from storages.component.setting import Configured, plain


def resume_command(folder: Path) -> str:
    """What to type to continue the run in a folder."""
    return shlex.join([_python(), "-m", "pytorchrl", "resume", str(folder)])


def how_to_continue(folder: Path, factories: Iterable[Factory[Any]], callbacks: Iterable[Configured] = ()) -> str:
    """Lines that say how to continue the run in a folder; they follow on "continue"."""
    of_scheme = dict.fromkeys(parts_of_the_script(factories))
    of_callbacks = dict.fromkeys(name for callback in callbacks for name in _of_the_script(callback))
    given = [name for name, parts in (("scheme", of_scheme), ("callbacks", of_callbacks)) if parts]
    if not given:
        return f"with\n  {resume_command(folder)}"
    arguments = ", ".join(f"{name}={name}" for name in given)
    return (
        f"in the script that defines {', '.join(of_scheme | of_callbacks)}, with the {' and the '.join(given)} made as "
        f"before:\n"
        f"  learner = prl.Learner.resume({str(folder)!r}, {arguments})\n"
        f"  learner.run()"
    )


def parts_of_the_script(factories: Iterable[Factory[Any]]) -> Iterator[str]:
    """Names of classes, functions, environments and wrappers that the command cannot make without the user's script."""
    for factory in factories:
        yield from _of_the_script(factory)
        if isinstance(factory, DatasetFactory):
            yield f"the data set {factory.path}"
        if not issubclass(factory.cls, VecEnv):
            continue
        env = factory.hyper_parameters.get("env")
        if isinstance(env, str) and _is_registered_by_the_script(env):
            yield f"the environment {env}"
        wrappers = factory.hyper_parameters.get("wrappers", ())
        names = [name[0] if isinstance(name, list | tuple) else name for name in wrappers]
        yield from (f"the wrapper {name}" for name in names if name in WRITE_FILES)


def classes_of_the_script(parts_of_the_run: Iterable[Configured]) -> list[str]:
    """Names of the classes, of parts of a run and of their hyper-parameters, that are not the toolkit's."""
    parts = (part for one in parts_of_the_run for part in _parts_of(one))
    return sorted({part.cls.__name__ for part in parts if isinstance(part, Configured) and not is_ours(part.cls)})


def _of_the_script(configured: Configured) -> Iterator[str]:
    for part in _parts_of(configured):
        if isinstance(part, Configured):
            if not is_ours(part.cls):
                yield part.cls.__name__
        elif isinstance(described := plain(part), Mapping):
            yield str(described["callable"]).replace("<lambda>", "a lambda")


def _parts_of(value: Any) -> Iterator[Any]:
    """Factories, settings and plain values: the value itself and all that it holds."""
    if isinstance(value, Configured):
        yield value
        value = value.hyper_parameters
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _parts_of(item)
    else:
        yield value


def _is_registered_by_the_script(env_id: str) -> bool:
    """Whether gymnasium does not know the id before a script has registered it."""
    if ":" in env_id:
        # A run folder imports no module by name.
        return True
    entry = gym.spec(env_id).entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else getattr(entry, "__module__", "")
    plugins = {plugin.module.partition(".")[0] for plugin in entry_points(group="gymnasium.envs")}
    return module.partition(".")[0] not in {"gymnasium", "pytorchrl", *PACKAGES, *plugins}


def _python() -> str:
    """What to type for the running interpreter: its name where the shell finds it, else its path."""
    executable = Path(sys.executable)
    if shutil.which(executable.name) == sys.executable:
        return executable.name
    if executable.is_relative_to(Path.cwd()):
        return str(executable.relative_to(Path.cwd()))
    return sys.executable
