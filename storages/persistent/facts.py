"""Files of plain data that people can read: written whole or not at all, with a checksum."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storages.persistent.blocks import FORMAT, checksum_of
from storages.persistent.errors import DamageError, PersistenceError
from storages.persistent.files import write_atomically


def write_facts(path: Path, facts: Mapping[str, Any], durable: bool) -> None:
    """Put facts, one of which is their ``format``, into a file, instead of what it held.

    Raises:
        OSError: it cannot be written; the file is what it was.
    """
    write_json(path, {**facts, "checksum": checksum_of(facts)}, durable)


def write_json(path: Path, content: Mapping[str, Any], durable: bool) -> None:
    """As :func:`write_facts`, without a checksum."""
    write_atomically(path, json.dumps(content, indent=1).encode(), durable=durable)


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
