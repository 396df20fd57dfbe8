"""Names of other libraries and their counterparts here: the table ``items.tsv``.

The pages on migration are made of it, and `pytorchrl` answers the names of other libraries from it.
"""

import functools
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from pytorchrl.agent.other_names.of_objects import PACKAGE_NAMES

CODE = re.compile(r"`([^`]*)`")
_NAME = re.compile(r"([A-Za-z]\w*)(?=\(|$)")
NO_SETTING = "no setting"
"""Entry of the column ``here`` where nothing has to be written."""
_PARAMETER = "parameter"
_PACKAGE = "pytorchrl"


class Item(NamedTuple):
    """A row of the table. Code in its texts stands between backticks."""

    kind: str
    """Such as "algorithm", "parameter" or "buffer"."""
    there: str
    """Classes and functions, or ``Class.parameter``; a leading dot marks what is no name of the library itself."""
    libraries: str
    """Those that have it, separated by commas."""
    here: str
    """The code to write instead."""
    state: str
    """"done" where it is the same, "differs", or "absent" where it is not here."""
    differs: str
    """The differences; empty where there are none."""
    test: str
    """A test of the effect, ``file::function``, where one is named."""

    @property
    def names(self) -> list[str]:
        """The public names of the libraries that the row is about."""
        if self.kind == _PARAMETER:
            return []
        return [found[1] for code in CODE.findall(self.there) if (found := _NAME.match(code))]


@functools.cache
def items() -> Sequence[Item]:
    """Return the rows of the table, read when they are first asked for."""
    _, *lines = Path(__file__).with_name("items.tsv").read_text(encoding="utf-8").splitlines()
    return [Item(*line.split("\t")) for line in lines]


@functools.cache
def answers() -> Mapping[str, str]:
    """Return what to write here for each name of another library, in one line."""
    found: dict[str, dict[str, list[str]]] = {}
    for item in items():
        for name in item.names:
            found.setdefault(name, {}).setdefault(_text(item), []).extend(item.libraries.split(", "))
    return {
        name: "; ".join(f"that of {' and '.join(dict.fromkeys(of))} {text}" for text, of in texts.items())
        for name, texts in found.items()
    }


def _text(item: Item) -> str:
    note = f" ({item.differs})" if item.differs else ""
    if item.here == NO_SETTING:
        return f"has no counterpart{note}".replace("`", "")
    verb = "is not here;" if item.state == "absent" else "is here"
    return f"{verb} {item.here}{note}".replace("`", "")


def refuse_name(name: str) -> NoReturn:
    """Raise the error for an attribute that the package does not have, called by its ``__getattr__``.

    Raises:
        AttributeError: in one line, with what to write instead of the name of another library.
        ImportError: the same, for ``from pytorchrl import name``, which would drop the text of an AttributeError.
    """
    message = f"module {_PACKAGE!r} has no attribute {name!r}"
    answer = None if name.startswith("_") else answers().get(name, PACKAGE_NAMES.get(name))
    if answer is None:
        # With the module, Python adds the nearest name.
        raise AttributeError(message, name=name, obj=sys.modules[_PACKAGE])
    # The two frames above are those of __getattr__; above them is what asked.
    asked = sys._getframe(3)
    if asked.f_code.co_name == "_handle_fromlist":
        raise ImportError(f"cannot import name {name!r} from {_PACKAGE!r}: {answer}", name=_PACKAGE)
    raise AttributeError(f"{message}: {answer}", name=name)
