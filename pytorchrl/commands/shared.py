"""Arguments that several commands take."""

from pathlib import Path
from typing import Annotated

import tyro

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""A run folder."""
Imports = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        name="import",
        metavar="MODULE",
        help="a module of yours, or a file, which defines classes or registers environments; several are named by the "
        "option given again",
    ),
    tyro.conf.UseAppendAction,
]
"""Modules that a command imports first, by ``import_modules``."""
