"""A directory of whole episodes: those that run in a journal, those that ended in an archive, and who writes to it."""

import bisect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from storages.core.ring.layout import Layout
from storages.episode import Episode
from storages.errors import DamageError, DroppedError, PersistenceError
from storages.persistent.episodes.archive import Archive
from storages.persistent.episodes.archive_manifest import ArchiveManifest
from storages.persistent.episodes.closed_directory import Closed, closed_of
from storages.persistent.episodes.cold_priorities import KnownErrors
from storages.persistent.episodes.episode_batch import Recording, episodes_since
from storages.persistent.episodes.flush_queue import Shelving
from storages.persistent.episodes.live_range import Ledger
from storages.persistent.episodes.memory_plan import MemoryPlan
from storages.persistent.episodes.memtable import Finished, Running, marks_of
from storages.persistent.episodes.opening import manifest_to_read, manifest_to_write
from storages.persistent.episodes.rollback_marker import read_note, remove_note, write_note
from storages.persistent.episodes.volume import Volume
from storages.persistent.log.files import make_directory, refuse_links_in
from storages.persistent.log.lock import Lock
from storages.persistent.replay.manifest import Manifest

RUNNING = "running"
"""The folder of the journal."""
State = Callable[[], dict[str, Any]]
"""Asked for what is to be committed beside the episodes, when that is the case."""


class EpisodeDirectory:
    """Takes episodes as they end, and has them on disk as :mod:`storages.persistent` promises.

    Args:
        folder: where.
        owner: the storage's name, for errors.
        size: transitions that stay; None for no bound.
        size_bytes: bytes on disk, beyond which the oldest volumes go; None for no bound.
        durable: whether what is there survives a power cut.
        read_only: whether somebody else writes.
        ancestor: the directory that this one goes on from, if any.
    """

    def __init__(
        self,
        folder: Path,
        owner: str,
        *,
        size: int | None,
        size_bytes: int | None,
        durable: bool,
        read_only: bool,
        ancestor: Path | None,
    ) -> None:
        self.folder = folder
        self.ledger = Ledger()
        """Which episodes are live."""
        self.running: Running | None = None
        """Steps of episodes that have not ended, or are in no volume yet; None where somebody else writes."""
        self.shelving: Shelving | None = None
        """The archive, and what is on its way there; None before it is known what a transition looks like."""
        self._owner, self._size, self._size_bytes = owner, size, size_bytes
        self._durable, self._read_only, self._ancestor = durable, read_only, ancestor
        self._lock: Lock | None = None
        self._closed = False

    # Opening

    def claim(self) -> ArchiveManifest | None:
        """Have the directory for oneself, where it is not only read; returns what its archive holds, if there is one.

        Raises:
            PersistenceError: somebody else writes there, or something else lies there.
            OSError: it cannot be written.
        """
        if self._read_only:
            return manifest_to_read(self.folder)
        ArchiveManifest.read(self.folder)
        if self.folder.exists():
            refuse_links_in(self.folder)
        else:
            make_directory(self.folder, self._durable)
        self._lock = Lock(self.folder)
        return manifest_to_write(self.folder, self._ancestor, self._durable)

    @property
    def kept_environments(self) -> int | None:
        """Environments of the steps in the journal; None where there are none."""
        kept = Manifest.read(self.folder / RUNNING)
        return None if kept is None else kept.num_envs

    def begin_journal(
        self,
        num_envs: int | None,
        stacked_frames: int | Mapping[str, int],
        allow_nonfinite: bool,
        commit_every: int,
        steps: int,
    ) -> None:
        """Take up the journal, or begin one; ``steps`` are those that there is room for at first."""
        self.running = Running(
            self.folder / RUNNING,
            self._owner,
            num_envs,
            stacked_frames,
            allow_nonfinite,
            commit_every,
            self._durable,
            steps,
        )

    def write_manifest(self, manifest: ArchiveManifest) -> None:
        """Say what the archive is going to hold."""
        self._written(lambda: manifest.write(self.folder, self._durable))

    def begin_archive(self, manifest: ArchiveManifest, plan: MemoryPlan) -> Shelving:
        """Take up the archive that a manifest tells of.

        Raises:
            DamageError: it is not what was written.
        """
        archive = (
            Archive.beside_a_writer(self.folder, manifest)
            if self._read_only
            else Archive(self.folder, manifest, self._durable)
        )
        flaws = manifest.flaws_of_zarr(self.folder) if archive.next_row else []
        if flaws:
            raise DamageError(
                f"{self._owner}: {flaws[0]}. storages.persistent.repair({str(self.folder)!r}) makes it anew"
            )
        if not self._read_only:
            self._written(archive.tidy)
        self.shelving = Shelving(archive, self._owner, plan.waiting_bytes)
        if self.running is not None:
            self.running.longest = plan.longest
        return self.shelving

    def recover(self) -> dict[str, Any] | None:
        """Take up the journal; returns what was committed beside the steps, None where there is nothing.

        Raises:
            PersistenceError: it was going back to what is not there any more.
            DamageError: something is not what was written.
        """
        if self.running is None:
            return None
        state = self.running.recover()
        # Who wrote here last was killed while it went back.
        gone_back_to = read_note(self.folder)
        if gone_back_to is not None:
            self._refuse_unless_there(gone_back_to)
            return self._go_back(gone_back_to)
        closed = closed_of(state)
        if closed is not None:
            self._refuse_what_was_not_closed(closed)
        return state

    def _refuse_unless_there(self, state: Mapping[str, Any]) -> None:
        try:
            self._shelves.archive.refuse_unless_there(state["archive"])
            self.writable().journal.refuse_unless_there(state["position"])
        except DamageError:
            raise
        except PersistenceError:
            remove_note(self.folder, self._durable)
            raise

    def _refuse_what_was_not_closed(self, closed: Closed) -> None:
        there = self._shelves.archive.record
        if there["record"] <= closed["archive"]["record"] and there != closed["archive"]:
            raise DamageError(
                f"{self._owner}: {self.folder / closed['file']} ends with record {there['record']}, and had record "
                f"{closed['archive']['record']} when the directory was closed: what followed is gone. "
                f"storages.persistent.repair({str(self.folder)!r}) keeps what is there"
            )

    def known_errors(self, state: Mapping[str, Any] | None) -> KnownErrors:
        """The errors that were kept; ``state`` is what was committed beside the steps.

        Raises:
            DamageError: they are not what was written.
        """
        closed = closed_of(state)
        as_closed = closed is not None and closed["archive"] == self._shelves.archive.record
        return KnownErrors.read(self.folder, closed["errors"] if closed is not None and as_closed else None)

    def hold(self, state: Mapping[str, Any] | None) -> None:
        """Count what the archive holds, and the journal, of which ``state`` is what was committed beside the steps."""
        shelving, ledger = self._shelves, self.ledger
        archive = shelving.archive
        # What the journal says of it may already leave out what episodes have replaced that no process lived to write.
        live = archive.live
        ledger.begin(live, archive.end if state is None else max(archive.end, state["unwritten"], live))
        for volume in archive.volumes:
            ledger.count(volume.first, volume.lengths.tolist())
        if state is not None and self.running is not None:
            marks = marks_of(state, archive, self.running.ring)
            shelving.go_on_from(marks)
            for one in self.running.go_on_from(marks):
                recording, first = self.running.recording(one), ledger.next
                ledger.count(first, recording.lengths.tolist())
                shelving.add(first, recording, one, ledger.live)
        if self._size is not None:
            ledger.keep(self._size)
        shelving.forget(ledger.live)

    # In

    def writable(self) -> Running:
        """Where steps go.

        Raises:
            PersistenceError: nothing can be written.
        """
        if self.running is None or self.running.journal.closed:
            why, way_out = (
                ("it is read only", "make it with read_only=False where nobody else writes")
                if self._read_only
                else ("it was closed, or this process was forked", "make it again where it was closed")
            )
            raise PersistenceError(
                f"{self._owner}: nothing can be written to {self.folder}: {why}; {way_out}, or name another directory"
            )
        return self.running

    def add(self, recording: Recording, journalled: Finished | None) -> tuple[int, int]:
        """Take up an episode; ``journalled`` says where the journal has it.

        Returns:
            The number of its first transition, and how many of the oldest episodes are not live any more.
        """
        ledger, shelving = self.ledger, self._shelves
        first = ledger.next
        ledger.count(first, recording.lengths.tolist())
        gone = 0 if self._size is None else ledger.keep(self._size)
        if gone:
            shelving.forget(ledger.live)
        shelving.add(first, recording, journalled, ledger.live)
        return first, gone

    def advance(self, state: State) -> int:
        """Have what can be written, before more comes; returns how many of the oldest episodes are not live any more.

        To be called where :meth:`writable` has just been.

        Raises:
            PersistenceError: something could not be written; it will be tried again.
        """
        running, shelving = self.running, self._shelves
        assert running is not None
        written = shelving.advance(running.journal.written)
        while shelving.is_full:
            running.journal.flush(running.ring, state(), None)
            shelving.settle(running.journal.written, only_the_first=True)
            written = True
        if not written:
            return 0
        running.release(shelving.unwritten())
        return 0 if self._size_bytes is None else self._let_go_of_bytes(self._size_bytes)

    def _let_go_of_bytes(self, most: int) -> int:
        volumes = sorted(self._shelves.volumes.items())
        total, place = sum(volume.nbytes for _, volume in volumes), 0
        while total > most and place < len(volumes) - 1:
            total -= volumes[place][1].nbytes
            place += 1
        return self.let_go(volumes[place][0]) if place else 0

    def let_go(self, live: int) -> int:
        """Hold nothing before a transition; returns how many episodes are not live any more."""
        gone = self.ledger.let_go(live)
        self._shelves.forget(self.ledger.live)
        return gone

    def settle(self, state: State) -> None:
        """Write all episodes that have ended, and wait for it."""
        running, shelving = self.writable(), self._shelves
        shelving.close_volume(self.ledger.live)
        running.journal.flush(running.ring, state(), None)
        shelving.settle(running.journal.written)
        running.release(shelving.unwritten())

    def flush(self, state: State, known: KnownErrors | None, *, pin: int, last: bool) -> dict[str, Any]:
        """Commit what there is, and wait until it is on disk.

        Args:
            state: what is to be committed beside it.
            known: errors to be kept; None for none.
            pin: 0, or how many states one can come back to, from now on this one among them.
            last: write what has ended to the archive, and make the journal small.

        Returns:
            What was committed beside it and, where it is pinned, where in the directory it is.

        Raises:
            PersistenceError: it could not be written.
        """
        running, shelving = self.writable(), self._shelves
        if last or shelving.has_what_no_journal_has:
            shelving.close_volume(self.ledger.live)
        beside = state()
        running.journal.flush(running.ring, beside, None)
        shelving.settle(running.journal.written)
        running.release(shelving.unwritten())
        archive = shelving.archive

        def write() -> None:
            if pin or self.ledger.live > archive.live:
                archive.note(self.ledger.live, shelving.marks_on_disk(), pin=pin)
            archive.manifest.tell_zarr(self.folder, archive.next_row, self._durable)
            if known is not None:
                known.write(self.folder, self.ledger.next, self._durable)

        self._written(write)
        if last:
            closed: Closed = {
                "archive": archive.record,
                "file": archive.newest_file.name,
                "errors": None if known is None else known.checksum,
            }
            beside = beside | {"marks": shelving.marks_on_disk(), "closed": closed}
            running.journal.flush(running.ring, beside, None, anew=True)
        if not pin:
            return beside
        running.journal.flush(running.ring, beside, None, pin=pin)
        return beside | {"position": dict(running.journal.position), "archive": dict(archive.record)}

    def reset(self, state: State) -> None:
        """Delete all episodes, and those that run."""
        self.settle(state)
        running, shelving, following = self.writable(), self._shelves, self.ledger.next
        running.reset()
        marks = running.begun.tolist()
        self._written(lambda: shelving.archive.begin_anew(marks, following))
        shelving.begin_anew()
        self.ledger.begin(following, following)

    def roll_back(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Be as of a pinned state; everything must be settled. Returns what was committed beside it.

        Raises:
            PersistenceError: the directory does not have it, and nothing was changed; or it cannot be written, and goes
                back when it is opened again.
        """
        running = self.writable()
        self._shelves.archive.refuse_unless_there(state["archive"])
        running.journal.refuse_unless_there(state["position"])
        try:
            write_note(self.folder, state, self._durable)
        except OSError as error:
            with self._or_let_go():
                remove_note(self.folder, self._durable)
            raise PersistenceError(
                f"{self._owner}: {self.folder} cannot be written: {error}; it is as it was"
            ) from error
        return self._go_back(state)

    def _go_back(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        with self._or_let_go():
            said = self.writable().roll_back(state["position"])
            self._shelves.archive.roll_back(state["archive"])
            self._shelves.begin_anew()
            remove_note(self.folder, self._durable)
        return said

    @contextmanager
    def _or_let_go(self) -> Iterator[None]:
        """Write no more after an error: what is written then is dropped when the directory goes back."""
        try:
            yield
        except BaseException as error:
            self.close()
            if not isinstance(error, OSError):
                raise
            raise PersistenceError(
                f"{self._owner}: {self.folder} was going back to a checkpoint and cannot go on: {error}. Nothing more "
                f"is written there until the buffer is made again, which does the rest"
            ) from error

    def refresh(self) -> tuple[list[Volume], int] | None:
        """Read what another process has written since the last call.

        Returns:
            New volumes, and how many episodes are not live any more; None where what was there is something else now,
            because the other has rolled back.

        Raises:
            PersistenceError: the directory was closed.
            DamageError: something that was written is not what is read.
        """
        shelving = self._shelves
        if self._closed:
            raise PersistenceError(f"{self._owner}: {self.folder} was closed, and is not read any more; make it again")
        known, archive = dict(shelving.volumes), Archive.beside_a_writer(self.folder, shelving.archive.manifest)
        shelving.begin_anew(archive)
        now = shelving.volumes
        same = {first for first, volume in known.items() if first in now and now[first].is_same_as(volume)}
        if any(volume.end > archive.live and first not in same for first, volume in known.items()):
            return None
        new = [volume for first, volume in sorted(now.items()) if first not in known]
        for volume in new:
            self.ledger.count(volume.first, volume.lengths.tolist())
        return new, self.let_go(archive.live)

    def look_back(self, state: Mapping[str, Any]) -> None:
        """Read as of a state, of a directory that somebody else writes.

        Raises:
            PersistenceError: it does not have it any more.
        """
        archive = Archive.beside_a_writer(self.folder, self._shelves.archive.manifest)
        archive.look_back(state["archive"])
        self._shelves.begin_anew(archive)

    def state_read(self) -> dict[str, Any]:
        """Where in a directory that somebody else writes, as plain data."""
        return {"archive": dict(self._shelves.archive.record)}

    def _written(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            raise PersistenceError(
                f"{self._owner}: {self.folder} cannot be written: {error}. What was committed there is safe; make "
                f"room, or give permission, and flush() again"
            ) from error

    # Out

    def episodes(self, layout: Layout, *, whole: bool) -> Iterator[Episode]:
        """All live episodes that have ended, or the whole ones of them, the oldest first, read volume by volume.

        Raises:
            DamageError: one cannot be read; the text names the file and the episodes.
        """
        if self.shelving is None:
            return
        live = self.ledger.live
        for first, volume in sorted(self.shelving.volumes.items()):
            if volume.end > live:
                # Of one that another process drops meanwhile, nothing is left.
                with suppress(DroppedError):
                    recording = self.shelving.read(volume)
                    yield from episodes_since(live, first, recording, layout, whole=whole)
        for first, recording in list(self.shelving.loose()):
            yield from episodes_since(live, first, recording, layout, whole=whole)

    def recording_of(self, first: int, count: int) -> Recording:
        """Whole episodes by the numbers of their transitions, all of one volume."""
        shelving = self._shelves
        firsts = shelving.firsts()
        found = shelving.volume(firsts[bisect.bisect_right(firsts, first) - 1])
        assert found is not None
        volume, recording = found
        ends = volume.first + np.cumsum(volume.lengths)
        begin, end = np.searchsorted(ends, first, side="right"), np.searchsorted(ends, first + count, side="left") + 1
        return (shelving.read(volume) if recording is None else recording).select(int(begin), int(end))

    def state(self) -> dict[str, Any]:
        """What is to be committed beside steps, so that :meth:`hold` knows what is where."""
        shelving, following = self.shelving, self.ledger.next
        return {
            "live": self.ledger.live,
            "unwritten": following if shelving is None else shelving.first_unwritten(following),
            "marks": [] if shelving is None else shelving.marks_on_disk(),
        }

    @property
    def held(self) -> bool:
        """Whether it is this one that writes to the directory."""
        return self._lock is not None and self._lock.held

    @property
    def nbytes(self) -> int:
        """Bytes of memory of what runs, and of what is not written yet."""
        running = 0 if self.running is None else self.running.ring.columns.nbytes
        return running + (0 if self.shelving is None else self.shelving.nbytes)

    def close(self) -> None:
        """Let others have the directory; what was not written stays unwritten."""
        self._closed = True
        try:
            if self.shelving is not None:
                self.shelving.close()
            if self.running is not None:
                self.running.journal.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    @property
    def _shelves(self) -> Shelving:
        assert self.shelving is not None
        return self.shelving
