"""Directories of storages as data sets: committed episodes, read without making the storage."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from storages.core.ring.ring import Ring
from storages.datasets.dataset import ACTION_NAMES, About, Dataset
from storages.datasets.fill import count_episodes_in, episodes_in
from storages.episode import Episode
from storages.errors import DamageError, DatasetError
from storages.files import read_beside_a_writer, refuse_links_in
from storages.persistent.episodes.episode_batch import EpisodeBatch, episodes_since
from storages.persistent.episodes.episode_manifest import WAL_FOLDER, EpisodeManifest
from storages.persistent.episodes.memtable import finished_since, late_of, watermarks_of
from storages.persistent.episodes.segment_store import SegmentStore
from storages.persistent.replay.recovery import read_ring
from storages.persistent.replay.ring_manifest import RingManifest
from storages.persistent.spaces_file import read_spaces

_READ_AT_ONCE_BYTES = 16 << 20


def about_spaces(spaces: Mapping[str, Any] | None) -> About:
    """Return the metadata of data with these spaces, as :func:`write_spaces` takes them."""
    if spaces is None:
        return About()
    names = spaces.get("action_names")
    further = {ACTION_NAMES: list(names)} if names else {}
    return About(observation_space=spaces.get("observation"), action_space=spaces.get("action"), further=further)


class RingDataset(Dataset):
    """The steps in a ring as episodes, complete or not."""

    @cached_property
    def _ring(self) -> Ring:
        raise NotImplementedError

    def __len__(self) -> int:
        """Number of episodes, complete or not."""
        return count_episodes_in(self._ring)

    @property
    def steps(self) -> int:
        """Number of transitions in the ring."""
        return self._ring.live_transitions

    def _episodes(self) -> Iterator[Episode]:
        return episodes_in(self._ring)


class StorageDirectory(RingDataset):
    """The steps in the directory of a replay storage as episodes; all are read at the first access.

    The storage may be in use: its last commit before the first access is read.

    Args:
        path: the directory.

    Raises:
        PersistenceError: the directory holds no storage, has another format version, or is damaged.
    """

    format: ClassVar[str] = "storage"

    def __init__(self, path: Path) -> None:
        super().__init__(path, about_spaces(read_spaces(path)))
        found = RingManifest.read(path) if path.is_dir() else None
        if found is None:
            raise DatasetError(f"{path} holds no storage: it has no {RingManifest.name}")
        self.manifest = found
        """The manifest: size, number of environments and layout."""

    @cached_property
    def _ring(self) -> Ring:
        ring, *_ = read_ring(self.path)
        return ring


class EpisodeDirectory(Dataset):
    """The episodes in the directory of a ``PersistentEpisodicBuffer``, read segment by segment.

    Finished episodes that are in no segment yet come from the write-ahead log; unfinished ones are left out. An
    episode that the buffer holds in several pieces is several episodes here. The buffer may be in use: its last commit
    before this object was made is read. Up to 16 MiB of episodes are read at once, so that a buffer of that size may
    drop them meanwhile.

    Args:
        path: the directory.

    Raises:
        PersistenceError: the directory holds no episodes, has another format version, or is damaged.
    """

    format: ClassVar[str] = "episodes"

    def __init__(self, path: Path) -> None:
        super().__init__(path, about_spaces(read_spaces(path)))
        found = EpisodeManifest.read(path)
        if found is None:
            raise DatasetError(f"{path} holds no episodes: it has no {EpisodeManifest.name}")
        refuse_links_in(path)
        self._manifest = found
        read_beside_a_writer(path, self._read_commit)
        self._archive.warn_of_lost()

    def _read_commit(self) -> None:
        path = self.path
        # The write-ahead log first: episodes that are flushed to a segment meanwhile are read twice, and not missed.
        wal = path / WAL_FOLDER
        ring, state, _ = (None, None, None) if RingManifest.read(wal) is None else read_ring(wal)
        self._archive = SegmentStore(path, self._manifest, read_only=True)
        self._live, following = self._archive.live, self._archive.end
        self._open: list[tuple[int, EpisodeBatch]] = []
        """Finished episodes in no segment, and the numbers of their first transitions."""
        if ring is not None and state is not None:
            self._live = max(self._live, state["live"])
            following = max(following, state["unwritten"], self._live)
            for one in finished_since(ring, watermarks_of(state, self._archive, ring), late=late_of(state))[1]:
                batch = EpisodeBatch.of(ring, one.env, one.first, one.end)
                self._open.append((following, batch))
                following += batch.steps
        self._in_memory = self._small_segments()
        """Episodes of segments, by the numbers of their first transitions."""

    def _small_segments(self) -> dict[int, EpisodeBatch]:
        """Read the segments that the buffer may drop, if they are small."""
        row = sum(column.layout.count * column.layout.dtype.itemsize for column in self._manifest.columns)
        own = [one for one in self._archive.segments if not one.ancestor and one.end > self._live]
        if sum(segment.rows for segment in own) * row > _READ_AT_ONCE_BYTES:
            return {}
        read = {}
        for segment in own:
            # Damage is left to whoever reads these episodes.
            with suppress(DamageError):
                read[segment.first] = self._archive.read(segment)
        return read

    @cached_property
    def _lengths(self) -> list[int]:
        lengths = []
        for segment in self._archive.segments:
            firsts = segment.first + np.cumsum(segment.lengths) - segment.lengths
            lengths += segment.lengths[firsts >= self._live].tolist()
        return lengths + [batch.steps for first, batch in self._open if first >= self._live]

    def _episodes(self) -> Iterator[Episode]:
        for segment in self._archive.segments:
            if segment.end > self._live:
                batch = self._in_memory.get(segment.first)
                if batch is None:
                    batch = self._archive.read(segment)
                yield from episodes_since(self._live, segment.first, batch, self._manifest.layout)
        for first, batch in self._open:
            yield from episodes_since(self._live, first, batch, self._manifest.layout)
