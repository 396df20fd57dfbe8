"""Crafted and broken inputs of every kind that is read from disk, each made from an intact one.

``python -m tests.pytorchrl.crafted paths.json`` opens the inputs named in a file in one process, and prints as JSON the
result of each, and by how many bytes the memory grew at most.
"""

from pathlib import Path

from tests.pytorchrl.crafted import checkpoints, hdf5, layouts, minari, npz, runs, storages
from tests.pytorchrl.crafted.case import Base, Case

CASES: dict[str, Case] = {
    f"{module.__name__.rsplit('.', 1)[-1]}: {case.name}": case
    for module in (npz, hdf5, layouts, minari, storages, checkpoints, runs)
    for case in module.CASES
}


def made(case: Case, base: Base, folder: Path) -> Path:
    """Create one input in a separate folder, and return its path."""
    folder.mkdir(parents=True)
    return case.make(base, folder)
