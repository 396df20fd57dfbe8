"""The directory of a buffer of whole episodes, as a data set: what was committed to it, without making the buffer."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from storages.datasets.dataset import About, Dataset
from storages.episode import Episode
from storages.errors import DatasetError
from storages.persistent.episodes.archive import Archive
from storages.persistent.episodes.archive_manifest import NAME, ArchiveManifest
from storages.persistent.episodes.episode_batch import Recording, episodes_since
from storages.persistent.episodes.episode_store import RUNNING
from storages.persistent.episodes.memtable import finished_since, marks_of
from storages.persistent.log.files import refuse_links_in
from storages.persistent.replay.manifest import Manifest
from storages.persistent.replay.reading import read_ring


class EpisodeDirectoryDataset(Dataset):
    """What a directory holds that a ``PersistentEpisodicBuffer`` was made with, read volume by volume.

    Episodes that have ended and are in no volume yet come from the journal; those that run are not among them. One that
    the buffer has in pieces is several. The buffer may be in use: what was committed when this is made is read.

    Args:
        path: the directory.

    Raises:
        PersistenceError: it holds no episodes, or is of another format, or is damaged.
    """

    format: ClassVar[str] = "episodes"

    def __init__(self, path: Path) -> None:
        super().__init__(path, About())
        manifest = ArchiveManifest.read(path)
        if manifest is None:
            raise DatasetError(f"{path} holds no episodes: it has no {NAME}")
        refuse_links_in(path)
        self._layout = manifest.layout
        # The journal first: what goes from it into the archive meanwhile is found in both, and not in neither.
        ring, found = read_ring(path / RUNNING) if Manifest.read(path / RUNNING) is not None else (None, None)
        self._archive = Archive(path, manifest, read_only=True)
        self._live, following = self._archive.live, self._archive.end
        self._loose: list[tuple[int, Recording]] = []
        """Episodes that are in no volume, and the numbers of their first transitions."""
        if ring is not None and found is not None and (state := found.state) is not None:
            self._live = max(self._live, state["live"])
            following = max(following, state["unwritten"], self._live)
            for one in finished_since(ring, marks_of(state, self._archive, ring))[1]:
                recording = Recording.of(ring, one.env, one.first, one.end)
                self._loose.append((following, recording))
                following += recording.steps

    def __len__(self) -> int:
        """Episodes."""
        return len(self._lengths)

    @property
    def steps(self) -> int:
        """Transitions of all episodes."""
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
