"""Files of plain data that people can read: written whole or not at all, with a checksum."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storages.persistent.blocks import FORMAT, checksum_of
from storages.persistent.errors import DamageError, PersistenceError
from storages.persistent.segments import sync_directory


def write_facts(path: Path, facts: Mapping[str, Any], durable: bool) -> None:
    """Put facts, one of which is their ``format``, into a file, instead of what it held.

    Raises:
        OSError: it cannot be written; the file is what it was.
    """
    write_json(path, {**facts, "checksum": checksum_of(facts)}, durable)


def write_json(path: Path, content: Mapping[str, Any], durable: bool) -> None:
    """As :func:`write_facts`, without a checksum."""
    with unfinished(path).open("w") as file:
        json.dump(content, file, indent=1)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    unfinished(path).replace(path)
    if durable:
        sync_directory(path.parent)


def unfinished(path: Path) -> Path:
    """Where a file lies until it is whole."""
    return path.with_name(f"{path.name}.new")


def checked_facts(path: Path) -> dict[str, Any]:
    """What :func:`write_facts` put into a file.

    Raises:
        PersistenceError: it is of another format.
        DamageError: it is not what was written.
    """
    try:
        facts: dict[str, Any] = json.loads(path.read_bytes())
        checksum = facts.pop("checksum")
        said = facts["format"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamageError(f"{path} is damaged; storages.persistent.repair makes it anew") from None
    if said != FORMAT:
        raise PersistenceError(
            f"{path} says format {said}, and this version of pytorchrl reads {FORMAT}; open it with the version "
            f"that wrote it, or name another directory"
        )
    if checksum != checksum_of(facts):
        raise DamageError(f"{path} is damaged; storages.persistent.repair makes it anew")
    return facts
