"""Files of arrays by name, in the formats that other libraries write."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def renamed(arrays: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the arrays with other names."""
    return {names.get(name, name): array for name, array in arrays.items()}


def hdf5(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an HDF5 file; names with slashes are in groups."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def parquet(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a Parquet file, with a list in each row of an array (N, k)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({name: pa.array(array.tolist()) for name, array in arrays.items()}), path)


def csv(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a CSV file."""
    rows = zip(*(np.asarray(array).reshape(-1).tolist() for array in arrays.values()), strict=True)
    path.write_text("\n".join([",".join(arrays), *(",".join(map(str, row)) for row in rows)]) + "\n")


def lerobot(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a folder of LeRobot's, with two episodes of the same length, each in a table of its own."""
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v2.1", "total_episodes": 2, "fps": 10}))
    for number in range(2):
        table = {name: np.split(array, 2)[number] for name, array in arrays.items()}
        parquet(path / "data" / "chunk-000" / f"episode_{number:06d}.parquet", table)


def npz(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write an npz file."""
    np.savez(path, **arrays)


def minari(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write a folder of Minari's with observations and actions of one component."""
    box = {"type": "Box", "dtype": "float32", "shape": [1], "low": [-1000.0], "high": [1000.0]}
    spaces = dict.fromkeys(("observation_space", "action_space"), json.dumps(box))
    about = {"dataset_id": "some/layout-v0", "total_episodes": 2, "total_steps": 6, "minari_version": "0.5.4"}
    (path / "data").mkdir(parents=True)
    (path / "data" / "metadata.json").write_text(json.dumps(about | spaces | {"data_format": "hdf5"}))
    hdf5(path / "data" / "main_data.hdf5", arrays)
