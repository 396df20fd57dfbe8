"""A commit before it is written: a snapshot of a storage."""

from dataclasses import dataclass

from storages.persistent.log.records import EncodedRecord, Record, encode
from storages.persistent.replay.manifest import Manifest


@dataclass(frozen=True)
class Commit:
    """Snapshot of a storage that is to be written.

    What is small was copied then, so that the thread has nothing to do but to write it: what else it did would hold up
    the storage's own thread for longer than that takes to do it.
    """

    number: int
    manifest: Manifest
    steps: Record | EncodedRecord
    first: int
    """Number of the first step."""
    end: int
    """Number after the last."""
    needed: int
    """The oldest step that it needs."""
    pinned: list[list[int]]
    new_file: bool
    """Whether it begins a file."""
    errors: Record | EncodedRecord | None
    all_errors: bool
    """Whether they are those of all live transitions, and begin a file."""


def encode_if_small(record: Record) -> Record | EncodedRecord:
    """A record as it is kept until it is written: a copy where it is small."""
    return encode(record) if record.small else record
