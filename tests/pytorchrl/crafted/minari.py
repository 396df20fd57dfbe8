"""Crafted Minari data sets in all layouts."""

import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.pytorchrl.crafted.case import Base, Case, flipped, halved

_PICTURES = {"type": "Box", "dtype": "uint8", "shape": [8000, 8000], "low": 0, "high": 255}


def _copy(layout: str, change: Callable[[Path, Base], None]) -> Callable[[Base, Path], Path]:
    """An intact data set with a change in its folder of data."""

    def make(base: Base, folder: Path) -> Path:
        shutil.copytree(base.minari[layout], folder / "some")
        change(folder / "some/data", base)
        return folder / "some"

    return make


def _with_metadata(**changed: Any) -> Callable[[Path, Base], None]:
    """Change the metadata."""

    def change(data: Path, base: Base) -> None:
        path = data / "metadata.json"
        metadata = json.loads(path.read_text()) | changed
        path.write_text(json.dumps({key: value for key, value in metadata.items() if value is not None}))

    return change


def _written(name: str, content: bytes) -> Callable[[Path, Base], None]:
    return lambda data, base: (data / name).write_bytes(content) and None


def _linked(name: str) -> Callable[[Path, Base], None]:
    """Replace a file or a folder by a link to one outside."""

    def change(data: Path, base: Base) -> None:
        path = data / name
        path.rename(data.parent.parent / path.name)
        path.symlink_to(data.parent.parent / path.name)

    return change


def _in_file(do: Callable[[h5py.File], None]) -> Callable[[Path, Base], None]:
    def change(data: Path, base: Base) -> None:
        with h5py.File(data / "main_data.hdf5", "r+") as file:
            do(file)

    return change


def _episode_elsewhere(file: h5py.File) -> None:
    file.copy("episode_0", h5py.File(Path(file.filename).with_name("other.h5"), "w"))
    del file["episode_0"]
    file["episode_0"] = h5py.ExternalLink("other.h5", "/episode_0")


def _infos_elsewhere(file: h5py.File) -> None:
    file["episode_0/infos/further"] = h5py.ExternalLink("other.h5", "/further")


def _without_actions(file: h5py.File) -> None:
    del file["episode_0/actions"]


def _shorter(file: h5py.File) -> None:
    del file["episode_0/rewards"]
    file["episode_0/rewards"] = np.zeros(2)


def _ends_in_between(file: h5py.File) -> None:
    file["episode_0/terminations"][1] = True


def _many_rows(file: h5py.File) -> None:
    for name in ("observations", "actions", "rewards", "terminations", "truncations"):
        node = file[f"episode_0/{name}"]
        shape, kind = (10**11, *node.shape[1:]), node.dtype
        del file[f"episode_0/{name}"]
        file.create_dataset(f"episode_0/{name}", shape, kind, chunks=(1000, *shape[1:]))


def _large_picture(data: Path, base: Base) -> None:
    _with_metadata(observation_space=json.dumps(_PICTURES), jpeg_encoding=True)(data, base)
    picture = io.BytesIO()
    Image.new("L", (8000, 8000)).save(picture, "JPEG")
    row = np.frombuffer(picture.getvalue(), np.uint8)
    with h5py.File(data / "main_data.hdf5", "r+") as file:
        for number in range(4):
            steps = len(file[f"episode_{number}/rewards"]) + 1
            del file[f"episode_{number}/observations"]
            rows = np.repeat(row[None], steps, 0)
            file.create_dataset(f"episode_{number}/observations", data=rows, compression="gzip")


def _table(data: Path) -> Path:
    return next((data / "0").glob("part*"))


def _cut(data: Path, base: Base) -> None:
    halved(_table(data))


def _flipped(data: Path, base: Base) -> None:
    # In the description of the columns, because values have no checksum.
    flipped(_table(data), -300, 200)


def _many_rows_of_nothing(data: Path, base: Base) -> None:
    path = _table(data)
    table = pq.read_table(path)
    rows = pa.concat_tables([table.slice(0, 1)] * 100).combine_chunks()
    rows = pa.concat_tables([rows] * 1000).combine_chunks()
    with pq.ParquetWriter(path, table.schema) as writer:
        for _ in range(60):
            writer.write_table(rows)


def _other_shape(data: Path, base: Base) -> None:
    path = _table(data)
    table = pq.read_table(path)
    wrong = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * len(table))), 2)
    pq.write_table(table.set_column(table.column_names.index("observations"), "observations", wrong), path)


def _texts(data: Path, base: Base) -> None:
    path = _table(data)
    table = pq.read_table(path)
    texts = pa.array(["a"] * len(table))
    pq.write_table(table.set_column(table.column_names.index("rewards"), "rewards", texts), path)


def _compressed_text(data: Path, base: Base) -> None:
    path = _table(data)
    table = pa.ipc.open_file(path).read_all()
    infos = pa.StructArray.from_arrays([pa.array(["x" * (40 << 20)] * len(table))], names=["note"])
    table = table.drop_columns(["infos"] if "infos" in table.column_names else []).append_column("infos", infos)
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)


def _pipe(data: Path, base: Base) -> None:
    os.mkfifo(data / "further")


CASES = [
    Case(name, _copy(layout, change), "data set", named)
    for name, layout, change, named in (
        ("metadata that are cut off", "hdf5", _written("metadata.json", b'{"total'), "metadata.json"),
        ("metadata that are a list", "hdf5", _written("metadata.json", b"[]"), "metadata.json"),
        ("nested metadata", "hdf5", _written("metadata.json", b"[" * 100_000), "metadata.json"),
        ("10^15 steps", "hdf5", _with_metadata(total_steps=10**15), None),
        ("one step more than exists", "hdf5", _with_metadata(total_steps=14), None),
        ("a negative number of episodes", "hdf5", _with_metadata(total_episodes=-1), "metadata.json"),
        ("another number of episodes", "parquet", _with_metadata(total_episodes=7), None),
        ("steps that are a text", "hdf5", _with_metadata(total_steps="many"), "metadata.json"),
        ("an unknown layout", "hdf5", _with_metadata(data_format="pickle"), None),
        ("an unknown space", "hdf5", _with_metadata(observation_space='{"type": "Text"}'), "metadata.json"),
        ("a space without shape", "hdf5", _with_metadata(observation_space='{"type": "Box"}'), None),
        ("a nested space", "hdf5", _with_metadata(observation_space="[" * 100_000), "metadata.json"),
        ("no spaces", "hdf5", _with_metadata(observation_space=None), "metadata.json"),
        ("a file that is a link", "hdf5", _linked("main_data.hdf5"), "main_data.hdf5"),
        ("a file that is no HDF5", "hdf5", _written("main_data.hdf5", b"nothing"), "main_data.hdf5"),
        ("an episode in another file", "hdf5", _in_file(_episode_elsewhere), "main_data.hdf5"),
        ("infos in another file", "hdf5", _in_file(_infos_elsewhere), "main_data.hdf5"),
        ("an episode without actions", "hdf5", _in_file(_without_actions), "main_data.hdf5"),
        ("an episode with fewer rewards", "hdf5", _in_file(_shorter), None),
        ("an episode that ends in between", "hdf5", _in_file(_ends_in_between), None),
        ("10^11 rows that were never written", "hdf5", _in_file(_many_rows), "main_data.hdf5"),
        ("large pictures in a small file", "hdf5", _large_picture, "main_data.hdf5"),
        ("a table that is cut in half", "arrow", _cut, None),
        ("bits of a table flipped", "arrow", _flipped, None),
        ("a folder that is a link", "arrow", _linked("1"), None),
        ("a compressed text of 40 MB in each row", "arrow", _compressed_text, None),
        ("facts that are no JSON", "arrow", _written("0/metadata.json", b"{"), None),
        ("a table that is cut in half, of parquet", "parquet", _cut, None),
        ("bits of a table flipped, of parquet", "parquet", _flipped, None),
        ("a small table of many rows", "parquet", _many_rows_of_nothing, None),
        ("observations of another shape", "parquet", _other_shape, None),
        ("texts for rewards", "parquet", _texts, None),
        ("a pipe", "parquet", _pipe, "further"),
    )
]
