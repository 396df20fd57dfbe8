"""A commit on its way to the disk: what was taken from a storage at one instant."""

from dataclasses import dataclass

from storages.persistent.log.records import Block, Image, image_of
from storages.persistent.replay.manifest import Manifest


@dataclass(frozen=True)
class Commit:
    """What is to be written, taken from the storage at one instant.

    What is small was copied then, so that the thread has nothing to do but to write it: what else it did would hold up
    the storage's own thread for longer than that takes to do it.
    """

    number: int
    manifest: Manifest
    steps: Block | Image
    first: int
    """Number of the first step."""
    end: int
    """Number after the last."""
    needed: int
    """The oldest step that it needs."""
    pinned: list[list[int]]
    anew: bool
    """Whether it begins a file."""
    errors: Block | Image | None
    all_errors: bool
    """Whether they are those of all live transitions, and begin a file."""


def to_write(block: Block) -> Block | Image:
    """A block as it is kept until it is written: a copy where it is small."""
    return image_of(block) if block.small else block
