"""JSON files with a checksum, written atomically."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from storages.errors import DamageError, PersistenceError
from storages.files import read_text, write_atomically
from storages.open_files import is_of_open_files, remedy_of
from storages.persistent.log.records import FORMAT, checksum_of

_WRONG = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


@contextmanager
def name_damage(place: Path) -> Iterator[None]:
    """Convert errors from malformed content, whose checksum is valid, to an error that names the file.

    Raises:
        DamageError: in place of the error that the content caused.
        PersistenceError: in place of a MemoryError.
    """
    try:
        yield
    except PersistenceError:
        raise
    except MemoryError as error:
        raise PersistenceError(f"{place} needs more memory than is available: {error}") from error
    except _WRONG as error:
        raise DamageError(f"{place} is damaged, or was not written by this package: {error!r}") from error


@contextmanager
def name_owner(owner: str, folder: Path, way_out: str = "", does: str = "written") -> Iterator[None]:
    """Add to errors the storage's name, the folder that cannot be written or read, and a way out.

    Args:
        owner: name of the storage.
        folder: that cannot be written or read.
        way_out: in which "{remedy}" stands for what to do about the error.
        does: what cannot be done with the folder.

    Raises:
        PersistenceError: in place of an OSError.
    """
    try:
        yield
    except PersistenceError as error:
        error.args = (f"{owner}: {str(error).removeprefix(f'{owner}: ')}",)
        raise
    except OSError as error:
        if is_of_open_files(error) and "{remedy}" not in way_out:
            way_out = "; {remedy}"
        way_out = way_out.replace("{remedy}", remedy_of(error))
        raise PersistenceError(f"{owner}: {folder} cannot be {does}: {error}{way_out}") from error


@contextmanager
def name_repair(folder: Path, does: str = "drops what is damaged and keeps the rest") -> Iterator[None]:
    """Add to a DamageError how to repair the folder."""
    try:
        yield
    except DamageError as damage:
        raise DamageError(f"{damage}. storages.persistent.repair({str(folder)!r}) {does}") from None


def write_verified(path: Path, facts: Mapping[str, Any], durable: bool) -> None:
    """Write facts, one of which must be ``format``, and their checksum to a file atomically.

    Raises:
        OSError: the write failed; the file is unchanged.
    """
    write_json(path, {**facts, "checksum": checksum_of(facts)}, durable)


def write_json(path: Path, content: Mapping[str, Any], durable: bool) -> None:
    """Write JSON to a file atomically, without a checksum."""
    write_atomically(path, json.dumps(content, indent=1).encode(), durable=durable)


def read_verified(path: Path) -> dict[str, Any]:
    """Read a file that :func:`write_verified` wrote.

    Raises:
        PersistenceError: the file has another format version.
        DamageError: the file is damaged.
    """
    try:
        facts: dict[str, Any] = json.loads(read_text(path))
        checksum = facts.pop("checksum")
        said = facts["format"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DamageError(f"{path} is damaged; storages.persistent.repair rebuilds it") from None
    if said != FORMAT:
        raise PersistenceError(
            f"{path} has format {said}, and this version of pytorchrl reads {FORMAT}; open it with the version "
            f"that wrote it, or name another directory"
        )
    if checksum != checksum_of(facts):
        raise DamageError(f"{path} is damaged; storages.persistent.repair rebuilds it")
    return facts
