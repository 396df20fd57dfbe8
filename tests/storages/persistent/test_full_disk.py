"""A full disk, mounted for one process: an error reports it, and no committed data is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.storages.persistent import filling_disk

DISK_BYTES = 4_000_000
IN_OWN_NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
"""Runs a command in a separate mount namespace, which other processes do not see."""
MOUNT = f'mount -t tmpfs -o size={DISK_BYTES} tmpfs "$0"'


def why_there_is_no_disk(folder: Path) -> str | None:
    """The reason why no small disk can be mounted here; None if one can."""
    if shutil.which("unshare") is None:
        return "unshare, which creates a mount namespace, is not installed"
    tried = subprocess.run([*IN_OWN_NAMESPACE, "sh", "-c", MOUNT, folder], capture_output=True, text=True, timeout=60)
    return None if tried.returncode == 0 else f"no disk can be mounted here: {tried.stderr.strip()}"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["episodes", "steps"])
def test_a_full_disk_is_reported_and_committed_data_can_be_reopened(kind: str, tmp_path: Path) -> None:
    for name in ("disk", "elsewhere"):
        (tmp_path / name).mkdir()
    if reason := why_there_is_no_disk(tmp_path / "disk"):
        pytest.skip(reason)
    script = [sys.executable, filling_disk.__file__, kind, tmp_path / "disk", tmp_path / "elsewhere"]
    finished = subprocess.run(
        [*IN_OWN_NAMESPACE, "sh", "-c", f'{MOUNT} && exec "$@"', tmp_path / "disk", *script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    print(finished.stdout)  # noqa: T201
    figures = json.loads(finished.stdout)
    assert f"{tmp_path / 'disk' / 'kept'}" in figures["error"]
    assert "free disk space" in figures["error"]
    if kind == "steps":
        assert f"Steps before {figures['safe']} are safe there" in figures["error"]
