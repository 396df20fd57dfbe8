"""A command that ends in a user's own code shows the place there, and where the whole traceback is kept."""

import functools
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from pytorchrl.__main__ import format_error, main

ENVIRONMENT = """
import gymnasium as gym
import numpy as np


def distance(position):
    raise {error}


class Corridor(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        self.steps += 1
        if self.steps == 30:
            distance(self.steps)
        return np.zeros(2, np.float32), 0.0, False, False, {{}}
"""


@pytest.mark.parametrize(
    "error", ["ValueError('no such place')", "KeyError('wall')", "TypeError('no number')", "OSError('no simulator')"]
)
def test_an_exception_in_an_environment_is_shown_with_its_place_and_error_txt(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = f"corridor_{error.partition('(')[0].lower()}"
    Path(f"{module}.py").write_text(ENVIRONMENT.format(error=error))
    monkeypatch.setattr(sys, "argv", ["pytorchrl", *arguments(module)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = str(ended.value.code)
    assert said.startswith("Traceback (most recent call last):\n")
    assert f'{module}.py", line 7, in distance' in said
    assert f'{module}.py", line 22, in step' in said
    assert f"error: {error.partition('(')[0]}: " in said
    assert "pytorchrl/scheme" not in said.partition("error: ")[0].replace(str(tmp_path), "")
    assert "The run is saved in runs" in said
    assert "with the traceback in error.txt" in said
    (kept,) = Path("runs").glob("**/error.txt")
    assert f"in distance\n    raise {error}" in kept.read_text()


def arguments(module: str) -> list[str]:
    of_run = ["--algorithm", "DQN", "--env", "Corridor", "--import", f"{module}.py", "--steps", "60"]
    return ["train", *of_run, "--algorithm.test-every", "0", "--algorithm.start-steps", "50"]


def test_an_error_of_the_toolkit_itself_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "show", "no-such-run"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value.code).startswith("error: ")
    assert "Traceback" not in str(ended.value.code)


def test_packages_of_another_folder_than_pythons_own_are_not_taken_for_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As those of `pip install --user`, and of an environment that another one extends.
    package = tmp_path / "site-packages" / "called_by.py"
    package.parent.mkdir()
    package.write_text("def call(function, *args, **kwargs):\n    return function(*args, **kwargs)\n")
    monkeypatch.syspath_prepend(str(package.parent))
    call = importlib.import_module("called_by").call
    monkeypatch.setattr(tyro, "cli", functools.partial(call, tyro.cli))
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "show", "no-such-run"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value.code).startswith("error: ")


MISTAKEN = """
import pytorchrl as prl


class Hasty(prl.DQN):
    def build(self):
        super().build()
        prl.DQN.create_factory({argument})
"""


@pytest.mark.parametrize(
    ("argument", "said"),
    [("lr=-1", "error: ValueError: DQN: lr must be at least 0"), ("lt=1", "error: TypeError: DQN: unknown hyper-para")],
)
def test_a_value_that_users_code_gives_is_shown_with_its_line_and_no_frames_of_the_toolkit(
    argument: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = f"mistaken_{argument[:2]}"
    Path(f"{module}.py").write_text(MISTAKEN.format(argument=argument))
    given = ["train", "--algorithm", "Hasty", "--env", "CartPole-v1", "--import", f"{module}.py", "--steps", "60"]
    monkeypatch.setattr(sys, "argv", ["pytorchrl", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    lines = str(ended.value.code).splitlines()
    assert [line for line in lines if line.startswith("  File")] == [
        f'  File "{tmp_path}/{module}.py", line 8, in build'
    ]
    assert any(line.startswith(said) for line in lines)


def test_packages_beside_those_of_the_environment_are_not_code_of_the_user(tmp_path: Path) -> None:
    def error_in(file: Path) -> ValueError:
        file.parent.mkdir(parents=True)
        file.write_text("def fail():\n    raise ValueError('wrong')\n")
        names: dict[str, Any] = {}
        exec(compile(file.read_text(), file, "exec"), names)
        with pytest.raises(ValueError, match="wrong") as raised:
            names["fail"]()
        # Without the frame of this test.
        return raised.value.with_traceback(raised.tb.tb_next)

    assert format_error(error_in(tmp_path / "lib" / "site-packages" / "of_system.py")) == "error: wrong"
    assert format_error(error_in(tmp_path / "mine" / "script.py")).startswith("Traceback")
