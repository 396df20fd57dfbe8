"""The directory of a storage, as a data set: what was committed to it, without making the storage."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from storages.core.ring.ring import Ring
from storages.datasets.dataset import About, Dataset
from storages.datasets.fill import count_episodes_in, episodes_in
from storages.episode import Episode
from storages.errors import DatasetError
from storages.persistent.replay.manifest import NAME, Manifest
from storages.persistent.replay.reading import read_ring


class StorageDirectory(Dataset):
    """What a directory holds that a storage was made with; all of it is read at once, when it is first asked for.

    The storage may be in use: what was committed last is read then.

    Args:
        path: the directory.

    Raises:
        PersistenceError: it holds no storage, or one of another format, or is damaged.
    """

    format: ClassVar[str] = "storage"

    def __init__(self, path: Path) -> None:
        super().__init__(path, About())
        manifest = Manifest.read(path) if path.is_dir() else None
        if manifest is None:
            raise DatasetError(f"{path} holds no storage: it has no {NAME}")
        self.manifest = manifest
        """Size, environments, fields."""

    def __len__(self) -> int:
        """Episodes, or what is stored of them."""
        return count_episodes_in(self._ring)

    @property
    def steps(self) -> int:
        """Transitions that are live."""
        return self._ring.live_transitions

    def _episodes(self) -> Iterator[Episode]:
        return episodes_in(self._ring)

    @cached_property
    def _ring(self) -> Ring:
        ring, _ = read_ring(self.path)
        return ring
