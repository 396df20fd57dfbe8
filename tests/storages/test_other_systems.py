"""Storages in memory need no POSIX features; without POSIX, a storage with a directory raises an error that says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_POSIX = """
import os
import sys

import torch  # Imported first, because it inspects the system itself.

sys.modules["fcntl"] = None
for name in ("O_NOFOLLOW", "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "fdatasync", "register_at_fork", "fork", "pread",
             "pwrite"):
    if hasattr(os, name):
        delattr(os, name)

from types import SimpleNamespace

import numpy as np

from storages import PERBuffer, ReplayBuffer
from storages.persistent import PersistenceError
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2


def made(kind, **given):
    return kind.create_factory(size=20, **given)("cpu", None, SimpleNamespace(gamma=0.9), None)


flag = np.zeros((2, 1), np.bool_)
for storage in (made(ReplayBuffer), made(PERBuffer, n_step=3, alpha=0.5)):
    for step in range(30):
        storage.insert_transition({
            OBS: np.full((2, 3), step, np.float32), DONE: flag, ACT: flag, REW: np.ones((2, 1), np.float32),
            OBS2: np.full((2, 3), step + 1, np.float32), DONE2: flag, TRUNC2: flag,
        })
    (batch,) = storage.generate_batches(1, 8)
    print(len(storage), tuple(batch[OBS].shape))
try:
    made(ReplayBuffer, directory=sys.argv[1])
except PersistenceError as error:
    print(error)
"""


@pytest.mark.long
def test_storages_in_memory_work_without_posix_locks_forks_and_open_flags(tmp_path: Path) -> None:
    output = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, tmp_path / "kept"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        timeout=300,
    ).stdout
    assert output.splitlines() == [
        "40 (8, 3)",
        "40 (8, 3)",
        "ReplayBuffer: a storage with a directory needs POSIX file locks, which this system lacks; keep it in memory",
    ]
