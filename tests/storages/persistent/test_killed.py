"""A process killed at any instant leaves all commits complete, and no other data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storages.persistent import killing
from tests.support.profiles import examples

KILLS = int(os.environ.get("STORAGE_KILLS", examples(12)))
"""Number of kills; small by default."""


@pytest.mark.long
def test_commits_survive_a_kill_at_any_instant(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, killing.__file__, str(tmp_path), str(KILLS), "0"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60 + 3 * KILLS,
    )
    assert finished.returncode == 0, finished.stderr
    print(finished.stdout)  # noqa: T201
    figures = json.loads(finished.stdout)
    assert figures["kills"] == KILLS
    assert figures["checkpoints"] > 0
    assert figures["steps"] > killing.SIZE
    storage = killing.made(tmp_path / "kept")
    assert storage.ring.steps == figures["steps"] + killing.LEFT_OPEN_STEPS, "the end of the process commits the rest"
    storage.close()
