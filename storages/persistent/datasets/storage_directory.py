"""The directory of a storage that is kept on disk, as a data set: what it holds, without making the storage."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from storages.core.ring import Ring
from storages.persistent.datasets.dataset import About, Dataset
from storages.persistent.episode import Episode
from storages.persistent.errors import DatasetError
from storages.persistent.exchange import count_episodes_in, episodes_in
from storages.persistent.journal import ERRORS_SUFFIX, STEPS_SUFFIX
from storages.persistent.lock import Lock
from storages.persistent.manifest import NAME, Manifest
from storages.persistent.recovery import recover
from storages.persistent.segments import Segments


class StorageDirectory(Dataset):
    """What a directory holds that a storage was made with; all of it is read when the episodes are asked for.

    Args:
        path: the directory.

    Raises:
        PersistenceError: it holds no storage, or one of another format, or is damaged; once its episodes are asked for,
            that a storage has it open.
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
        ring = self.manifest.ring(type(self).__name__)
        lock = Lock(self.path)
        try:
            steps, errors = (Segments(self.path, suffix, durable=False) for suffix in (STEPS_SUFFIX, ERRORS_SUFFIX))
            recover(ring, steps, errors)
        finally:
            lock.release()
        return ring
