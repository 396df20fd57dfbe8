"""Fills a small disk by insertions into a storage on it, and checks the storage.

A script, because only its process may use the disk: ``python filling_disk.py <kind> <disk> <elsewhere>`` prints figures
as a line of JSON.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from storages.persistent import PersistenceError
from storages.persistent.replay import write_ahead_log
from tests.storages.persistent import killing, killing_episodic
from tests.storages.persistent.killing import sample

COMMIT_EVERY = 20
BALLAST_BYTES = 1_500_000


class Steps:
    """A storage of steps, and an equal one in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage = self.opened(directory)
        self.twin = killing.Twin(0)
        self.storage.seed(0)

    def opened(self, directory: Path) -> Any:
        return killing.made(directory, COMMIT_EVERY)

    def insert(self) -> None:
        killing.go_on(self.storage, self.twin.steps)
        self.twin.bring_to(self.twin.steps + 1)

    def assert_is_whole(self) -> None:
        killing.assert_same(self.storage, self.twin.storage, self.twin.steps)

    def assert_is_prefix(self, storage: Any) -> int:
        killing.assert_holds_what_was_inserted(storage)
        return int(storage.ring.steps)

    @property
    def inserted(self) -> int:
        return self.twin.steps


class Episodes:
    """A buffer of whole episodes, and its model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.storage, self.model = self.opened(directory), killing_episodic.Model()

    def opened(self, directory: Path) -> Any:
        return killing_episodic.made(directory, COMMIT_EVERY)

    def insert(self) -> None:
        self.storage.insert_transition(sample(self.model.steps))
        self.model.bring_to(self.model.steps + 1)

    def assert_is_whole(self) -> None:
        self.model.assert_is(self.storage)

    def assert_is_prefix(self, storage: Any) -> int:
        model, steps = killing_episodic.Model(), killing_episodic.steps_in(storage)
        model.bring_to(steps)
        model.assert_is(storage)
        return steps

    @property
    def inserted(self) -> int:
        return self.model.steps


KINDS: dict[str, Callable[[Path], Any]] = {"steps": Steps, "episodes": Episodes}


def main(kind: str, disk: Path, elsewhere: Path) -> None:
    torch.set_num_threads(1)
    # The log grows in one file until the disk is full; small rings drop files long before.
    write_ahead_log._SMALLEST_LOG_FILE_BYTES = 1 << 30
    kept, ballast = KINDS[kind](disk / "kept"), disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    for _ in range(5):
        # The same holds after each further attempt.
        error_message = until_refused(kept)
        kept.assert_is_whole()
    assert kept.inserted > killing.SIZE, "older steps were overwritten"
    # A copy is what remains if the process is killed now.
    shutil.copytree(disk / "kept", elsewhere / "kept")
    there = kept.opened(elsewhere / "kept")
    safe = kept.assert_is_prefix(there)
    assert kept.inserted - COMMIT_EVERY <= safe <= kept.inserted
    there.close()
    # The storage is closed and reopened while the disk is full.
    try:
        kept.storage.close()
    except PersistenceError as error:
        assert str(disk / "kept") in str(error)  # noqa: PT017
    kept.assert_is_whole()
    again = kept.opened(disk / "kept")
    assert kept.assert_is_prefix(again) >= safe
    # Now there is space again.
    ballast.unlink()
    again.close()
    print(json.dumps({"inserted": kept.inserted, "safe": safe, "error": error_message}))  # noqa: T201


def until_refused(kept: Any) -> str:
    while True:
        try:
            kept.insert()
        except PersistenceError as error:
            assert "No space left on device" in str(error)  # noqa: PT017
            return str(error)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
