"""Checkpoint files: written atomically, and loaded without executing code from them."""

import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pytorchrl.version import VERSION
from storages.files import replacing

FORMAT = 4
_VERSION = "pytorchrl_version"
"""Key of the version that wrote a file; earlier ones wrote none."""
_MOST_SHARED = 8
"""Largest ratio of the tensors' total size to the file's size; it exceeds 1 where tensors share memory."""
_MADE_OF_A_NUMBER = (b"builtin__\nbytearray\n", b"builtins\nbytearray\n", b"torch\nTensor\n")
"""Callables in a pickle that would allocate an amount of memory given by a number in it."""
_BROKEN = (
    *(ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError),
    *(TypeError, ValueError, struct.error, zipfile.BadZipFile),
)
"""Exceptions raised by reading a file that is not a checkpoint."""


class CheckpointError(RuntimeError):
    """Raised when a checkpoint is missing, damaged, or from another run."""


@dataclass(frozen=True)
class Purpose:
    """What a file is loaded for, which errors say.

    Args:
        verb: of what is done with it.
        failed: what cannot be done with a damaged one.
        way_out: what to do about a damaged one.
        missing: when it is made, and what to do without it.
    """

    verb: str
    failed: str
    way_out: str
    missing: str


_SAVED = (
    "a run saves it when it ends or is interrupted, and by checkpoint_every; an Agent when it is closed at its target, "
    "and by agent.save() and checkpoint_every"
)
RESUMING = Purpose(
    "resume",
    "resumed from",
    "restore it from a copy, or start a new run in another folder",
    f"{_SAVED}. A run without one cannot be resumed; start it again: Learner(scheme, target_steps, log_dir), or the "
    f"same train command",
)
READING = Purpose(
    "read",
    "read",
    "restore it from a copy, or name another checkpoint",
    f"{_SAVED}; name a run that has saved one",
)
BEST_WEIGHTS = Purpose(
    "load",
    "loaded",
    "restore it from a copy, or go on with the weights as they are",
    "a run saves it at its first evaluation; test_every of the algorithm sets when",
)


class DamagedCheckpointError(CheckpointError):
    """Raised when a checkpoint file is damaged.

    Args:
        path: the file.
        reason: what is wrong with it.
        purpose: what it was loaded for.
    """

    def __init__(self, path: Path, reason: str, purpose: Purpose = RESUMING) -> None:
        super().__init__(f"{path} is damaged and cannot be {purpose.failed}: {reason}; {purpose.way_out}")
        self.path = path
        self.reason = reason


def save(path: Path, state: dict[str, Any], before: Sequence[Path] = ()) -> None:
    """Write tensors and plain data to ``path`` atomically; a previous file stays until the new one is on disk.

    Args:
        path: the file.
        state: tensors and plain data.
        before: paths of earlier checkpoints, newest first; the previous file is moved to the first of them, and so on.

    Raises:
        OSError: it could not be written; the previous file is kept.
        TypeError: something in the state could not be loaded again; nothing was written.
    """
    state = as_plain_data(state)
    try:
        with replacing(path, durable=True) as file:
            torch.save({"format": FORMAT, _VERSION: VERSION} | state, file)
            file.flush()
            os.fsync(file.fileno())
            _move_back([path, *before])
    except (OSError, RuntimeError) as error:
        # torch may raise another error while it handles that of the file.
        if (cause := _os_error_of(error)) is None:
            raise
        kept = ", and an earlier one is kept" if any(one.exists() for one in (path, *before)) else ""
        reason = f"{cause.strerror or cause}; the checkpoint was not written{kept}"
        raise OSError(cause.errno, reason, str(path)) from error


def _os_error_of(error: BaseException | None) -> OSError | None:
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error


def load(path: Path, purpose: Purpose = RESUMING, *, is_mapped: bool = False) -> dict[str, Any]:
    """Load a file written by :func:`save`, with tensors on the CPU.

    Args:
        path: the file.
        purpose: what it is loaded for, which errors say.
        is_mapped: map tensors into memory instead of reading them: those that are not used, such as the transitions of
            a storage where weights are wanted, take none. Not for what is kept while a run may write the file.

    Raises:
        CheckpointError: the file does not exist, is damaged, has the format of another version, or is a model of
            stable-baselines3.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; {purpose.missing}")
    if _is_of_stable_baselines3(path):
        raise CheckpointError(
            f"{path} is a model of stable-baselines3, whose files are not read here; train the policy again, as "
            f"docs/coming-from-others.md says, or act with it by stable-baselines3"
        )
    reason = _what_is_wrong(path)
    if reason is None:
        try:
            with warnings.catch_warnings():
                # A sparse tensor, which no run saves, is refused below.
                warnings.filterwarnings("ignore", message="Validating sparse tensor")
                state: dict[str, Any] = torch.load(
                    os.fspath(path), map_location="cpu", weights_only=True, mmap=is_mapped
                )
            reason = _what_is_too_large(state, path.stat().st_size)
        except pickle.UnpicklingError:
            reason = "it contains objects other than tensors and plain data, which are not loaded"
        except _BROKEN:
            reason = "its contents are inconsistent"
    if reason is not None:
        raise DamagedCheckpointError(path, reason, purpose)
    if not isinstance(state, dict) or not isinstance(state.get("format"), int):
        raise CheckpointError(
            f"{path} is not a checkpoint of this toolkit; name a checkpoint.pt that a Learner has written"
        )
    if isinstance(state["format"], bool):
        raise DamagedCheckpointError(path, f"its format is {state['format']}, which is no number", purpose)
    written = " ".join(str(state.get(_VERSION, "")).split())
    if state["format"] > FORMAT:
        raise CheckpointError(
            f"{path} has format {state['format']}, this version reads up to {FORMAT}; upgrade pytorchrl to "
            f"{purpose.verb} it{f': {written} wrote it' if written else ''}"
        )
    if state["format"] < FORMAT:
        raise CheckpointError(
            f"{path} has format {state['format']}, this version, {VERSION}, reads {FORMAT}; {purpose.verb} it with the "
            f"version of pytorchrl that wrote it, {written or 'which versions.json in the folder of its run names'}"
        )
    return state


def load_newest(paths: Sequence[Path]) -> tuple[Path, dict[str, Any], list[DamagedCheckpointError]]:
    """Load the first undamaged one of several checkpoints.

    Args:
        paths: newest first; they need not exist.

    Returns:
        Its path, its contents, and the errors of the damaged ones before it.

    Raises:
        CheckpointError: none exists, or all are damaged; the error is about the newest.
    """
    damaged: list[DamagedCheckpointError] = []
    for path in [path for path in paths if path.is_file()] or paths[:1]:
        try:
            return path, load(path), damaged
        except DamagedCheckpointError as error:
            damaged.append(error)
    raise damaged[0]


def _is_of_stable_baselines3(path: Path) -> bool:
    """Whether a file is an archive that ``model.save`` of stable-baselines3 has written."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "_stable_baselines3_version" in archive.namelist()
    except _BROKEN:
        return False


def _what_is_wrong(path: Path) -> str | None:
    """Return what is wrong with a file, as far as it shows without unpickling it; None if nothing does."""
    if path.stat().st_size == 0:
        return "it is empty"
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
                return "it is compressed, which no checkpoint is"
            if sum(part.file_size for part in parts) > path.stat().st_size:
                return "its parts declare more bytes than the file has"
            changed = archive.testzip()
            if changed is not None:
                return f"its part {changed} does not match its checksum"
            pickles = [archive.read(part) for part in parts if part.filename.endswith("/data.pkl")]
    except _BROKEN:
        return "it is truncated, or another kind of file"
    if any(made in plain for plain in pickles for made in _MADE_OF_A_NUMBER):
        return "it would allocate memory of a declared size without contents"
    return None if pickles else "it is an archive, but not of tensors and plain data"


def _what_is_too_large(state: Any, file_bytes: int) -> str | None:
    """Return what is wrong with the kinds or total size of the tensors; None if nothing is."""
    values, met, total = [state], set(), 0
    while values:
        value = values.pop()
        if isinstance(value, torch.Tensor):
            if value.layout != torch.strided or value.device.type != "cpu":
                return f"it holds a tensor of the kind {value.layout} on {value.device}"
            total += value.numel() * value.element_size()
        elif isinstance(value, dict | list | tuple) and id(value) not in met:
            met.add(id(value))
            values += [*value, *value.values()] if isinstance(value, dict) else value
        elif isinstance(value, bytearray):
            total += len(value)
    return (
        f"its tensors declare {total:,} bytes, too many for a file of {file_bytes:,}"
        if total > _MOST_SHARED * file_bytes
        else None
    )


def _move_back(places: Sequence[Path]) -> None:
    """Move the existing file number i to ``places[i + 1]``; with all places taken, the last is overwritten."""
    taken = [place for place in places if place.is_file()]
    for file, place in reversed(list(zip(taken, places[1:], strict=False))):
        if file != place:
            file.replace(place)


_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    set,
    torch.Tensor,
    torch.Size,
    torch.dtype,
    torch.device,
)


def as_plain_data(value: Any, where: str = "state") -> Any:
    """Return a state with Python's numbers in place of numpy's.

    Args:
        value: tensors, numbers and texts, and dicts, lists and tuples of them; not changed.
        where: its place, for errors.

    Raises:
        TypeError: something else is in it, which could be saved but not loaded; the message names its place.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        keys = [as_plain_data(key, where) for key in value]
        items = [as_plain_data(item, f"{where}[{key!r}]") for key, item in value.items()]
        return (
            value
            if _are_same(keys, value) and _are_same(items, value.values())
            else dict(zip(keys, items, strict=True))
        )
    if isinstance(value, list | tuple):
        parts = [as_plain_data(part, f"{where}[{position}]") for position, part in enumerate(value)]
        if _are_same(parts, value):
            return value
        return parts if isinstance(value, list) else tuple(parts)
    raise TypeError(
        f"{where} is {type(value).__name__}, which a checkpoint cannot hold: it consists of tensors, numbers, texts, "
        f"and dicts and lists of these; convert it in state_dict() and back in load_state_dict()"
    )


def _are_same(parts: Iterable[Any], before: Iterable[Any]) -> bool:
    return all(part is one for part, one in zip(parts, before, strict=True))
