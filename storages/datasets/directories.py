"""The directories of storages as data sets: what was committed to them, read without making the storage."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from storages.core.ring.ring import Ring
from storages.datasets.dataset import About, Dataset
from storages.datasets.fill import count_episodes_in, episodes_in
from storages.episode import Episode
from storages.errors import DatasetError
from storages.persistent.episodes import archive_manifest
from storages.persistent.episodes.archive import Archive
from storages.persistent.episodes.archive_manifest import ArchiveManifest
from storages.persistent.episodes.episode_batch import Recording, episodes_since
from storages.persistent.episodes.episode_store import RUNNING
from storages.persistent.episodes.memtable import finished_since, marks_of
from storages.persistent.log.files import refuse_links_in
from storages.persistent.replay import manifest
from storages.persistent.replay.manifest import Manifest
from storages.persistent.replay.reading import read_ring


class StorageDirectory(Dataset):
    """The steps in the directory of a storage, as episodes; all are read at the first access.

    The storage may be in use: its last commit before the first access is read.

    Args:
        path: the directory.

    Raises:
        PersistenceError: it holds no storage, or one of another format, or is damaged.
    """

    format: ClassVar[str] = "storage"

    def __init__(self, path: Path) -> None:
        super().__init__(path, About())
        found = Manifest.read(path) if path.is_dir() else None
        if found is None:
            raise DatasetError(f"{path} holds no storage: it has no {manifest.NAME}")
        self.manifest = found
        """Size, environments, fields."""

    def __len__(self) -> int:
        """Number of episodes, complete or not."""
        return count_episodes_in(self._ring)

    @property
    def steps(self) -> int:
        """Number of transitions in the storage."""
        return self._ring.live_transitions

    def _episodes(self) -> Iterator[Episode]:
        return episodes_in(self._ring)

    @cached_property
    def _ring(self) -> Ring:
        ring, _ = read_ring(self.path)
        return ring


class EpisodeDirectory(Dataset):
    """The episodes in the directory of a ``PersistentEpisodicBuffer``, read segment by segment.

    Finished episodes that are in no segment yet come from the write-ahead log; unfinished ones are left out. An
    episode that the buffer holds in several pieces is several episodes here. The buffer may be in use: its last commit
    before this object was made is read.

    Args:
        path: the directory.

    Raises:
        PersistenceError: it holds no episodes, or is of another format, or is damaged.
    """

    format: ClassVar[str] = "episodes"

    def __init__(self, path: Path) -> None:
        super().__init__(path, About())
        found = ArchiveManifest.read(path)
        if found is None:
            raise DatasetError(f"{path} holds no episodes: it has no {archive_manifest.NAME}")
        refuse_links_in(path)
        self._layout = found.layout
        # The log first: episodes that are moved to a segment meanwhile are then found twice, and not missed.
        ring, commit = read_ring(path / RUNNING) if Manifest.read(path / RUNNING) is not None else (None, None)
        self._archive = Archive(path, found, read_only=True)
        self._live, following = self._archive.live, self._archive.end
        self._loose: list[tuple[int, Recording]] = []
        """Episodes in no segment, and the numbers of their first transitions."""
        if ring is not None and commit is not None and (state := commit.state) is not None:
            self._live = max(self._live, state["live"])
            following = max(following, state["unwritten"], self._live)
            for one in finished_since(ring, marks_of(state, self._archive, ring))[1]:
                recording = Recording.of(ring, one.env, one.first, one.end)
                self._loose.append((following, recording))
                following += recording.steps

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self._lengths)

    @property
    def steps(self) -> int:
        """Number of transitions in all episodes."""
        return sum(self._lengths)

    @property
    def _lengths(self) -> list[int]:
        lengths = []
        for volume in self._archive.volumes:
            firsts = volume.first + np.cumsum(volume.lengths) - volume.lengths
            lengths += volume.lengths[firsts >= self._live].tolist()
        return lengths + [recording.steps for first, recording in self._loose if first >= self._live]

    def _episodes(self) -> Iterator[Episode]:
        for volume in self._archive.volumes:
            if volume.end > self._live:
                yield from episodes_since(self._live, volume.first, self._archive.read(volume), self._layout)
        for first, recording in self._loose:
            yield from episodes_since(self._live, first, recording, self._layout)
