"""Files whose arrays contradict each other are refused by an error that names the file and the array."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.datasets import open_dataset, write_dataset
from storages.errors import AmbiguousDataError, DatasetError
from storages.transition import REW
from tests.support.episodes import some
from tests.support.layouts import LAYOUTS
from tests.support.written_arrays import npz, parquet

h5py = pytest.importorskip("h5py")
pytest.importorskip("pyarrow")


def refused(path: Path, message: str, kind: type[Exception] = DatasetError) -> None:
    with pytest.raises(kind, match=message) as caught:
        # Some files are read when their turn comes.
        list(open_dataset(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Length": np.array([5, 3, 0, 4])}, "Length must be at least 1 for each episode"),
        ({"Length": np.array([[5], [3], [1], [4]])}, "is damaged"),
        ({"Length": np.array([5, 3, 1, 3])}, "it claims 4 episodes of 12 steps, and its arrays have lengths"),
        ({"Length": np.array([5, 3, 5])}, "it claims 3 episodes of 13 steps"),
        ({"Facts": np.frombuffer(b"{}}", np.uint8)}, "is damaged: JSONDecodeError"),
        ({"About": np.frombuffer(b'{"some": 1}', np.uint8)}, "is damaged: TypeError"),
        ({"Terminated": None}, "is damaged: KeyError"),
        ({REW: None}, "lacks Action or Reward; it has "),
    ],
    ids=str,
)
def test_an_npz_file_of_our_own_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_dataset(tmp_path / "some.npz", some())
    with np.load(tmp_path / "some.npz") as file:
        arrays = dict(file)
    assert changes.keys() <= arrays.keys()
    npz(tmp_path / "some.npz", {name: array for name, array in (arrays | changes).items() if array is not None})
    refused(tmp_path / "some.npz", message)


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.npz").write_bytes(b"not an archive")
    refused(tmp_path / "some.npz", "cannot be read as an npz file")


@pytest.mark.parametrize(
    ("changes", "message", "kind"),
    [
        ({"indices": np.array([3, 5])}, "indices must be 1 increasing numbers of steps below 6, with or", DatasetError),
        ({"indices": np.array([6])}, "indices must be 1 increasing numbers of steps below 6", DatasetError),
        ({"indices": np.array([2, 4, 6])}, "indices must be 1 increasing numbers", DatasetError),
        ({"terminal": np.array([True])}, r"terminal has shape \(1,\), and there are 2 episodes", DatasetError),
        ({"terminal": None}, "ends=", AmbiguousDataError),
        ({"rews": None}, "has no array of a known name for", AmbiguousDataError),
    ],
    ids=str,
)
def test_a_file_of_imitation_is_refused(
    changes: dict[str, Any], message: str, kind: type[Exception], tmp_path: Path
) -> None:
    arrays = dict(LAYOUTS["imitation"].arrays) | changes
    npz(tmp_path / "some.npz", {name: array for name, array in arrays.items() if array is not None})
    refused(tmp_path / "some.npz", message, kind)


def test_indices_of_imitation_may_end_before_the_last_step_or_with_it(tmp_path: Path) -> None:
    arrays = dict(LAYOUTS["imitation"].arrays)
    npz(tmp_path / "with.npz", arrays)
    npz(tmp_path / "without.npz", arrays | {"indices": np.array([3])})
    assert [len(one) for name in ("with", "without") for one in open_dataset(tmp_path / f"{name}.npz")] == [3] * 4


TABLE = {
    "observations": np.arange(6.0),
    "actions": np.arange(6) % 2,
    "rewards": np.ones(6),
    "terminals": np.arange(6) == 5,
    "timeouts": np.arange(6) == 2,
}


def test_a_table_whose_lists_have_different_lengths_is_refused(tmp_path: Path) -> None:
    uneven = np.empty(6, object)
    uneven[:] = [[1.0], [2.0, 3.0], *([[4.0]] * 4)]
    parquet(tmp_path / "some.parquet", TABLE | {"observations": uneven})
    refused(tmp_path / "some.parquet", "observations has lists of 1 to 2 numbers; give all the same")


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_file_that_is_no_table_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"some.{suffix}"
    path.write_bytes(b"a,b\n1\n1,2,3\n" if suffix == "csv" else b"PAR1 and nothing else")
    refused(path, {"csv": "cannot be read as CSV", "parquet": "cannot be read as Parquet"}[suffix])


def changed_metadata(path: Path, **changes: Any) -> None:
    file = path / "data" / "metadata.json"
    metadata = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in metadata.items() if value is not None}))


BOXES = {"type": "Dict", "subspaces": {"one": {"type": "Discrete", "dtype": "int64", "start": 0, "n": 2}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"total_steps": 5}, "the metadata claim 5 steps, but there are 6"),
        ({"total_episodes": 3}, "the metadata claim 3 episodes, but there are 2"),
        ({"total_steps": -1}, "is no metadata of a Minari data set, or damaged"),
        ({"total_steps": True}, "is no metadata of a Minari data set, or damaged"),
        ({"data_format": "zip"}, "is in Minari's format 'zip'; hdf5, arrow, parquet are read"),
        ({"observation_space": None}, "has no spaces; the package minari can infer them"),
        ({"action_space": json.dumps(BOXES)}, "the action space must be a single array, not a Dict or Tuple of 1"),
    ],
    ids=str,
)
def test_a_data_set_of_minari_with_other_metadata_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = LAYOUTS["Minari"].made(tmp_path)
    changed_metadata(path, **changes)
    refused(path, message)


def shortened(array: Any) -> Any:
    return array[:-1]


def ended_early(array: Any) -> Any:
    return np.ones_like(array)


def widened(array: Any) -> Any:
    return np.concatenate([array, array], axis=-1)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("terminations", ended_early, "episode 1 is damaged: it has flags of an end before its last step, or too few"),
        ("truncations", shortened, "episode 1 is damaged: it has flags of an end before its last step, or too few"),
        ("observations", shortened, "episode 1: observations are 3, not 4"),
        ("actions", widened, r"episode 1: actions have shape \(2,\), the space says \(1,\)"),
    ],
)
def test_an_episode_of_minari_whose_arrays_do_not_fit_is_named(
    name: str, change: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    path = LAYOUTS["Minari"].made(tmp_path)
    with h5py.File(path / "data" / "main_data.hdf5", "r+") as file:
        array = file[f"episode_1/{name}"][...]
        del file[f"episode_1/{name}"]
        file[f"episode_1/{name}"] = change(array)
    refused(path, message)
