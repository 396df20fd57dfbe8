"""Ancestors of a directory of episodes: where they are now, and which of their segments are left.

A directory records the segments that it has from its ancestors in its own log, with the checksums of their chunks. What
the ancestors do afterwards can therefore only take segments away: one is lost when its files are deleted, by an
ancestor that drops its oldest episodes, or when it is damaged and the ancestor, repaired, does not hold it any more.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from storages.errors import DamageError, PersistenceError
from storages.persistent.episodes.episode_manifest import GROUP, Ancestor, EpisodeManifest
from storages.persistent.episodes.segment import Segment, flaw_of_record, read_segment, segment_of
from storages.persistent.episodes.segment_log import segments_log
from storages.persistent.log.chunks import Chunks
from storages.persistent.log.records import StoredRecord


def ancestors_from(
    directory: Path, ancestor: Path, older: EpisodeManifest, commit: int, checksum: int
) -> list[Ancestor]:
    """Return the ancestors of a new directory that continues another one from a commit on."""
    nearest = Ancestor(str(ancestor), commit, checksum, os.path.relpath(ancestor, directory))
    # Manifests of earlier versions lack the relative paths.
    before, place = [], ancestor
    for one in older.ancestors:
        before.append(one if one.relative else one._replace(relative=os.path.relpath(one.directory, place)))
        place = Path(one.directory)
    return [nearest, *before]


def place_of_nearest(directory: Path, manifest: EpisodeManifest) -> Path:
    """Return where the directory is that another one continues.

    Raises:
        PersistenceError: it is missing.
    """
    return _places(directory, manifest, [], {1})[1]


def places_of(directory: Path, manifest: EpisodeManifest, inherited: Sequence[Segment]) -> dict[int, Path]:
    """Return where the ancestors are that have any of these segments, by :attr:`Segment.ancestor`.

    The place relative to the directory that an ancestor precedes is tried first, and then the recorded one. Where
    neither has the recorded commit, nor any of the segments, it is the first of the two that holds episodes.

    Raises:
        PersistenceError: an ancestor is at neither place.
    """
    return _places(directory, manifest, inherited, {segment.ancestor for segment in inherited})


def _places(
    directory: Path, manifest: EpisodeManifest, inherited: Sequence[Segment], needed: set[int]
) -> dict[int, Path]:
    places: dict[int, Path] = {}
    child = directory
    for number, ancestor in enumerate(manifest.ancestors, 1):
        if number > max(needed, default=0):
            break
        candidates = list(_candidates(child, ancestor))
        of_it = [segment for segment in inherited if segment.ancestor == number]
        place = next((path for path in candidates if is_ancestor(path, ancestor, of_it)), None)
        if place is None and candidates:
            # It has dropped all that the directory had from it; the recorded place rather than one found on the way.
            place = candidates[-1]
        if place is not None:
            places[number] = place
        elif number in needed:
            raise missing(directory, Path(ancestor.directory), nearest=number == 1)
        child = Path(ancestor.directory) if place is None else place
    return {number: place for number, place in places.items() if number in needed}


def _candidates(child: Path, ancestor: Ancestor) -> Iterator[Path]:
    beside = [Path(os.path.normpath(child / ancestor.relative))] if ancestor.relative else []
    for place in dict.fromkeys([*beside, Path(ancestor.directory)]):
        if place != child and holds_episodes(place):
            yield place


def holds_episodes(place: Path) -> bool:
    """Return whether a path is that of a directory of episodes, be it damaged."""
    try:
        return (place / EpisodeManifest.name).is_file() or bool(segments_log(place, durable=False).files.numbers())
    except OSError:
        return False


def missing(directory: Path, ancestor: Path, nearest: bool = True) -> PersistenceError:
    """Return the error for an ancestor that is not where it was; ``nearest`` if it is the one that is continued."""
    way_out = "restore it, or name its present place with ancestor=" if nearest else "restore it there"
    return PersistenceError(
        f"{ancestor}, {'the' if nearest else 'an'} ancestor of {directory}, is missing; {way_out}. If it is lost, "
        f"storages.persistent.repair({str(directory)!r}) drops its episodes, and keeps the rest"
    )


def is_ancestor(place: Path, ancestor: Ancestor, inherited: Sequence[Segment]) -> bool:
    """Return whether a directory has the commit from which another one continues it, or one of these segments of it."""
    if not holds_episodes(place):
        return False
    if not ancestor.commit:
        return True
    by_first = {segment.first: segment for segment in inherited}
    for found in _records(place):
        if (found.record.commit, found.checksum) == (ancestor.commit, ancestor.checksum):
            return True
        segment = _segment_in(found, place)
        if segment is not None and segment.first in by_first and segment.has_content_of(by_first[segment.first]):
            return True
    return False


def _records(place: Path) -> Iterator[StoredRecord]:
    """Iterate over the intact records in the log of a directory to which another process may be writing."""
    try:
        for found in segments_log(place, durable=False, as_of_now=True).files.walk():
            if not isinstance(found, str):
                yield found[0]
    except OSError:
        return


def _segment_in(found: StoredRecord, place: Path) -> Segment | None:
    try:
        return segment_of(found.record, place / GROUP)
    except (LookupError, TypeError, ValueError, AttributeError):
        # It is damaged, or of another package.
        return None


def has_dropped(place: Path, segment: Segment) -> bool:
    """Return whether an ancestor records that it holds other episodes now, without a segment."""
    try:
        walked = list(segments_log(place, durable=False, as_of_now=True).walk(lambda record: None))
    except OSError:
        return False
    if not walked or any(isinstance(one, str) for one in walked):
        return False
    kept: list[Segment] = []
    for one in walked:
        assert not isinstance(one, str)
        if one[0].record.facts["begins"]:
            kept = []
        there = _segment_in(one[0], place)
        kept += [] if there is None else [there]
    return not any(segment.has_content_of(one) for one in kept)


def split(inherited: Sequence[Segment], columns: Sequence[Chunks]) -> tuple[list[Segment], list[Segment]]:
    """Return the segments whose files are there, and those of which files are missing."""
    numbers: dict[tuple[Path, tuple[str, ...]], set[int]] = {}
    for group in {segment.directory for segment in inherited}:
        numbers |= {(group, column.leaf): set(column.numbers(group)) for column in columns}
    there: list[Segment] = []
    lost: list[Segment] = []
    for segment in inherited:
        whole = all(
            numbers[segment.directory, column.leaf].issuperset(
                range(begin := segment.row // column.rows, begin + len(segment.checksums[column.leaf]))
            )
            for column in columns
        )
        (there if whole else lost).append(segment)
    return there, lost


def is_lost(segment: Segment, columns: Sequence[Chunks]) -> bool:
    """Return whether a segment that cannot be read was dropped by the ancestor that had it."""
    return bool(split([segment], columns)[1]) or has_dropped(segment.directory.parent, segment)


def intact(directory: Path, manifest: EpisodeManifest, inherited: Sequence[Segment]) -> tuple[list[Segment], list[str]]:
    """Read segments of ancestors; return those that are intact, and descriptions of the others."""
    whole, flaws = [], []
    for number in sorted({segment.ancestor for segment in inherited}):
        of_it = [segment for segment in inherited if segment.ancestor == number]
        try:
            place = places_of(directory, manifest, of_it)[number]
        except PersistenceError:
            steps = sum(segment.steps for segment in of_it)
            flaws.append(
                f"{manifest.ancestors[number - 1].directory}, an ancestor, is missing, with {steps} transitions"
            )
            continue
        for segment in of_it:
            segment = replace(segment, directory=place / GROUP)
            try:
                read_segment(segment, manifest.columns)
                whole.append(segment)
            except DamageError as damage:
                flaws.append(str(damage))
            except OSError as error:
                flaws.append(f"{segment.description()} of the ancestor {place} cannot be read: {error}")
    return whole, flaws


def recorded_by_ancestors(
    directory: Path, manifest: EpisodeManifest
) -> tuple[list[Segment], tuple[Ancestor, ...], list[str]]:
    """Return the segments that a directory has from its ancestors according to the log of the nearest one.

    Returns:
        The segments, all ancestors, and descriptions of what is damaged or missing.
    """
    nearest = manifest.ancestors[0]
    known = (
        nearest._replace(relative=nearest.relative or os.path.relpath(nearest.directory, directory)),
        *manifest.ancestors[1:],
    )
    try:
        place = place_of_nearest(directory, manifest)
        older = EpisodeManifest.read(place)
    except PersistenceError as error:
        return [], known, [str(error).partition(";")[0]]
    if older is None:
        return [], known, [f"{place}, an ancestor, has no {EpisodeManifest.name}"]
    segments: list[Segment] = []
    flaws: list[str] = []
    needed, recorded = None, older.has_records_of_ancestors or not older.ancestors
    walked = segments_log(place, durable=False, as_of_now=True).walk(lambda record: flaw_of_record(record, older))
    for one in walked if nearest.commit else ():
        if isinstance(one, str):
            flaws.append(one)
            continue
        record = one[0].record
        if record.facts["begins"]:
            segments, recorded = [], True
        segment = segment_of(record, place / GROUP)
        segments += [] if segment is None else [segment]
        if (record.commit, one[0].checksum) == (nearest.commit, nearest.checksum):
            needed = record.facts["needed"]
            break
    if nearest.commit and needed is None:
        flaws.append(f"{place}, an ancestor, has no commit {nearest.commit} of that time any more")
        segments = []
    before = older.ancestors
    if not recorded:
        inherited, before, more = recorded_by_ancestors(place, older)
        segments, flaws = [*inherited, *segments], [*more, *flaws]
    segments = [replace(one, ancestor=one.ancestor + 1) for one in segments if one.end > (needed or 0)]
    return segments, tuple(ancestors_from(directory, place, replace(older, ancestors=before), *nearest[1:3])), flaws
