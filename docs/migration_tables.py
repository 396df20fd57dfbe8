"""Tables of what other libraries have and what is here, from the table of the package."""

import itertools
import re
from collections.abc import Iterator, Sequence

from pytorchrl.agent.other_names.items import Item, items

TITLES = {
    "algorithm": "Algorithms",
    "parameter": "Hyper-parameters",
    "agent": "Agents",
    "explorer": "Explorers",
    "policy": "Policies",
    "distribution": "Distributions",
    "Q-function": "Q-functions and action values",
    "module": "Modules",
    "buffer": "Replay buffers",
    "contract": "The contract of storages",
    "experiment": "Training loops and experiments",
    "hook": "Hooks and callbacks",
    "environment": "Environments",
    "builder": "Builders",
}
"""Kinds of rows, in the order of a page."""
HEAD = ("there", "here", "what differs")
LIST = re.compile(r"`[^`]*`(, `[^`]*`)*")
"""Names and nothing else."""


def sections_of(libraries: Sequence[str]) -> Iterator[tuple[str, list[Sequence[str]]]]:
    """The title of each kind, and the rows of some libraries."""
    for kind, title in TITLES.items():
        if rows := list(rows_of(libraries, kind)):
            yield title, rows


def rows_of(libraries: Sequence[str], kind: str | None = None) -> Iterator[Sequence[str]]:
    """What is there, here, and what differs; rows that follow each other and have the same answer are one."""
    chosen = [
        item for item in items() if kind in (None, item.kind) and set(libraries) & set(item.libraries.split(", "))
    ]
    for (here, differs, state, of), group in itertools.groupby(chosen, key=lambda item: _answer(item, libraries)):
        # A leading dot says that it is no name of the library itself.
        there = list(dict.fromkeys(re.sub(r"`\.", "`", item.there) for item in group))
        joined = (", " if all(LIST.fullmatch(one) for one in there) else "; ").join(there)
        written = f"{joined} ({', '.join(of)})" if len(of) < len(libraries) else joined
        yield written, f"not here; {here}" if state == "absent" else here, differs


def _answer(item: Item, libraries: Sequence[str]) -> tuple[str, str, str, tuple[str, ...]]:
    """What a row says, and which of the libraries it is of."""
    of = tuple(library for library in libraries if library in item.libraries.split(", "))
    return item.here, item.differs, item.state, of
