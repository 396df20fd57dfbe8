"""``--import``: a user's module with classes and environments, which the printed command names and imports."""

import functools
import gc
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.composition.described_run import described_run
from pytorchrl.commands.train import train as train_command
from pytorchrl.experiments.runs import user_modules
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.user_modules import import_modules, modules_to_import
from tests.support import warm_interpreter
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter

MODULE = """
import os
import signal

import gymnasium
import pytorchrl as prl
from tests.support.toys import Counter


class MyEnv(Counter):
    steps = 0

    def step(self, action):
        MyEnv.steps += 1
        if MyEnv.steps == 33 and not os.environ.get("GO_ON"):
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(action)


class MyDQN(prl.DQN):
    pass


gymnasium.register("My-v0", MyEnv)
"""
SCRIPT = """
from my_parts import MyEnv, MyDQN
import pytorchrl as prl
from tests.support.compositions import dqn_scheme


class MyStorage(prl.ReplayBuffer):
    pass


def train():
    envs = prl.VecEnv.create_factory(MyEnv)
    prl.Learner(dqn_scheme(storage=MyStorage.create_factory(size=50), envs=envs), 60, "my run").run()


if __name__ == "__main__":
    train()
"""
START_COMMANDS = {
    "script.py": ["script.py"],
    "the command": [
        *("-m", "pytorchrl", "train", "--import", "my_parts", "--algorithm", "MyDQN", "--env", "My-v0"),
        *("--algorithm.start-steps", "20", "--steps", "60"),
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("started_by", START_COMMANDS)
def test_a_run_with_a_users_environment_is_resumed_by_the_command_it_printed(
    started_by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    Path("my_parts.py").write_text(MODULE)
    Path("script.py").write_text(SCRIPT)
    started = warm_interpreter.run(START_COMMANDS[started_by], tmp_path)
    assert "Stopped at 33 of 60 steps; continue with\n  " in started.stdout, started.stderr
    printed = started.stdout.splitlines()[-1].strip()
    assert printed.endswith(" --import script" if started_by == "script.py" else " --import my_parts")
    monkeypatch.setenv("GO_ON", "1")
    resumed = subprocess.run(printed, shell=True, capture_output=True, text=True, timeout=100, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert "60 of 60 steps" in resumed.stdout
    refused = subprocess.run(
        printed.partition(" --import")[0], shell=True, capture_output=True, text=True, timeout=100, check=False
    )
    assert refused.returncode == 1
    assert f"The run was made with --import{printed.partition(' --import')[2]}" in refused.stderr


@pytest.fixture
def no_modules_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_modules, "_imported", {})
    monkeypatch.setattr(sys, "path", [*sys.path])


def makes_nothing(path: str) -> None:
    raise AssertionError(path)


def env_of(length: int = 3) -> gym.Env[Any, Any]:
    return Counter(length=length)


@pytest.mark.usefixtures("no_modules_imported")
def test_a_run_file_can_name_only_imported_functions_that_make_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(env_of)), 60, tmp_path / "run")
    learner.save_checkpoint()
    learner.close()
    with monkeypatch.context() as before_import:
        before_import.delitem(sys.modules, __name__)
        with pytest.raises(
            prl.CompositionError, match="composed with the class or function env_of; import the module"
        ) as error:
            prl.Learner.resume(tmp_path / "run")
    assert error.value.__notes__ == [f"The run was made with --import {__name__}; in Python: import {__name__}"]
    import_modules([__name__])
    resumed = prl.Learner.resume(tmp_path / "run")
    assert resumed.run()
    resumed.close()
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["imports"] == [__name__]
    config["train_envs"]["hyper_parameters"]["env"] = {"callable": "makes_nothing"}
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises((prl.CompositionError, prl.CheckpointError), match="makes_nothing"):
        prl.Learner.resume(tmp_path / "run")


@pytest.mark.usefixtures("no_modules_imported")
def test_a_function_named_on_the_command_line_cannot_be_named_by_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "my_expert.py").write_text("def right(observations):\n    return observations[:, :1].astype(int) * 0\n")
    monkeypatch.chdir(tmp_path)
    train = ["--import", "my_expert.py", "--algorithm", "dagger", "--env", "CartPole-v1", "--actor.hidden-sizes", "8"]
    train += ["--algorithm.expert", "right", "--algorithm.test-every", "0", "--log-dir", "runs"]
    train_command([*train, "--steps", "20"])
    train_command([*train, "--steps", "30"])
    assert "20 of 30 steps" in capsys.readouterr().out
    with pytest.raises(prl.CompositionError, match="the function right, which a run's configuration may not name"):
        prl.Learner.resume(tmp_path / "runs" / "seed-1")
    with pytest.raises(ValueError, match="DAgger: expert must be callable, got 'left'"):
        described_run([*train, "--algorithm.expert", "left"])


@pytest.mark.usefixtures("no_modules_imported")
def test_after_an_error_in_an_imported_callback_the_same_command_continues_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing_callback.py").write_text(
        "import os\ndef late(learner):\n    if learner.scheme.steps > 30 and not os.environ.get('GO_ON'):\n"
        "        raise ValueError('not here')\n"
    )
    train = ["pytorchrl", "train", "--import", "failing_callback.py", "--callbacks", "late", "--algorithm", "dqn"]
    train += [
        "--env",
        "CartPole-v1",
        "--no-preset",
        "--algorithm.start-steps",
        "20",
        "--steps",
        "50",
        "--log-dir",
        "runs",
    ]
    monkeypatch.setattr(sys, "argv", train)
    with pytest.raises(SystemExit) as failed:
        main()
    *place, error, advice = str(failed.value).splitlines()
    assert place[0] == "Traceback (most recent call last):"
    assert "failing_callback.py" in place[1]
    assert error.endswith("Error: not here")
    assert advice == (
        "The run is saved in runs/seed-1, with the traceback in error.txt, as of 32 of 50 steps; continue by the same "
        "command as before"
    )
    monkeypatch.setenv("GO_ON", "1")
    main()
    assert "seed 1, 32 of 50 steps" in capsys.readouterr().out


@pytest.mark.usefixtures("no_modules_imported")
def test_a_callback_is_gone_when_the_continuing_command_no_longer_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_callback.py").write_text(
        "import pytorchrl as prl\nclass Broken(prl.Callback):\n    def on_step(self, learner):\n"
        "        if learner.scheme.steps > 30:\n            raise ValueError('not here')\n"
    )
    train = ["--import", "broken_callback.py", "--algorithm", "dqn", "--env", "CartPole-v1"]
    train += ["--no-preset", "--algorithm.start-steps", "20", "--steps", "50", "--log-dir", "runs"]
    with pytest.raises(ValueError, match="not here"):
        train_command([*train, "--callbacks", "Broken()", "StopAtReturn(1_000)"])
    capsys.readouterr()
    train_command(train)
    assert "seed 1, 32 of 50 steps" in capsys.readouterr().out
    assert RunFolder("runs/seed-1").read_config()["callbacks"] == []


@pytest.mark.usefixtures("no_modules_imported")
def test_an_error_before_the_first_checkpoint_names_the_option_that_saves_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "failing_update.py").write_text(
        "import pytorchrl as prl\nclass Failing(prl.Callback):\n    def on_update(self, learner, metrics):\n"
        "        raise ValueError('not here')\n"
    )
    train = ["--import", "failing_update.py", "--algorithm", "dqn", "--env", "CartPole-v1"]
    train += ["--algorithm.start-steps", "20", "--steps", "500", "--log-dir", "runs", "--callbacks", "Failing()"]
    with pytest.raises(ValueError, match="not here") as error:
        train_command(train)
    assert error.value.__notes__[-1] == (
        "runs/seed-1 has no checkpoint to resume from; a smaller --checkpoint-every saves some during the run. "
        "The traceback is in runs/seed-1/error.txt."
    )


@pytest.mark.usefixtures("no_modules_imported")
@pytest.mark.parametrize(("guarded", "expected"), [(True, ["folder/script.py"]), (False, None)])
def test_a_script_is_named_for_import_only_if_its_training_is_guarded(
    guarded: bool, expected: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "folder" / "script.py"
    file.parent.mkdir()
    file.write_text('if __name__ == "__main__":\n    train()\n' if guarded else "train()\n")
    script = ModuleType("__main__")
    script.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert modules_to_import(["__main__", "a_module_that_it_imports"]) == expected
    assert modules_to_import(["__main__", None]) is None
    assert modules_to_import([]) == []


@pytest.mark.usefixtures("no_modules_imported")
def test_an_imported_file_can_import_modules_of_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("folder/beside_a_file_to_import.py").write_text("value = 3\n")
    Path("folder/a_file_to_import.py").write_text("from beside_a_file_to_import import value\n")
    import_modules(["folder/a_file_to_import.py"])
    assert sys.modules["a_file_to_import"].value == 3
    assert modules_to_import(["a_file_to_import"]) == ["folder/a_file_to_import.py"]


@pytest.mark.usefixtures("no_modules_imported")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no_such_module",
            r"error: --import no_such_module: there is no module 'no_such_module', in .* by its path",
        ),
        ("no/such_file.py", "error: --import no/such_file.py: there is no such file"),
    ],
)
@pytest.mark.parametrize("command", ["resume", "evaluate", "play", "record", "export", "inspect"])
def test_a_missing_module_or_file_to_import_is_reported(
    command: str, name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", command, "a-run", "--import", name])
    monkeypatch.setenv("DISPLAY", ":0")
    with pytest.raises(SystemExit, match=message):
        main()


NETWORKS = """
from torch import nn


class Wide(nn.Module):
    def __init__(self, space, width=8):
        super().__init__()
        self.layer = nn.Linear(space.shape[0], width)

    def forward(self, observation):
        return self.layer(observation)


def narrow(space, width=2) -> nn.Module:
    return Wide(space, width)


def unannotated(space):
    return Wide(space)
"""


@pytest.mark.usefixtures("no_modules_imported")
@pytest.mark.parametrize(
    ("named", "arguments"), [("Wide", None), ("narrow", None), ("Wide", {"width": 3}), ("narrow", {"width": 3})]
)
def test_networks_are_found_in_the_modules_of_a_run_that_are_imported_already(
    named: str, arguments: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_networks.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("my_networks")
    network = vars(module)[named]
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=10, test_every=0),
        prl.OffPolicyActor.create_factory(
            hidden_sizes=(4,),
            feature_extractor=network if arguments is None else functools.partial(network, **arguments),
        ),
        prl.ReplayBuffer.create_factory(size=50),
        prl.VecEnv.create_factory("CartPole-v1"),
    )

    class OfTheScript(prl.Callback):
        """Needed by no policy."""

    with prl.Learner(scheme, 20, "run", callbacks=[OfTheScript()]) as learner:
        learner.run(progress=False)
        learner.save_policy("policy.pt")
    del OfTheScript, learner
    gc.collect()
    for path in ("run", "policy.pt", "run/checkpoint.pt"):
        assert prl.load_policy(path)(np.zeros(4, np.float32)) in (0, 1)
    with prl.Learner.resume("run", target_steps=30, callbacks=[]) as learner:
        assert learner.run(progress=False)
    monkeypatch.delitem(sys.modules, "my_networks")
    with pytest.raises(prl.CompositionError, match=f"composed with the class or function {named}"):
        prl.load_policy("run")
    monkeypatch.setitem(sys.modules, "my_networks", module)
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps(config | {"imports": ["another"]}))
    with pytest.raises(prl.CompositionError, match=f"composed with the class or function {named}"):
        prl.load_policy("run")


NETWORKS_OF_SCRIPT = """
import gymnasium
import torch
from tests.support.toys import Counter

gymnasium.register("Mine-v0", Counter)


class Doubled(torch.nn.Module):
    def __init__(self, space):
        super().__init__()

    def forward(self, observation):
        return 2 * observation
"""
GUARDED = """
import pytorchrl as prl
import my_networks

if __name__ == "__main__":
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=20, test_every=0),
        prl.OffPolicyActor.create_factory(feature_extractor=my_networks.Doubled, hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("Mine-v0"),
    )
    with prl.Learner(scheme, 60, "run") as learner:
        learner.run(progress=False)
    prl.load_policy("run")
    with prl.Learner.resume("run", target_steps=80) as learner:
        print(learner.run(progress=False))
"""


def test_a_guarded_script_finds_networks_of_the_modules_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    (tmp_path / "my_networks.py").write_text(NETWORKS_OF_SCRIPT)
    (tmp_path / "script.py").write_text(GUARDED)
    finished = warm_interpreter.run(["script.py"], tmp_path)
    assert finished.stdout.endswith("True\n"), finished.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["imports"] == ["script"]


@pytest.mark.usefixtures("no_modules_imported")
@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (
            "lambda space: networks.Wide(space)",
            "composed with <lambda>, which a run folder cannot name; make the scheme",
        ),
        (
            "functools.partial(networks.Wide, width=bytes(2))",
            r"composed with functools.partial\(<class 'nameless_networks.Wide'>, .*, which a run folder cannot name",
        ),
        ("networks.unannotated", "the function unannotated, which a run's configuration may not name unless it is"),
    ],
)
def test_a_network_that_a_folder_cannot_name_is_loaded_by_the_code_that_the_run_prints(
    form: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nameless_networks.py").write_text(
        NETWORKS.replace("nn.Linear(space.shape[0], width)", "nn.Linear(4, 8)")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    networks = importlib.import_module("nameless_networks")
    made = eval(form, {"networks": networks, "functools": functools})
    actor_factory = prl.OffPolicyActor.create_factory(hidden_sizes=(4,), feature_extractor=made)
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=10, test_every=0),
        actor_factory,
        prl.ReplayBuffer.create_factory(size=50),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    with prl.Learner(scheme, 20, "run") as learner:
        learner.run()
    (code,) = re.findall(r"^  act: (.*)$", capsys.readouterr().out, flags=re.MULTILINE)
    assert code == "prl.load_policy('run', actor_factory=actor_factory)"
    assert eval(code, {"prl": prl, "actor_factory": actor_factory})(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(prl.CompositionError, match=reason):
        prl.load_policy("run")


@pytest.mark.usefixtures("no_modules_imported")
def test_an_imported_module_is_enough_to_resume_a_run_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from tests.support.toys import Counter\n\n\nclass House(Counter):\n    pass\n"
    (tmp_path / "house.py").write_text(source)
    (tmp_path / "neighbour.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    house, neighbour = (importlib.import_module(name) for name in ("house", "neighbour"))
    with prl.Learner(dqn_scheme(envs=prl.VecEnv.create_factory(house.House)), 40, "run") as learner:
        learner.run(progress=False)
    monkeypatch.delitem(sys.modules, "house")
    with pytest.raises(prl.CompositionError, match="import the module that defines it, before this call") as error:
        prl.Learner.resume("run", target_steps=60)
    assert error.value.__notes__ == ["The run was made with --import house; in Python: import house"]
    assert "house" not in sys.modules, "a run folder has imported a module"
    monkeypatch.setitem(sys.modules, "house", house)
    with prl.Learner.resume("run", target_steps=60) as learner:
        assert learner.run(progress=False)
        envs = learner.scheme.factories
        assert not any(factory.hyper_parameters.get("env") is neighbour.House for factory in envs)


@pytest.mark.usefixtures("no_modules_imported")
@pytest.mark.parametrize(
    "given", [["--import", "part_one.py", "part_two.py"], ["--import", "part_one.py,part_two"]], ids=["words", "commas"]
)
def test_several_modules_are_imported_by_one_option(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("part_one.py").write_text("import pytorchrl as prl\n\n\nclass FirstDQN(prl.DQN):\n    pass\n")
    Path("part_two.py").write_text("import gymnasium\n\ngymnasium.register('Second-v0', lambda: None)\n")
    run = described_run([*given, "--algorithm", "FirstDQN", "--env", "Second-v0", "--steps", "10"])
    assert run.parts.algorithm.name == "FirstDQN"
    assert [Path(name).stem for name in user_modules._imported] == ["part_one", "part_two"]


OWN_WRAPPER = """
import gymnasium


class Doubled(gymnasium.RewardWrapper):
    def __init__(self, env, factor=2.0):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward):
        return self.factor * reward
"""


@pytest.mark.parametrize(
    ("wrappers", "factor"),
    [
        ("Doubled", 2),
        ("['Doubled']", 2),
        ("[Doubled, 'FlattenObservation']", 2),
        ("[('Doubled', {'factor': 3.0})]", 3),
        ("[(Doubled, {'factor': 3.0})]", 3),
    ],
)
def test_a_wrapper_of_an_imported_module_is_named_as_ours_are(
    wrappers: str, factor: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(user_modules, "_imported", {})
    Path("own_wrapper.py").write_text(OWN_WRAPPER)
    monkeypatch.delitem(sys.modules, "own_wrapper", raising=False)
    options = ["--import", "own_wrapper.py", "--no-preset", "--algorithm.start-steps", "20", "--steps", "60"]
    train_command(["--algorithm", "dqn", "--env", "CartPole-v1", "--env.wrappers", wrappers, *options])
    run = Path("runs/DQN-CartPole-v1/seed-1")
    records = [record for record in prl.read_metrics(run / "metrics.jsonl") if "train/shaped_return" in record]
    assert records[-1]["train/shaped_return"] == pytest.approx(factor * records[-1]["train/return"])
    learner = prl.Learner.resume(run, target_steps=80)
    learner.run()
    learner.close()
    with pytest.raises(ValueError, match=r"gymnasium\.wrappers has no 'Tripled'"):
        described_run(["--algorithm", "dqn", "--env", "CartPole-v1", "--env.wrappers", "Tripled", *options])
