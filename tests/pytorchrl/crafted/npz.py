"""Crafted files of numpy arrays."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.pytorchrl.crafted.case import Base, Case, flipped, halved

_ROWS = np.arange(6.0)
_FLAT = {"observations": np.zeros((6, 2)), "actions": _ROWS, "rewards": _ROWS, "terminals": _ROWS == 5}


def _changed(**arrays: Any) -> Callable[[Base, Path], Path]:
    """A data set of this package with changed arrays; None leaves an array out."""

    def make(base: Base, folder: Path) -> Path:
        with np.load(base.npz) as whole:
            held = {name: whole[name] for name in whole} | arrays
        np.savez(folder / "some.npz", allow_pickle=True, **{name: a for name, a in held.items() if a is not None})
        return folder / "some.npz"

    return make


def _flat(**arrays: Any) -> Callable[[Base, Path], Path]:
    def make(base: Base, folder: Path) -> Path:
        np.savez(folder / "some.npz", **_FLAT | arrays)
        return folder / "some.npz"

    return make


def _text(content: bytes) -> Callable[[Base, Path], Path]:
    def make(base: Base, folder: Path) -> Path:
        (folder / "some.npz").write_bytes(content)
        return folder / "some.npz"

    return make


def _halved(base: Base, folder: Path) -> Path:
    path = _flat()(base, folder)
    halved(path)
    return path


def _flipped_where_compressed(base: Base, folder: Path) -> Path:
    path, random = folder / "some.npz", np.random.default_rng(0)
    np.savez_compressed(path, **_FLAT | {"observations": random.integers(0, 9, (6, 5000))})
    flipped(path, 2500, 300)
    return path


def _flipped_where_stored(base: Base, folder: Path) -> Path:
    path = folder / "some.npz"
    np.savez(path, **_FLAT | {"observations": np.zeros((6, 5000))})
    flipped(path, 2500)
    return path


def _header(text: str, data: bytes = b"") -> Callable[[Base, Path], Path]:
    """Flat arrays, and an array of timeouts with a given header."""

    def make(base: Base, folder: Path) -> Path:
        path, header = folder / "some.npz", f"{text}\n".encode()
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in _FLAT.items():
                whole = io.BytesIO()
                np.lib.format.write_array(whole, array)
                archive.writestr(f"{name}.npy", whole.getvalue())
            start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
            archive.writestr("timeouts.npy", start + header + data)
        return path

    return make


def _bomb(base: Base, folder: Path) -> Path:
    path, rows = folder / "some.npz", 6
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in _FLAT.items():
            if name != "observations":
                whole = io.BytesIO()
                np.lib.format.write_array(whole, array)
                archive.writestr(f"{name}.npy", whole.getvalue())
        with archive.open("observations.npy", "w", force_zip64=True) as entry:
            declared = {"descr": "<f8", "fortran_order": False, "shape": (rows, 250 * (1 << 17) // rows)}
            np.lib.format.write_array_header_1_0(entry, declared)
            for _ in range(250):
                entry.write(bytes(1 << 20))
    return path


def _marked(offset: int, value: int) -> Callable[[Base, Path], Path]:
    """Change a number in the headers of an entry, such as its compression or encryption."""

    def make(base: Base, folder: Path) -> Path:
        path = _flat()(base, folder)
        data = bytearray(path.read_bytes())
        for magic, further in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
            begin = data.find(magic)
            while begin >= 0:
                data[begin + offset + further] = value
                begin = data.find(magic, begin + 1)
        path.write_bytes(data)
        return path

    return make


def _json(plain: Any) -> Any:
    return np.frombuffer(json.dumps(plain).encode(), np.uint8)


_MANY = "{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,)}"
_CODE = "__import__('pathlib').Path('ran').touch()"

CASES = [
    Case(name, make, "data set")
    for name, make in {
        "empty": _text(b""),
        "text": _text(b"no archive\n"),
        "cut in half": _halved,
        "bits flipped in compressed data": _flipped_where_compressed,
        "a bit flipped in stored data": _flipped_where_stored,
        "a header of 10^13 rows": _header(_MANY),
        "a header of missing rows": _header(_MANY.replace("10000000000000", "60"), bytes(48)),
        "a negative shape": _header(_MANY.replace("10000000000000", "-6"), bytes(48)),
        "a header that is code": _header(_CODE),
        "a header that is cut off": _header("{'descr': "),
        "a small archive of much data": _bomb,
        "an unknown compression": _marked(8, 97),
        "encrypted": _marked(6, 1),
        "objects": _changed(Action=np.array([{}] * 13, object)),
        "texts": _changed(Action=np.array(["a"] * 13)),
        "records": _changed(Action=np.zeros(13, [("x", np.int64)])),
        "a negative length": _changed(Length=np.array([8, -3, 4, 4])),
        "lengths of too many steps": _changed(Length=np.array([50, 3, 1, 4])),
        "lengths that overflow": _changed(Length=np.array([2**62, 2**62, 2**62, 2**62 + 13])),
        "lengths of two axes": _changed(Length=np.ones((4, 2), np.int64)),
        "no rewards": _changed(Reward=None),
        "fewer rewards": _changed(Reward=np.zeros((3, 1))),
        "a number for actions": _changed(Action=np.array(3)),
        "no facts": _changed(Facts=None),
        "facts that are no JSON": _changed(Facts=np.zeros(4, np.uint8)),
        "facts of other episodes": _changed(Facts=_json([{}])),
        "an unknown description": _changed(About=_json({"what": 1})),
        "a nested description": _changed(About=np.frombuffer(b"[" * 100_000, np.uint8)),
        "flat rewards of two axes": _flat(rewards=np.zeros((6, 2))),
        "flat arrays of different lengths": _flat(actions=np.zeros(5)),
        "a flat array without rows": _flat(actions=np.array(1.0)),
        "unknown arrays": lambda base, folder: _renamed(folder),
    }.items()
]


def _renamed(folder: Path) -> Path:
    np.savez(folder / "some.npz", x=_ROWS)
    return folder / "some.npz"
