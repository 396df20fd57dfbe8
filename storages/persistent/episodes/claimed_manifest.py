"""The manifest with which a directory of episodes is opened, and the ancestor that it names."""

from pathlib import Path

from storages.errors import PersistenceError
from storages.persistent.episodes.ancestors import ancestors_from, holds_episodes, is_ancestor
from storages.persistent.episodes.episode_manifest import GROUP, EpisodeManifest
from storages.persistent.episodes.segment import Segment, flaw_of_record, segment_of
from storages.persistent.episodes.segment_log import segments_log
from storages.persistent.episodes.segment_store import SegmentStore


def manifest_to_read(directory: Path) -> EpisodeManifest:
    """Return the manifest of a directory to which another process writes.

    Raises:
        PersistenceError: there is none.
    """
    manifest = EpisodeManifest.read(directory)
    if manifest is None:
        raise PersistenceError(f"{directory} holds no episodes yet, and read_only=True writes none")
    return manifest


def manifest_to_write(directory: Path, ancestor: Path | None, durable: bool) -> EpisodeManifest | None:
    """Return the manifest of a directory; None if there is none yet, and the first transition will determine it.

    Args:
        directory: the directory, which must exist.
        ancestor: directory that a new one continues, from the ancestor's present last commit; None for no ancestor.
        durable: fsync a new manifest.

    Raises:
        PersistenceError: the directory continues another ancestor, or the ancestor holds no episodes.
        OSError: a new manifest cannot be written.
    """
    manifest = EpisodeManifest.read(directory)
    if ancestor is None:
        return manifest
    if manifest is not None:
        return _with_ancestor(directory, manifest, ancestor, durable)
    older = EpisodeManifest.read(ancestor)
    if older is None:
        raise PersistenceError(f"the ancestor {ancestor} holds no episodes")
    record = SegmentStore(ancestor, older, read_only=True).record
    ancestors = tuple(ancestors_from(directory, ancestor, older, record["commit"], record["checksum"]))
    manifest = EpisodeManifest.made(older.layout, older.stacked, older.segment_rows, ancestors)
    manifest.write(directory, durable)
    return manifest


def _with_ancestor(directory: Path, manifest: EpisodeManifest, ancestor: Path, durable: bool) -> EpisodeManifest:
    """Return the manifest of a directory, with another place of its ancestor if that is named.

    Raises:
        PersistenceError: another directory is named.
    """
    nearest = manifest.ancestors[0] if manifest.ancestors else None
    if nearest is not None and nearest.directory == str(ancestor):
        return manifest
    if nearest is None or not is_ancestor(ancestor, nearest, _recorded(directory, manifest)):
        there = "none" if nearest is None else f"{nearest.directory}, or where that was moved"
        why = "" if holds_episodes(ancestor) else ", which holds no episodes"
        raise PersistenceError(
            f"the ancestor of {directory} is {there}, not {ancestor}{why}; name that one, or a new directory"
        )
    manifest = manifest.with_ancestor_in(ancestor, directory)
    manifest.write(directory, durable)
    return manifest


def _recorded(directory: Path, manifest: EpisodeManifest) -> list[Segment]:
    """Return the segments of the nearest ancestor that the log of a directory records."""
    walked = segments_log(directory, durable=False).walk(lambda record: flaw_of_record(record, manifest))
    records = (one[0].record for one in walked if not isinstance(one, str))
    segments = (segment_of(record, directory / GROUP) for record in records)
    return [segment for segment in segments if segment is not None and segment.ancestor == 1]
