"""The process that `warm_interpreter` starts: it imports the toolkit, and forks for every command that it reads.

A fork leaves the loop of this script and executes the command. It ends like an interpreter that was started for the
command, except that modules are not torn down: this takes 0.4 s of processor time, much more than most commands.
"""

import atexit
import gc
import io
import json
import multiprocessing.process
import os
import random
import runpy
import signal
import sys
import threading
import types
import warnings
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch._dynamo
from gymnasium import spaces
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import pytorchrl as prl
import pytorchrl.__main__
from pytorchrl.commands.table import COMMANDS, DATA_COMMANDS

# ``python -m pytorchrl`` executes this module again.
del sys.modules[pytorchrl.__main__.__name__]


def warm_up() -> None:
    """Import what is imported on demand, and have numba and matplotlib prepare what they prepare once in a process."""
    for name in prl.__all__:
        getattr(prl, name)
    for command in (*COMMANDS.values(), *DATA_COMMANDS.values()):
        if command.place:
            assert callable(command.function)
    observations, actions = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
    envs: Any = types.SimpleNamespace(
        observation_space=observations, action_space=actions, num_envs=1, stacked_frames=0
    )
    with torch.random.fork_rng():
        # An algorithm acts once when it is made.
        prl.DQN.create_factory()("cpu", prl.OffPolicyActor.create_factory()("cpu", envs), envs)
    figure = Figure()
    FigureCanvasAgg(figure)
    figure.add_subplot().plot([0, 1], [0, 1])
    figure.savefig(io.BytesIO(), format="png")


def next_command() -> dict[str, Any]:
    """Fork for each line of the input; the fork returns the command, and this process ends with the input."""
    assert threading.active_count() == 1, "a fork has only the thread that forks"
    # Memory that the garbage collector visits would be copied in each fork.
    gc.freeze()
    # Answers use a file of their own, because commands print to the standard output.
    with os.fdopen(os.dup(1), "w") as answers:
        for line in sys.stdin:
            request: dict[str, Any] = json.loads(line)
            child = os.fork()
            if child == 0:
                return request
            _, status, usage = os.wait4(child, 0)
            answer = {"returncode": os.waitstatus_to_exitcode(status), "seconds": usage.ru_utime + usage.ru_stime}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    sys.exit()


def become(request: dict[str, Any]) -> None:
    """Make this process equal to an interpreter that was just started in the folder."""
    signal.alarm(request["timeout"])
    for name, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    multiprocessing.process.ORIGINAL_DIR = request["folder"]  # type: ignore[attr-defined]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [path for path in paths if path and path not in sys.path]
    if not request["strict"]:
        sys.warnoptions.clear()
        warnings.filters.remove(("error", None, Warning, None, 0))  # type: ignore[attr-defined]
        warnings.simplefilter("default", append=True)
    random.seed()
    np.random.seed()  # noqa: NPY002


def execute(arguments: list[str]) -> None:
    """Do what ``python *arguments`` does."""
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0] = ""
        code = compile(arguments[1], "<string>", "exec")
    else:
        sys.argv = arguments
        script = Path(arguments[0]).absolute()
        sys.path[0] = str(script.resolve().parent)
        main.__file__ = str(script)
        code = compile(script.read_bytes(), script, "exec")
    exec(code, main.__dict__)  # the code of a test


def end(status: object = None) -> NoReturn:
    """End this process as an interpreter does after ``sys.exit(status)``."""
    if not (status is None or isinstance(status, int)):
        print(status, file=sys.stderr)  # noqa: T201
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if sys.modules["__main__"].__dict__ is not globals():
        # Finalisers of its objects are called.
        sys.modules["__main__"].__dict__.clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 0xFF)


if __name__ == "__main__":
    warm_up()
    command = next_command()
    become(command)
    try:
        execute(command["arguments"])
    except SystemExit as exited:
        end(exited.code)
    except KeyboardInterrupt:
        raise
    except BaseException:
        sys.excepthook(*sys.exc_info())
        end(1)
    end()
