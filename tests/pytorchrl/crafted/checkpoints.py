"""Crafted checkpoints."""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.pytorchrl.crafted.case import Base, Case, flipped, halved, saved


class _Called:
    """A function that is called when it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._called = function, arguments

    def __reduce__(self) -> Any:
        return self._called


def _state(do: Callable[[dict[str, Any]], Any]) -> Callable[[Base, Path], Path]:
    """An intact checkpoint with a changed state."""

    def make(base: Base, folder: Path) -> Path:
        state = torch.load(base.run / "checkpoint.pt", weights_only=True)
        changed = do(state)
        return saved(folder / "checkpoint.pt", state if changed is None else changed)

    return make


def _file(do: Callable[[Path], None]) -> Callable[[Base, Path], Path]:
    def make(base: Base, folder: Path) -> Path:
        path = folder / "checkpoint.pt"
        path.write_bytes((base.run / "checkpoint.pt").read_bytes())
        do(path)
        return path

    return make


def _parts(**given: Any) -> Callable[[Path], None]:
    """Write all parts again, as an archive of another kind."""

    def change(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            parts = {info.filename: archive.read(info) for info in archive.infolist()}
        with zipfile.ZipFile(path, "w", **given) as archive:
            for name, content in parts.items():
                archive.writestr(name, content)

    return change


def _bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        name = next(name for name in archive.namelist() if "/data/" in name)
        with archive.open(f"{name}00", "w") as entry:
            for _ in range(250):
                entry.write(bytes(1 << 20))


def _arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.zeros(3))


def _without_pickle(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data/0", b"")


def _strided(state: dict[str, Any]) -> None:
    state["scheme"]["algorithm"]["further"] = torch.zeros(1).expand(10**11)


def _many_views(state: dict[str, Any]) -> None:
    one = torch.zeros(10_000)
    state["scheme"]["further"] = [one[:] for _ in range(2_000)]


def _nested(state: dict[str, Any]) -> Any:
    inner: Any = []
    for _ in range(30):
        inner = [inner, inner]
    return {"format": "new", "further": inner}


CASES = [
    Case(name, make, "checkpoint")
    for name, make in {
        "empty": _file(lambda path: path.write_bytes(b"") and None),
        "text": _file(lambda path: path.write_bytes(b"no archive") and None),
        "cut in half": _file(halved),
        "a bit flipped": _file(lambda path: flipped(path, path.stat().st_size // 2)),
        "a damaged directory of parts": _file(lambda path: flipped(path, -60, 40)),
        "compressed": _file(_parts(compression=zipfile.ZIP_DEFLATED)),
        "a small archive of much data": _file(_bomb),
        "without a pickle": _file(_without_pickle),
        "arrays of numpy": _file(_arrays),
        "code": _state(lambda state: state.update(x=_Called(os.system, "touch ran"))),
        "code of an allowed type": _state(lambda state: state.update(x=_Called(bytearray, 10**10))),
        "10^11 numbers stored as one": _state(_strided),
        "many views of the same data": _state(_many_views),
        "missing numbers": _state(lambda state: state.update(x=torch.empty(10**11, device="meta"))),
        "a sparse tensor": _state(
            lambda state: state.update(x=torch.sparse_coo_tensor([[0]], [1.0], (10**12,), check_invariants=True))
        ),
        "a list": _state(lambda state: [1, 2]),
        "a tensor": _state(lambda state: torch.zeros(3)),
        "a nested list": _state(_nested),
        "a format that is a text": _state(lambda state: state.update(format="new")),
        "a newer format": _state(lambda state: state.update(format=99)),
        "an older format": _state(lambda state: state.update(format=1)),
        "an old file of pickles": lambda base, folder: _legacy(folder),
    }.items()
]


def _legacy(folder: Path) -> Path:
    content = io.BytesIO()
    torch.save({"format": 3}, content, _use_new_zipfile_serialization=False)
    (folder / "checkpoint.pt").write_bytes(content.getvalue())
    return folder / "checkpoint.pt"
