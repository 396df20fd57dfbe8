"""Crafted HDF5 files of flat arrays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.pytorchrl.crafted.case import Base, Case, flipped, halved

_ROWS = np.arange(6.0)
_FLAT: dict[str, Any] = {
    "observations": np.zeros((6, 2)),
    "actions": _ROWS,
    "rewards": _ROWS,
    "terminals": _ROWS == 5,
}


def _with(change: Callable[[h5py.File, Base], None]) -> Callable[[Base, Path], Path]:
    """An intact file without observations, to which a change is applied."""

    def make(base: Base, folder: Path) -> Path:
        path = folder / "some.hdf5"
        with h5py.File(path, "w") as file:
            for name, array in _FLAT.items():
                if name != "observations":
                    file[name] = array
            change(file, base)
        return path

    return make


def _whole(file: h5py.File, base: Base) -> None:
    file["observations"] = np.zeros((6, 2))


def _external_link(file: h5py.File, base: Base) -> None:
    with h5py.File(Path(file.filename).with_name("other.h5"), "w") as other:
        other["observations"] = _FLAT["observations"]
    file["observations"] = h5py.ExternalLink("other.h5", "/observations")


def _soft_link(file: h5py.File, base: Base) -> None:
    _external_link(file, base)
    file.move("observations", "further")
    file["observations"] = h5py.SoftLink("/further")


def _external_storage(file: h5py.File, base: Base) -> None:
    file.create_dataset("observations", (6, 2), np.uint8, external=[(str(base.text), 0, 12)])


def _virtual(file: h5py.File, base: Base) -> None:
    layout = h5py.VirtualLayout((6, 2), np.float64)
    layout[:] = h5py.VirtualSource("other.h5", "observations", (6, 2))
    file.create_virtual_dataset("observations", layout)


def _sparse(base: Base, folder: Path) -> Path:
    path, rows = folder / "some.hdf5", 100_000_000_000
    with h5py.File(path, "w") as file:
        for name in _FLAT:
            # Writing the first row allocates all rows, as a hole in the file.
            file.create_dataset(name, (rows,), np.uint8)[0] = 1
    return path


def _of_fill_values(base: Base, folder: Path) -> Path:
    path = folder / "some.hdf5"
    with h5py.File(path, "w") as file:
        for name in _FLAT:
            file.create_dataset(name, (100_000_000_000,), np.float64, chunks=(1000,), fillvalue=1.0)
    return path


def _compressed(file: h5py.File, base: Base) -> None:
    column = file.create_dataset("observations", (6, 42 << 20), np.uint8, chunks=(1, 1 << 20), compression="gzip")
    for row in range(6):
        column[row] = 0


def _large_chunk(file: h5py.File, base: Base) -> None:
    file.create_dataset("observations", (6, 2), np.uint8, chunks=(6, 1 << 28), maxshape=(None, None))


def _objects(file: h5py.File, base: Base) -> None:
    file.create_dataset("observations", (6,), h5py.string_dtype())


def _references(file: h5py.File, base: Base) -> None:
    file.create_dataset("observations", (6,), h5py.ref_dtype)


def _group(file: h5py.File, base: Base) -> None:
    file.create_group("observations")


def _without_shape(file: h5py.File, base: Base) -> None:
    file["observations"] = h5py.Empty(np.float64)


def _rewards_of_two_axes(file: h5py.File, base: Base) -> None:
    _whole(file, base)
    del file["rewards"]
    file["rewards"] = np.zeros((6, 2))


def _halved(base: Base, folder: Path) -> Path:
    path = _with(_whole)(base, folder)
    halved(path)
    return path


def _without_beginning(base: Base, folder: Path) -> Path:
    path = _with(_whole)(base, folder)
    flipped(path, 0, 100)
    return path


def _text(base: Base, folder: Path) -> Path:
    (folder / "some.hdf5").write_bytes(b"no HDF5\n")
    return folder / "some.hdf5"


def _flipped_where_compressed(base: Base, folder: Path) -> Path:
    path, random = folder / "some.hdf5", np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for name, array in _FLAT.items():
            if name != "observations":
                file[name] = array
        column = file.create_dataset(
            "observations", data=random.integers(0, 9, (6, 5000)), chunks=(6, 5000), compression="gzip"
        )
        begin = column.id.get_chunk_info(0).byte_offset
    flipped(path, begin + 200, 200)
    return path


CASES = [
    Case(name, make, "data set")
    for name, make in {
        "text": _text,
        "cut in half": _halved,
        "without its beginning": _without_beginning,
        "bits flipped in compressed data": _flipped_where_compressed,
        "a link to another file": _with(_external_link),
        "a link to a link to another file": _with(_soft_link),
        "values in another file": _with(_external_storage),
        "a virtual data set": _with(_virtual),
        "10^11 rows in a file with holes": _sparse,
        "10^11 rows that were never written": _of_fill_values,
        "a small file of much data": _with(_compressed),
        "a chunk larger than the file": _with(_large_chunk),
        "texts": _with(_objects),
        "references": _with(_references),
        "a group for observations": _with(_group),
        "a value without shape": _with(_without_shape),
        "rewards of two axes": _with(_rewards_of_two_axes),
        "no observations": _with(lambda file, base: None),
    }.items()
]
