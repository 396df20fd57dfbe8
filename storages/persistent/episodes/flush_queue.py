"""On the way into the archive: finished episodes are put together to volumes, which a thread of its own writes."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from storages.errors import PersistenceError
from storages.persistent.episodes.archive import Archive
from storages.persistent.episodes.episode_batch import Recording, joined
from storages.persistent.episodes.memtable import Finished
from storages.persistent.episodes.volume import Volume


@dataclass
class _Waiting:
    """A volume that is not written yet."""

    volume: Volume
    recording: Recording
    journalled: list[Finished]
    """Where its episodes are in the journal, of those that are there."""
    marks: list[int]
    live: int
    writing: "Future[Volume] | None" = field(default=None)


class Shelving:
    """Takes episodes, and says which are on disk.

    A volume is made of episodes that came one after the other, as many as fit its rows, or of one that is longer. It
    is written once the journal holds all of it, so that the archive never holds what a killed process had not
    committed.

    Args:
        archive: where volumes go.
        owner: the storage's name, for errors.
        most_bytes: of volumes that wait; an insertion waits rather than let them be more.
    """

    def __init__(self, archive: Archive, owner: str, most_bytes: int | None) -> None:
        self.archive, self._owner = archive, owner
        self._most_bytes = most_bytes
        self._loose: list[tuple[int, Recording, Finished | None]] = []
        """Number of the first transition, and the episode."""
        self._loose_rows = 0
        self._live_before = archive.live
        """Number of the oldest transition that was live when the newest loose episode had come."""
        self._waiting: deque[_Waiting] = deque()
        self._by_first: dict[int, Recording] = {}
        self._next_row = archive.next_row
        self._writer = ThreadPoolExecutor(1, "archive")
        self._failed = False
        self.volumes: dict[int, Volume] = {volume.first: volume for volume in archive.volumes}
        """All, by their first transitions; those too that are not written yet."""
        self.marks: list[int] = list(archive.marks)
        """Of each environment, how many of its steps have gone into volumes."""
        self._marks_on_disk = list(archive.marks)

    # In

    def add(self, first: int, recording: Recording, journalled: Finished | None, live: int) -> None:
        """Take up an episode; ``live`` is the number of the oldest live transition."""
        rows = self.archive.manifest.volume_rows
        if self._loose_rows + recording.rows > rows:
            # What this episode lets go of is still held as long as the journal does not have this episode.
            self.close_volume(self._live_before)
        self._loose.append((first, recording, journalled))
        self._loose_rows += recording.rows
        self._live_before = live
        if self._loose_rows >= rows:
            self.close_volume(live)

    def close_volume(self, live: int) -> None:
        """Let the next episode begin another volume."""
        loose, self._loose, self._loose_rows = self._loose, [], 0
        for *_, finished in loose:
            if finished is not None:
                self._mark(finished)
        kept = [one for one in loose if one[0] >= live]
        if not kept:
            if not self._waiting:
                self._marks_on_disk = list(self.marks)
            return
        recording = joined([one for _, one, _ in kept])
        volume = self.archive.planned(recording, kept[0][0], self._next_row)
        self._next_row = self.archive.row_after(volume)
        self.volumes[volume.first] = volume
        self._by_first[volume.first] = recording
        journalled = [finished for *_, finished in loose if finished is not None]
        self._waiting.append(_Waiting(volume, recording, journalled, list(self.marks), live))

    def _mark(self, finished: Finished) -> None:
        self.marks += [0] * (finished.env + 1 - len(self.marks))
        self.marks[finished.env] = max(self.marks[finished.env], finished.end)

    # To disk

    def advance(self, journalled: int) -> bool:
        """Have what is in the journal up to a step written; returns whether something has been since the last call.

        Raises:
            PersistenceError: something could not be written; it will be tried again.
        """
        for waiting in self._waiting:
            if waiting.writing is None:
                if any(finished.shown > journalled for finished in waiting.journalled):
                    break
                waiting.writing = self._writer.submit(self._write, waiting)
        written = False
        while self._waiting and (writing := self._waiting[0].writing) is not None and writing.done():
            self._note_written()
            written = True
        return written

    @property
    def is_full(self) -> bool:
        """Whether the disk has fallen too far behind."""
        most = self._most_bytes
        return most is not None and sum(waiting.recording.nbytes for waiting in self._waiting) > most

    def settle(self, journalled: int, *, only_the_first: bool = False) -> None:
        """Write all that is in the journal up to a step, and wait for it.

        Raises:
            PersistenceError: something could not be written; it will be tried again.
        """
        while self._waiting:
            first = self._waiting[0]
            if first.writing is None:
                if any(finished.shown > journalled for finished in first.journalled):
                    return
                # Not by the thread, which cannot always be asked: not when the interpreter is about to end, nor where
                # a buffer is closed because it is found to be garbage while another thread is being asked.
                first.writing = self._written_now(first)
            self._note_written()
            if only_the_first:
                return

    def _written_now(self, waiting: _Waiting) -> "Future[Volume]":
        done: Future[Volume] = Future()
        try:
            done.set_result(self._write(waiting))
        except OSError as error:
            done.set_exception(error)
        return done

    def _write(self, waiting: _Waiting) -> Volume:
        if self._failed:
            raise OSError("what comes before it could not be written")
        try:
            return self.archive.append(waiting.recording, waiting.volume, waiting.live, waiting.marks)
        except BaseException:
            self._failed = True
            raise

    def _note_written(self) -> None:
        waiting = self._waiting[0]
        assert waiting.writing is not None
        try:
            volume = waiting.writing.result()
        except OSError as error:
            for other in self._waiting:
                if other.writing is not None:
                    other.writing.exception()
                    other.writing = None
            self._failed = False
            raise PersistenceError(
                f"{self._owner}: {self.archive.directory} cannot be written: {error}. Nothing is lost: transitions "
                f"from {waiting.volume.first} on are in memory, and in the journal; make room, or give permission, and "
                f"insert or flush() again"
            ) from error
        self.volumes[volume.first] = volume
        self._marks_on_disk = waiting.marks
        del self._by_first[volume.first]
        self._waiting.popleft()

    # What there is

    def read(self, volume: Volume) -> Recording:
        """The episodes of a volume; for any thread.

        Raises:
            DamageError: not all of it is what was written.
        """
        waiting = self._by_first.get(volume.first)
        return self.archive.read(self.volumes.get(volume.first, volume)) if waiting is None else waiting

    def firsts(self) -> list[int]:
        """The first transitions of all volumes, oldest first; episodes that are in none yet count as one."""
        return [*self.volumes, *([self._loose[0][0]] if self._loose else [])]

    def volume(self, first: int) -> tuple[Volume, Recording | None] | None:
        """The one that begins with a transition, and its episodes if they are in memory; None where there is none."""
        if first in self.volumes:
            return self.volumes[first], self._by_first.get(first)
        if self._loose and self._loose[0][0] == first:
            recording = joined([recording for _, recording, _ in self._loose])
            return self.archive.planned(recording, first, self._next_row), recording
        return None

    def loose(self) -> Iterator[tuple[int, Recording]]:
        """Episodes that are in no volume yet, and the numbers of their first transitions."""
        return ((first, recording) for first, recording, _ in self._loose)

    def unwritten(self) -> list[Finished]:
        """Where episodes that are not on disk are in the journal."""
        finished = [one for waiting in self._waiting for one in waiting.journalled]
        return finished + [one for *_, one in self._loose if one is not None]

    @property
    def has_what_no_journal_has(self) -> bool:
        """Whether an episode would be lost with the process."""
        return any(finished is None for *_, finished in self._loose)

    def first_unwritten(self, otherwise: int) -> int:
        """Number of the oldest transition that is not on disk."""
        if self._waiting:
            return self._waiting[0].volume.first
        return self._loose[0][0] if self._loose else otherwise

    def marks_on_disk(self) -> list[int]:
        """Of each environment, how many of its steps are in volumes that are on disk, or in no volume any more."""
        return list(self._marks_on_disk)

    def forget(self, live: int) -> None:
        """Volumes without live transitions do not count any more."""
        for first in [first for first, volume in self.volumes.items() if volume.end <= live]:
            if first not in self._by_first:
                del self.volumes[first]

    def begin_anew(self, archive: Archive | None = None) -> None:
        """Hold what the archive holds, or another, and nothing else; nothing may be on its way."""
        assert not self._waiting
        self.archive = archive or self.archive
        self._loose, self._loose_rows, self._live_before = [], 0, self.archive.live
        self._next_row, self.marks = self.archive.next_row, list(self.archive.marks)
        self._marks_on_disk = list(self.marks)
        self.volumes = {volume.first: volume for volume in self.archive.volumes}

    def go_on_from(self, marks: list[int]) -> None:
        """Say how many steps of each environment are on disk, or gone."""
        self.marks, self._marks_on_disk = list(marks), list(marks)

    @property
    def nbytes(self) -> int:
        """Bytes of memory of what is not on disk."""
        loose = sum(recording.nbytes for _, recording, _ in self._loose)
        return loose + sum(waiting.recording.nbytes for waiting in self._waiting)

    def close(self) -> None:
        """Let go of the thread; what was not written stays unwritten."""
        self._writer.shutdown()
        self.archive.close()
