"""What a run folder, a data set or a name says is printed as text, by every command: no markup, no control codes."""

import ast
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.table import COMMANDS, DATA_COMMANDS
from pytorchrl.terminal import printable
from storages import Episode
from storages.datasets import About, write_dataset
from storages.transition import ACT, REW
from tests.support.compositions import dqn_scheme

NAME = "_a[red]\x1b[2J\x1b]0;title\x07\u202e:smile:$x$["
"""A name of a file that is markup, an emoji and a formula, clears the screen and reverses what follows.

A folder of it that holds one named ``b]`` is the markup ``[/b]``.
"""
TEXT = NAME + "/b]\x9b2J\r\x08$\\frac{$<b>|/*_\ud800"
"""The same, with what names of files cannot have."""
SHORT = ("--steps", "30", "--algorithm.test-every", "0", "--algorithm.start-steps", "20", "--storage.size", "40")

Arguments: TypeAlias = Sequence[str | Path]


class Places:
    """Runs and data sets whose names and texts are hostile, and a folder for what commands write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = folder / "written" / NAME
        self.runs = folder / "runs" / NAME / "b]"
        self.run = self.runs / "seed-1"
        self.texts = folder / "texts" / NAME / "b]"
        self.data = folder / "data" / f"{NAME}.npz"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hostile runs and a data set."""
    places = Places(tmp_path_factory.mktemp("made"))
    scheme = dqn_scheme(envs=prl.VecEnv.create_factory("CartPole-v1"), algorithm={"test_every": 50})
    with prl.Learner(scheme, 100, places.run, log_every=20) as learner:
        learner.run()
    shutil.copytree(places.run, places.runs / "seed-2")
    _spoil_texts(shutil.copytree(places.run, places.texts))
    damaged = shutil.copytree(places.run, places.folder / "damaged" / NAME / "b]")
    (damaged / "config.json").write_text(json.dumps({"algorithm": TEXT}))
    about = About(
        algorithm_name=TEXT,
        author=(TEXT,),
        description=TEXT,
        further={"ref_min_score": 0.0, "ref_max_score": 1.0, "ref_source": TEXT},
    )
    observations = {NAME: np.zeros((3, 2), np.float32)}
    episode = Episode(observations, {ACT: np.zeros((2, 1), np.int64), REW: np.ones((2, 1))}, False, True)
    places.data.parent.mkdir()
    write_dataset(places.data, [episode, episode], about=about)
    (places.data.with_name(f"{NAME}-damaged.npz")).write_text(TEXT.encode("utf-8", "replace").decode())
    return places.folder


def _spoil_texts(run: Path) -> None:
    """Put a hostile text wherever a run folder has one."""

    def spoilt(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: spoilt(one) for name, one in value.items()}
        return [*map(spoilt, value)] if isinstance(value, list) else TEXT if isinstance(value, str) else value

    for name in ("config.json", "versions.json"):
        (run / name).write_text(json.dumps(spoilt(json.loads((run / name).read_text())) | {TEXT: TEXT}))
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("".join(json.dumps({**json.loads(line), TEXT: 1.0}) + "\n" for line in lines))
    for name in ("error.txt", "git_diff.patch"):
        (run / name).write_bytes(TEXT.encode("utf-8", "replace"))


CASES: dict[str, list[Callable[[Places], Arguments]]] = {
    "train": [
        lambda at: ("--algorithm", "dqn", "--env", "CartPole-v1", *SHORT, "--log-dir", at.written),
        lambda at: ("--algorithm", "dqn", "--env", TEXT),
        lambda at: ("--algorithm", TEXT, "--env", "CartPole-v1"),
        lambda at: ("--algorithm", "dqn", "--env", "CartPole-v1", f"--{TEXT}", "1"),
        lambda at: ("--algorithm", "dqn", "--data", at.data),
        lambda at: ("--algorithm", "dqn", "--env", "CartPole-v1", "--from", at.texts),
    ],
    "sweep": [
        lambda at: ("--algorithm", "dqn", "--env", TEXT, "--vary", "algorithm.lr", "1e-3"),
        lambda at: ("--algorithm", "dqn", "--env", "CartPole-v1", "--vary", TEXT, TEXT),
    ],
    "resume": [lambda at: (at.run, "--target-steps", "120"), lambda at: (at.texts,)],
    "repeat": [lambda at: (at.run, at.written, "--target-steps", "30"), lambda at: (at.texts, at.written)],
    "evaluate": [
        lambda at: (at.run, "--episodes", "1", "--baseline", at.run),
        lambda at: (at.run, "--episodes", "1"),
        lambda at: (at.texts,),
        lambda at: (at.run, "--data", at.data, "--fits", "2", "--updates", "2"),
        lambda at: (at.run, "--data", at.data, "--select", TEXT),
    ],
    "evaluations": [
        lambda at: (at.run,),
        lambda at: (at.texts,),
        lambda at: (at.run, "-o", at.written.with_name(f"{NAME}.md")),
    ],
    "play": [lambda at: (at.run, "--episodes", "1"), lambda at: (at.texts,)],
    "record": [lambda at: (at.run, "-o", at.written.with_name(f"{NAME}.gif")), lambda at: (at.texts, "-o", NAME)],
    "export": [lambda at: (at.run, "-o", at.written.with_name(f"{NAME}.pt2")), lambda at: (at.texts, "-o", NAME)],
    "push": [lambda at: (at.texts, "user/name"), lambda at: (at.run, TEXT)],
    "ls": [lambda at: (at.folder,)],
    "show": [lambda at: (at.run,), lambda at: (at.texts,), lambda at: (at.texts, "--diff")],
    "env": [lambda at: (TEXT,), lambda at: ("CartPole-v1", "--env-kwargs", f"{{{TEXT!r}: 1}}")],
    "compare": [
        lambda at: (
            *(at.texts, "-o", at.written.with_name(f"{NAME}.md")),
            *("--picture", at.written.with_name(f"{NAME}.svg"), "--profile", at.written.with_name(f"{NAME}.png")),
        ),
        lambda at: (at.runs, at.texts, "-o", at.written.with_name(f"{NAME}.csv"), "--metric", TEXT),
    ],
    "plot": [
        lambda at: (at.runs, at.texts, "-o", at.written.with_name(f"{NAME}.svg")),
        lambda at: (at.texts, "-o", at.written.with_name(f"{NAME}.png"), "--metric", TEXT),
    ],
    "report": [lambda at: (at.folder, "-o", at.written.with_name(f"{NAME}.html"), "--title", TEXT)],
    "inspect": [
        lambda at: (at.run, "-o", at.written.with_name(f"{NAME}.png")),
        lambda at: (at.run, "--row", "3"),
        lambda at: (at.texts,),
    ],
    "data make": [lambda at: ("--env", TEXT, "--kind", "random", "-o", at.written)],
    "data collect": [
        lambda at: (at.run, at.written.with_name(f"{NAME}.npz"), "--episodes", "1"),
        lambda at: (at.texts, at.written),
    ],
    "data ls": [lambda at: (at.folder,)],
    "data show": [
        lambda at: (at.data,),
        lambda at: (at.data, "-o", at.written.with_name(f"{NAME}.png")),
        lambda at: (at.data.with_name(f"{NAME}-damaged.npz"),),
    ],
    "data convert": [lambda at: (at.data, at.written.with_name(f"{NAME}.npz")), lambda at: (at.folder, NAME)],
    "data merge": [lambda at: (at.data, at.data, "-o", at.written.with_name(f"{NAME}.npz"))],
    "data prune": [lambda at: (at.data, at.written.with_name(f"{NAME}.npz"), "--max-episodes", "1")],
    "data split": [lambda at: (at.data, "--train", at.written, "--validation", at.written.with_name(f"{NAME}.npz"))],
}
"""Arguments of each command with which it prints names and texts, or refuses them."""
REFUSED = ("sweep", "play", "push", "env", "data make")
"""Commands whose first case is refused; those of the others do what they are for."""


def test_each_command_is_tried() -> None:
    assert set(CASES) == {
        *(name for name, command in COMMANDS.items() if command.place),
        *(f"data {name}" for name in DATA_COMMANDS),
    }


@pytest.mark.quick_share(0.3)
@pytest.mark.parametrize(
    ("command", "number"), [(command, number) for command, cases in CASES.items() for number in range(len(cases))]
)
def test_a_command_prints_texts_as_text(
    command: str,
    number: int,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    places = Places(shutil.copytree(made, tmp_path / "at"))
    places.written.parent.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    arguments = CASES[command][number](places)
    monkeypatch.setattr(sys, "argv", ["pytorchrl", *command.split(), *map(str, arguments)])
    ended: object = None
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            main()
        except SystemExit as error:
            ended = error.code
        said = [warnings.formatwarning(one.message, one.category, one.filename, one.lineno) for one in told]
    printed = "\n".join([*capfd.readouterr(), str(ended), *said])
    assert [sign for sign in printed if not (sign.isprintable() or sign in "\n\t")] == []
    assert "Traceback" not in printed
    # Options are printed with dashes.
    assert printable(NAME[1:]) in printed or "[red]" not in printed
    if number == 0 and command not in REFUSED:
        assert ended is None
    for page in places.written.parent.glob("*.html"):
        shown = re.sub(r"<(script|style)[ >].*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
        assert [sign for sign in shown if not (sign.isprintable() or sign in "\n\t")] == []
        assert printable(NAME) in shown


def test_nothing_is_printed_past_the_functions_that_escape() -> None:
    package = Path(prl.__file__).parent
    found = {}
    for file in package.rglob("*.py"):
        text = file.read_text("utf-8")
        if not any(word in text for word in ("print(", "Console(", "from_markup(")):
            continue
        calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        names = [one.id for one in calls if isinstance(one, ast.Name) and one.id in ("print", "Console")]
        names += [one.attr for one in calls if isinstance(one, ast.Attribute) and one.attr == "from_markup"]
        if names:
            found[str(file.relative_to(package))] = names
    assert found == {"terminal.py": ["print"]}


def test_warnings_of_a_command_are_printed_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "--version"])
    main()
    shown = warnings.formatwarning(TEXT, UserWarning, NAME, 1)
    assert shown.rstrip("\n").isprintable()
    assert printable(TEXT) in shown
