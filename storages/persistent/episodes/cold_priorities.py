"""Cold priorities: the errors of transitions that are not in memory, from which priorities are restored on loading."""

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.snapshot import ERRORS, ArrayKey
from storages.errors import DamageError
from storages.files import replacing
from storages.persistent.log import records as blocks
from storages.persistent.log.commit_log import LARGEST_NUMBER
from storages.persistent.log.json_file import name_repair
from storages.persistent.log.records import CorruptRange, Record, StoredRecord

NAME = "errors"
_REPAIR = "drops it and keeps all episodes"


class ColdPriorities:
    """The priority errors (float32) of all transitions in segments; NaN where none is known.

    Args:
        first: number of the first transition.
    """

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self._errors: NDArray[np.float32] = np.zeros(0, np.float32)
        self.checksum = 0
        """Checksum of the file that was last written or read."""

    def put(self, first: int, errors: NDArray[np.float32]) -> None:
        """Store the errors of consecutive transitions, from the number ``first`` on."""
        begin = max(first, self._first)
        end = first + len(errors)
        if end > begin:
            self._reach(end)
            self._errors[begin - self._first : end - self._first] = errors[begin - first :]

    def get(self, first: int, count: int) -> NDArray[np.float32]:
        """Return the errors (count,) of consecutive transitions, from the number ``first`` on."""
        errors = np.full(count, np.nan, np.float32)
        begin, end = max(first, self._first), min(first + count, self._first + len(self._errors))
        if end > begin:
            errors[begin - first : end - first] = self._errors[begin - self._first : end - self._first]
        return errors

    def drop_before(self, first: int) -> None:
        """Drop the errors of older transitions, once these are more than half of all."""
        gone = first - self._first
        if gone > len(self._errors) // 2:
            self._errors, self._first = self._errors[gone:].copy(), first

    def since(self, first: int) -> "ColdPriorities":
        """Return a copy with the errors from a transition on; NaN for those that were dropped."""
        known, count = ColdPriorities(first), self._first + len(self._errors) - first
        if count > 0:
            known.put(first, self.get(first, count))
        return known

    def drop_from(self, number: int) -> None:
        """Drop the errors of a transition and later ones."""
        self._errors = self._errors[: max(0, number - self._first)]

    def keep(self, first: int, end: int) -> None:
        """Drop the errors of all but the transitions [first, end), of which any may get another one then.

        Errors that begin later were left by a crash after a rollback, and are of later updates: none is kept.
        """
        self.drop_from(end)
        if self._first > first:
            self._errors, self._first = np.zeros(0, np.float32), first
        self.drop_before(first)

    def _reach(self, end: int) -> None:
        missing = end - self._first - len(self._errors)
        if missing > 0:
            more = max(missing, len(self._errors) // 2)
            self._errors = np.concatenate([self._errors, np.full(more, np.nan, np.float32)])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._errors.nbytes

    # To and from disk

    def write(self, directory: Path, end: int, durable: bool) -> None:
        """Write the errors of the transitions before ``end`` to the file, atomically.

        Raises:
            OSError: the write failed; the file is unchanged.
        """
        with replacing(directory / NAME, durable=durable) as file:
            errors = self.get(self._first, end - self._first)
            _, checksum = blocks.write(file.fileno(), Record(0, self._first, end, {}, {ArrayKey(ERRORS): (errors,)}))
        self.checksum = checksum

    @classmethod
    def read(cls, directory: Path, checksum: int | None = None) -> "ColdPriorities":
        """Read the errors of a directory; none if the file is missing, or was torn by a power cut.

        Args:
            directory: the directory.
            checksum: checksum of the file in the closing note; None if there is no such note, or no such file.

        Raises:
            DamageError: the file is damaged, or is missing although the note has its checksum.
        """
        path = directory / NAME
        try:
            found = list(blocks.read(path))
        except FileNotFoundError:
            found = []
        if not found and checksum is None:
            return cls()
        match found:
            case [StoredRecord(block, written)] if checksum in (None, written):
                if flaw := _flaw_of(block):
                    with name_repair(directory, _REPAIR):
                        raise DamageError(
                            f"{path} is damaged, or was not written by this package: it has {flaw}, from which "
                            f"priorities follow"
                        )
                known = cls(block.first)
                known.put(block.first, block.arrays[ArrayKey(ERRORS)][0])
                known.checksum = written
                return known
        # A torn write: a part is missing at the end, or all bytes are zero.
        is_torn = any(isinstance(one, CorruptRange) and (one.cut or not any(path.read_bytes())) for one in found[:1])
        if checksum is None and is_torn:
            warnings.warn(
                f"{path} is truncated, as after a power cut; its transitions get the error of those that were never "
                f"updated",
                stacklevel=2,
            )
            return cls()
        how = "damaged" if found else "missing" if not path.exists() else "empty"
        if all(isinstance(one, StoredRecord) for one in found) and found:
            how = "not the one that was written last"
        with name_repair(directory, _REPAIR):
            raise DamageError(f"{path} is {how}, from which priorities follow")


def _flaw_of(record: Record) -> str | None:
    """Describe why the errors of a record cannot be used; return None if they can.

    Errors of later transitions than the directory holds are valid: a rollback that is followed by a crash leaves them.
    """
    if record.arrays.keys() != {ArrayKey(ERRORS)}:
        return "other arrays than errors"
    errors = record.arrays[ArrayKey(ERRORS)][0]
    if errors.dtype != np.float32 or errors.ndim != 1:
        return f"errors {errors.dtype}{errors.shape}"
    if record.first + len(errors) != record.steps or record.steps >= LARGEST_NUMBER:
        return f"{len(errors)} errors of the transitions {record.first} to {record.steps}"
    # As in a commit of steps; negative ones are harmless, because priorities follow from magnitudes.
    wrong = np.isinf(errors)
    return f"the error {errors[wrong][0]}" if wrong.any() else None
