"""What a directory of episodes held when it was closed, so that what is missing at its end is noticed."""

from collections.abc import Mapping
from typing import Any, TypedDict

from storages.persistent.episodes.volume import Record


class Closed(TypedDict):
    """Part of the last commit when a directory was closed, and of none after it."""

    archive: Record
    """The last record of the archive."""
    file: str
    """The last file of the archive's log."""
    errors: int | None
    """Checksum of the file of errors; None where there is none."""


def closed_of(state: Mapping[str, Any] | None) -> Closed | None:
    """What a directory was closed with; None where something was committed since."""
    return None if state is None else state.get("closed")
