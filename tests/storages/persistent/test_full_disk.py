"""A disk that is really full, a small one of a process's own: it is said, and nothing that was committed is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import filling_disk

DISK_BYTES = 4_000_000
ALONE = ["unshare", "--user", "--map-root-user", "--mount"]
"""With file systems of its own, of which nobody else sees anything."""
MOUNT = f'mount -t tmpfs -o size={DISK_BYTES} tmpfs "$0"'


def why_there_is_no_disk(folder: Path) -> str | None:
    """Why no small disk can be made here; None where it can."""
    if shutil.which("unshare") is None:
        return "unshare, which gives a process file systems of its own, is not there"
    tried = subprocess.run([*ALONE, "sh", "-c", MOUNT, folder], capture_output=True, text=True, timeout=60)
    return None if tried.returncode == 0 else f"no disk of one's own can be made here: {tried.stderr.strip()}"


@pytest.mark.parametrize("kind", ["episodes", pytest.param("steps", marks=pytest.mark.long)])
def test_a_full_disk_is_said_and_what_was_committed_opens_again(kind: str, tmp_path: Path) -> None:
    for name in ("disk", "elsewhere"):
        (tmp_path / name).mkdir()
    if reason := why_there_is_no_disk(tmp_path / "disk"):
        pytest.skip(reason)
    script = [sys.executable, filling_disk.__file__, kind, tmp_path / "disk", tmp_path / "elsewhere"]
    finished = subprocess.run(
        [*ALONE, "sh", "-c", f'{MOUNT} && exec "$@"', tmp_path / "disk", *script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    print(finished.stdout)  # noqa: T201
    figures = json.loads(finished.stdout)
    assert f"{tmp_path / 'disk' / 'kept'}" in figures["said"]
    assert "free disk space" in figures["said"]
    if kind == "steps":
        assert f"Steps before {figures['safe']} are safe there" in figures["said"]
