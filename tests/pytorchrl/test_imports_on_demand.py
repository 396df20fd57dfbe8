"""Names and commands are imported when they are used: a program that needs no torch does not wait for it."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import pytorchrl as prl
import storages
from docs.generated_parts import exported
from pytorchrl.agent import algorithms
from pytorchrl.commands.table import COMMANDS, DATA_COMMANDS
from tests.support.compositions import dqn_scheme

LOADED = """
import json, sys
before = sys.stdout
sys.stdout = sys.stderr
try:
    {code}
except SystemExit:
    pass
print(json.dumps([name for name in ("torch", "numba") if name in sys.modules]), file=before)
"""


def loaded_by(code: str, folder: Path) -> Any:
    """Which of the packages that are slow to import a program has imported at its end."""
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", LOADED.format(code=code)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "arguments",
    ["", "--version", "--help", "ls", "ls --help", "evaluations run", "plot run -o curves.csv", "compare run"],
)
def test_commands_that_read_no_weights_import_neither_torch_nor_numba(arguments: str, tmp_path: Path) -> None:
    with prl.Learner(dqn_scheme(), 60, tmp_path / "run") as learner:
        learner.run(progress=False)
    code = f"sys.argv = ['pytorchrl', *{arguments.split()}]; from pytorchrl.__main__ import main; main()"
    assert loaded_by(code, tmp_path) == []


def test_the_toolkit_is_imported_without_torch(tmp_path: Path) -> None:
    assert loaded_by("import pytorchrl, storages; dir(pytorchrl)", tmp_path) == []


@pytest.mark.parametrize("package", [prl, storages, algorithms], ids=lambda package: package.__name__)
def test_every_exported_name_can_be_read_and_is_listed(package: Any) -> None:
    assert {*package.__all__} <= {*dir(package)}
    for name in package.__all__:
        assert getattr(package, name) is getattr(package, name)
        assert name in vars(package)


@pytest.mark.long
def test_modules_of_the_toolkit_are_attributes_without_an_import_of_their_own(tmp_path: Path) -> None:
    code = "import pytorchrl, storages; assert pytorchrl.learner.Learner and storages.storage.Storage"
    assert loaded_by(code, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        "from pytorchrl.experiments.runs.composition import class_named; [class_named(name) for name in {names}]",
        "from pytorchrl.commands.composition.parts import names_of; assert names_of(pytorchrl.Algorithm) == {names}",
        "pytorchrl.compose('DDPG', 'Pendulum-v1')",
    ],
    ids=["class_named", "names_of", "compose"],
)
def test_algorithms_are_found_by_name_before_their_modules_are_imported(code: str, tmp_path: Path) -> None:
    assert loaded_by(f"import pytorchrl; {code.format(names=sorted(exported(prl.Algorithm)))}", tmp_path)


def test_a_name_that_is_nowhere_is_refused_with_the_nearest_one() -> None:
    package: Any = storages
    with pytest.raises(AttributeError, match="module 'storages' has no attribute 'ReplayBufer'"):
        package.ReplayBufer  # noqa: B018
    assert not hasattr(package, "_nothing")


def test_environments_of_the_toolkit_have_ids_before_their_modules_are_imported(tmp_path: Path) -> None:
    assert loaded_by("import gymnasium, pytorchrl; gymnasium.spec('pytorchrl/SparseMaze-v0')", tmp_path) == []
    ours = [name for name in gym.registry if name.startswith("pytorchrl/")]
    assert len(ours) == 11


@pytest.mark.parametrize("commands", [COMMANDS, DATA_COMMANDS], ids=["commands", "commands of data sets"])
def test_the_list_of_commands_says_what_the_help_of_each_says_first(commands: Any) -> None:
    for name, command in commands.items():
        if command.place and name not in ("train", "sweep"):
            first, *_ = str(inspect.getdoc(command.function)).splitlines()
            assert command.summary == first, name
