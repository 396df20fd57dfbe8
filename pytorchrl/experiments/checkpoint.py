"""Checkpoints: one file, whole or not there at all, and nothing in it that could run."""

import os
import pickle
from pathlib import Path
from typing import Any

import torch

FORMAT = 1


class CheckpointError(RuntimeError):
    """A checkpoint that is missing, damaged, or not of this run."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain data to ``path``; what was there stays until the new file is whole and on the disk."""
    partial = path.with_suffix(f".partial-{os.getpid()}")
    try:
        with partial.open("wb") as file:
            torch.save({"format": FORMAT} | state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def load(path: Path) -> dict[str, Any]:
    """Read what :func:`save` wrote, into the CPU's memory.

    Raises:
        CheckpointError: there is no such file, it is damaged, or a newer version wrote it.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; a run saves it when it ends, is interrupted, or is told to")
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(
            f"{path} is damaged and cannot be resumed from ({reason}); restore it from a copy, or "
            f"start a new run in another folder"
        ) from error
    if not isinstance(state, dict) or not isinstance(state.get("format"), int):
        raise CheckpointError(f"{path} is not a checkpoint of this toolkit")
    if state["format"] > FORMAT:
        raise CheckpointError(
            f"{path} has format {state['format']}, this version reads up to {FORMAT}; upgrade pytorchrl to resume it"
        )
    return state
