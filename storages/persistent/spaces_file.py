"""Spaces of the observations and actions in a storage's directory, so that training from it needs no environment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from storages.errors import DamageError
from storages.files import refuse_link
from storages.persistent.log.json_file import read_verified, write_verified
from storages.persistent.log.records import FORMAT

NAME = "spaces.json"
_WHAT = "the spaces of the observations and actions in this directory"


def write_spaces(directory: Path, spaces: Mapping[str, Any]) -> None:
    """Write the spaces into a directory, unless it has them already.

    Args:
        directory: of a storage.
        spaces: "observation" and "action" as plain data in Minari's format, and "action_names", a list, if there are
            any.

    Raises:
        OSError: the file cannot be written.
    """
    facts = {"what": _WHAT, "format": FORMAT, **spaces}
    try:
        is_known = (directory / NAME).is_file() and read_verified(directory / NAME) == facts
    except DamageError:
        is_known = False
    if not is_known:
        write_verified(directory / NAME, facts, durable=False)


def read_spaces(directory: Path) -> dict[str, Any] | None:
    """Return what :func:`write_spaces` wrote; None where there is nothing.

    Raises:
        DamageError: the file is damaged.
        PersistenceError: it is a link, or has another format version.
    """
    file = directory / NAME
    refuse_link(file)
    if not file.is_file():
        return None
    try:
        facts = read_verified(file)
    except DamageError:
        raise DamageError(f"{file} is damaged; without it, the data are read as data without spaces") from None
    return {name: facts[name] for name in ("observation", "action", "action_names") if name in facts}
