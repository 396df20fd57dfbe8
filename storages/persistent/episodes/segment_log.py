"""Log of the segments of a directory: those that it wrote, and those that it has from its ancestors."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from storages.persistent.episodes.episode_manifest import EpisodeManifest
from storages.persistent.episodes.segment import Segment, record_of
from storages.persistent.log.commit_log import CommitLog
from storages.system_calls import sync_directory

SUFFIX = "segments"
_UNFINISHED = "repaired"
"""Suffix of a log file that is not complete yet."""


def segments_log(directory: Path, durable: bool, *, as_of_now: bool = False) -> CommitLog:
    """Return the log of the segments of a directory, not replayed yet; see :class:`CommitLog`."""
    return CommitLog(directory, SUFFIX, durable, rows="transitions", contiguous=False, as_of_now=as_of_now)


def rewrite_log(
    directory: Path,
    manifest: EpisodeManifest,
    number: int,
    segments: Sequence[Segment],
    live: int,
    end: int,
    watermarks: list[int] | None = None,
    next_row: int = 0,
    *,
    durable: bool = True,
) -> None:
    """Replace the log by one file that records these segments, in one commit each; atomic.

    Args:
        directory: the directory.
        manifest: its manifest.
        number: number of the first commit, which is larger than that of any file in the directory.
        segments: the segments, oldest first.
        live: number of the oldest live transition.
        end: number of the next transition.
        watermarks: for each environment, the number of its steps that are in segments or were dropped.
        next_row: row of the arrays at which the next segment begins.
        durable: whether the log survives a power cut.

    Raises:
        OSError: the write failed; the log is unchanged.
    """
    files = segments_log(directory, durable).files
    anew = CommitLog(directory, _UNFINISHED, durable)
    # Left by an interrupted call.
    anew.files.delete_before(number + 1)
    anew.position = {"commit": number - 1, "checksum": 0}
    recorded: Sequence[Segment | None] = segments or [None]
    for place, segment in enumerate(recorded):
        facts = anew.next_facts(live, [], begins=place == 0) | {"watermarks": watermarks or [], "next_row": next_row}
        facts |= {} if place else {"manifest": manifest.facts()}
        record = record_of(number + place, segment, facts, end)
        anew.append(replace(record, steps=end) if place == len(recorded) - 1 else record)
    anew.files.close()
    anew.files.path(number).replace(files.path(number))
    if durable:
        sync_directory(directory)
    files.delete_before(number)
