"""Input that is broken, or was crafted to do harm, raises one error of this package that names it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytorchrl import CheckpointError
from pytorchrl.logging.metrics_file import MetricsError
from pytorchrl.scheme.compatibility import CompositionError
from storages.persistent import PersistenceError, repair
from tests.pytorchrl.crafted import CASES, made
from tests.pytorchrl.crafted.case import OPENED, Base

_MOST_BYTES = 200 << 20
_OURS = (PersistenceError, CheckpointError, CompositionError, MetricsError)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("whole"))


def test_there_are_at_least_72_cases_of_crafted_input() -> None:
    assert len(CASES) >= 72


@pytest.mark.quick_share(0.05)
@pytest.mark.parametrize("name", CASES)
def test_crafted_input_raises_a_one_line_error_that_names_it(
    name: str, base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, outside = CASES[name], base.outside()
    # Crafted code would create the file "ran" there.
    monkeypatch.chdir(tmp_path)
    path = made(case, base, tmp_path / "crafted")
    with pytest.raises(_OURS) as refused:
        OPENED[case.how](path)
    message = str(refused.value)
    assert "\n" not in message
    assert (case.named or path.name) in message
    assert len(message) < 1000
    assert base.outside() == outside
    assert not Path("ran").exists()


def test_repair_names_and_drops_commits_without_facts(base: Base, tmp_path: Path) -> None:
    outside = base.outside()
    path = made(CASES["storages: commits without facts"], base, tmp_path / "crafted")
    repaired = str(repair(path))
    assert "000000000001.steps" in repaired
    assert "0 steps are there" in repaired
    assert base.outside() == outside


@pytest.mark.parametrize("how", OPENED)
def test_the_input_from_which_cases_are_crafted_can_be_opened(how: str, base: Base) -> None:
    whole = {
        "data set": base.npz,
        "ring": base.mine.with_name("ring"),
        "state": base.ring,
        "episodic": base.episodic,
        "checkpoint": base.run / "checkpoint.pt",
        "resumed": base.run,
        "agent": base.run,
        "repaired": base.ring,
        "inspected": base.run,
        "metrics": base.run,
        "run's episodes": base.run,
    }
    OPENED[how](whole[how])
    for path in base.minari.values():
        OPENED["data set"](path)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_crafted_input_takes_little_memory(base: Base, tmp_path: Path) -> None:
    paths = {name: str(made(case, base, tmp_path / re.sub(r"\W+", "-", name))) for name, case in CASES.items()}
    (tmp_path / "paths.json").write_text(json.dumps(paths))
    outside = base.outside()
    finished = subprocess.run(
        [sys.executable, "-m", "tests.pytorchrl.crafted", str(tmp_path / "paths.json")],
        capture_output=True,
        text=True,
        check=True,
    )
    results = json.loads(finished.stdout)
    assert {name for name, one in results.items() if one["bytes"] > _MOST_BYTES or not one["error"]} == set()
    assert base.outside() == outside
