"""Commands of ``python -m pytorchrl data`` by their names."""

from collections.abc import Callable

from pytorchrl.commands.data.datasets import convert, ls, merge, prune, show, split
from pytorchrl.commands.data.recording import collect, make

COMMANDS: dict[str, Callable[..., None]] = {
    "make": make,
    "collect": collect,
    "ls": ls,
    "show": show,
    "convert": convert,
    "merge": merge,
    "prune": prune,
    "split": split,
}
