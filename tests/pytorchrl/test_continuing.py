"""A stopped run prints a command or lines of a script that do continue it."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
from pytorchrl.experiments.runs import checkpoint, user_modules
from pytorchrl.experiments.runs.continuation import how_to_continue
from tests.support import warm_interpreter
from tests.support.compositions import dqn_scheme
from tests.support.processes import wait_for
from tests.support.toys import Counter

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

PLAIN = """
import sys
import pytorchrl as prl
from tests.support.compositions import dqn_scheme

learner = prl.Learner(dqn_scheme(algorithm={"test_every": 0}), 10_000_000, sys.argv[1], log_every=10)
learner.run()
"""


@pytest.mark.long
@pytest.mark.parametrize("log_dir", ["run", "runs of mine/it's $HOME"])
def test_the_command_that_a_stopped_run_prints_continues_it(log_dir: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PLAIN, log_dir], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    wait_for((tmp_path / log_dir / "metrics.jsonl").exists, process)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    stopped = re.fullmatch(r"Stopped at ([\d,]+) of 10,000,000 steps; continue with\n  (.*)\n", printed)
    assert stopped is not None, printed
    target = int(stopped[1].replace(",", "")) + 20
    typed = f"{stopped[2]} --target-steps {target}"
    finished = subprocess.run(
        typed, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    assert finished.returncode == 0, finished.stderr
    assert f"{target:,} of {target:,} steps" in finished.stdout


SCRIPT = """
import functools, os, signal, sys
import gymnasium
import pytorchrl as prl
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter


class Mine(Counter):
    steps = 0

    def step(self, action):
        Mine.steps += 1
        if Mine.steps == 33 and not os.path.exists("my run/checkpoint.pt"):
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


def make(length):
    return Mine(length=length)


class Makes:
    def __call__(self):
        return Mine()


class ReplayBuffer(prl.ReplayBuffer):
    pass


gymnasium.register("Mine-v0", entry_point=Mine)
envs = {
    "Mine": (Mine,),
    "make": (functools.partial(make, length=4),),
    "<__main__.Makes object>": (Makes(),),
    "a lambda, the environment Mine-v0": ("Mine-v0", 1, {"wrappers": [lambda env: env]}),
    "ReplayBuffer, the environment Mine-v0": ("Mine-v0",),
}
named = sys.argv[1]
env, num_envs, more = (*envs[named], 1, {})[:3]
storage = (ReplayBuffer if "ReplayBuffer" in named else prl.ReplayBuffer).create_factory(size=50)
scheme = dqn_scheme(storage=storage, envs=prl.VecEnv.create_factory(env, num_envs, **more))
"""
START = """
learner = prl.Learner(scheme, 60, "my run")
learner.run()
"""
OWN_PARTS = [
    "Mine",
    "make",
    "<__main__.Makes object>",
    "a lambda, the environment Mine-v0",
    "ReplayBuffer, the environment Mine-v0",
]


@pytest.mark.quick_share(0, long=0.5)
@pytest.mark.long
@pytest.mark.parametrize("named", OWN_PARTS)
def test_the_lines_printed_by_a_script_with_own_parts_continue_its_run(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The script imports parts of these tests.
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])

    def run_script(script: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(script)
        return warm_interpreter.run(["script.py", named], tmp_path, timeout=60)

    started = run_script(SCRIPT + START)
    assert started.returncode == 0, started.stderr
    first, *lines = (line for line in started.stdout.splitlines() if not line.startswith("DQN in my run: "))
    assert first == (
        f"Stopped at 33 of 60 steps; continue in the script that defines {named}, with the scheme made as before:"
    )
    refused = warm_interpreter.run(["-m", "pytorchrl", "resume", "my run"], tmp_path, timeout=60)
    assert refused.returncode == 1
    assert "make the scheme in a script and pass it: Learner.resume(log_dir, scheme=scheme)" in refused.stderr
    assert "Traceback" not in refused.stderr
    continued = run_script("\n".join([SCRIPT, *(line.removeprefix("  ") for line in lines), ""]))
    assert continued.returncode == 0, continued.stderr
    _, finished, *offered = re.split(r"^(Finished .*)$", continued.stdout, flags=re.MULTILINE)
    assert finished.startswith("Finished 60 steps, saved in my run")
    assert [line.split(":")[0] for line in offered[0].split("\n") if line] == ["  act", "  plot", "  train on"]
    assert checkpoint.load(tmp_path / "my run" / "checkpoint.pt")["scheme"]["collector"]["steps"] == 60


class Own(gym.Wrapper[Any, Any, Any, Any]):
    pass


class OwnDQN(prl.DQN):
    pass


class OwnSchedule(prl.LinearSchedule):
    pass


def instructions(**parts: Any) -> str:
    composed = {
        "algorithm": prl.DQN.create_factory(),
        "storage": prl.ReplayBuffer.create_factory(size=10),
        "envs": prl.VecEnv.create_factory("CartPole-v1", wrappers=[("TimeLimit", {"max_episode_steps": 9})]),
    }
    return how_to_continue(Path("run"), (composed | parts).values())


def test_a_composition_of_the_toolkits_parts_is_continued_by_the_command() -> None:
    schedule = prl.PERBuffer.create_factory(size=10, alpha=prl.LinearSchedule(0.1, 0.2))
    for text in (
        instructions(),
        instructions(storage=schedule),
        instructions(envs=prl.VecEnv.create_factory("pytorchrl/BitFlipping-v0")),
    ):
        assert text.startswith("with\n  ")
        assert text.endswith(" -m pytorchrl resume run")


@pytest.mark.parametrize(
    "part",
    [
        {"algorithm": OwnDQN.create_factory()},
        {"storage": prl.PERBuffer.create_factory(size=10, alpha=OwnSchedule(0.1, 0.2))},
        {"envs": prl.VecEnv.create_factory("CartPole-v1", wrappers=[Own, "FlattenObservation"])},
        {"envs": prl.VecEnv.create_factory("CartPole-v1", wrappers=[functools.partial(Own)])},
    ],
)
def test_a_part_of_a_module_is_continued_by_the_command_that_imports_the_module(part: dict[str, Any]) -> None:
    assert instructions(**part).endswith(f" -m pytorchrl resume run --import {__name__}")


def test_parts_that_the_command_cannot_create_are_named() -> None:
    class Inside(Counter):
        pass

    for named, env, wrappers in (
        ("Inside", Inside, []),
        (f"functools.partial({Counter!r}, 4)", functools.partial(Counter, 4), []),
        ("the wrapper RecordVideo", "CartPole-v1", [("RecordVideo", {"video_folder": "videos"})]),
    ):
        envs = prl.VecEnv.create_factory(env, wrappers=wrappers)
        assert instructions(envs=envs).startswith(
            f"in the script that defines {named}, with the scheme made as before:\n"
        )


def test_a_class_of_a_script_is_not_mistaken_for_the_toolkits_class_of_the_same_name(tmp_path: Path) -> None:
    own = type("DQN", (prl.DQN,), {"__module__": "__main__"})
    scheme = dqn_scheme()
    scheme.factories = (own.create_factory(), *scheme.factories[1:])  # type: ignore[attr-defined]
    prl.Learner(scheme, 60, tmp_path / "run").run()
    # In another process, only the toolkit's class has this name.
    own.__name__ = "Other"
    with pytest.raises(
        prl.CompositionError, match="composed with the class DQN of a script; import the module that defines it"
    ):
        prl.Learner.resume(tmp_path / "run")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> str:
    """Register an id, as a module of a user's does when it is imported."""
    monkeypatch.setitem(gym.registry, "Mine-v0", gym.envs.registration.EnvSpec("Mine-v0", entry_point=Counter))
    return "Mine-v0"


def test_a_run_resumed_from_its_folder_alone_is_continued_so(
    registered: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As in an interactive session, or a script without a guard.
    monkeypatch.setattr(user_modules, "_script", lambda: None)
    run = tmp_path / "run"
    with prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(registered)), 60, run) as learner:
        learner.run()
    assert f"train on: prl.Learner.resume({str(run)!r}, scheme=scheme, target_steps=120)" in capsys.readouterr().out
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"imports": ["mine"]}))
    with prl.Learner.resume(run, target_steps=80) as learner:
        learner.run()
    assert f"train on: prl.Learner.resume({str(run)!r}, target_steps=160)" in capsys.readouterr().out
    with prl.Learner.resume(run, target_steps=100, callbacks=[prl.StopAfter(minutes=1e-9)]) as learner:
        learner.run()
    stopped = f"continue in a script with the same imports:\n  learner = prl.Learner.resume({str(run)!r})\n"
    assert stopped in capsys.readouterr().out
    assert json.loads((run / "config.json").read_text())["imports"] == ["mine"]


@pytest.mark.parametrize("env", ["CartPole-v1", Counter, "Mine-v0"])
@pytest.mark.usefixtures("registered")
def test_play_is_offered_only_where_the_environment_renders(
    env: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(env)), 60, tmp_path / "run") as learner:
        learner.run()
    assert ("  play: " in capsys.readouterr().out) == (env == "CartPole-v1")
