"""Flat arrays of other libraries: the ends of episodes, and last steps without a next observation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import DatasetError, Episode
from storages.datasets import FlatNames, fill, open_dataset
from storages.transition import ACT

h5py = pytest.importorskip("h5py")

COUNT = 8
TERMINALS = np.array([0, 0, 1, 0, 0, 0, 0, 0], bool)
TIMEOUTS = np.array([0, 0, 0, 0, 0, 1, 0, 0], bool)


def steps(**further: Any) -> dict[str, Any]:
    """Arrays in which step k observes k, and then k + 1."""
    seen = np.arange(COUNT, dtype=np.float32)[:, None] * [1, 10]
    return {"observations": seen, "actions": -seen, "rewards": np.arange(COUNT) / 2, **further}


def d4rl(path: Path, arrays: dict[str, Any]) -> Path:
    with h5py.File(path / "some.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
        file["metadata/algorithm"] = "nothing of interest"
    return path / "some.hdf5"


def npz(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path / "some.npz", **arrays)
    return path / "some.npz"


def seen(one: Episode) -> list[float]:
    assert isinstance(one.observations, np.ndarray)
    observations: list[float] = one.observations[:, 0].tolist()
    return observations


@pytest.mark.parametrize(
    ("ends", "expected", "flags"),
    [
        ("unknown", [[0, 1], [2, 3, 4, 5]], (False, False)),
        ("truncated", [[0, 1], [2, 3, 4, 5]], (False, True)),
        ("terminated", [[0, 1, 1], [2, 3, 4, 5, 5], [6, 6], [7, 7]], (True, False)),
    ],
)
def test_expert_data_of_stable_baselines3_is_read_with_the_given_kind_of_end(
    ends: Any, expected: Any, flags: Any, tmp_path: Path
) -> None:
    arrays = steps(episode_starts=np.isin(np.arange(COUNT), [0, 2, 6, 7]), episode_returns=np.zeros(4))
    arrays["obs"] = arrays.pop("observations")
    dataset = open_dataset(npz(tmp_path, arrays), ends=ends)
    episodes = list(dataset)
    assert [seen(one) for one in episodes] == expected
    assert {(one.terminated, one.truncated) for one in episodes} == {flags}
    assert len(dataset) == len(expected)


@pytest.mark.parametrize("write", [d4rl, npz])
def test_the_names_of_arrays_can_be_given(write: Any, tmp_path: Path) -> None:
    named = {"s": steps()["observations"], "a": np.arange(COUNT, dtype=np.int32), "r": np.ones(COUNT), "d": TERMINALS}
    path = write(tmp_path, named)
    with pytest.raises(DatasetError, match=r"has arrays of unknown names, .*; specify their meaning: names=FlatNames"):
        open_dataset(path)
    names = FlatNames(observations="s", actions="a", rewards="r", terminals="d")
    first, _ = open_dataset(path, names=names, timeouts="none")
    # Discrete actions become a column, as in storages.
    assert first.fields[ACT].tolist() == [[0], [1], [2]]
    assert first.fields[ACT].dtype == np.int64
    with pytest.raises(DatasetError, match=r"lacks t; it has (s, a, r, d|a, d, metadata, r, s)"):
        open_dataset(path, names=FlatNames(observations="s", actions="a", rewards="r", timeouts="t"))


def test_a_replay_buffer_is_filled_from_flat_arrays(tmp_path: Path) -> None:
    from tests.support.model import replay_buffer

    storage = replay_buffer(20)
    fill(storage, open_dataset(d4rl(tmp_path, steps(terminals=TERMINALS, timeouts=TIMEOUTS))))
    data = storage.get_all_buffer_data()
    assert data["Observation"][:, 0, 0].tolist() == [0, 1, 2, 3, 4, 6]
    assert data["NextObservation"][:, 0, 0].tolist() == [1, 2, 2, 4, 5, 7]
    assert data["NextDone"].flatten().tolist() == [0, 0, 1, 0, 0, 0]
    assert data["NextTruncated"].flatten().tolist() == [0, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("write", [d4rl, npz])
def test_arrays_of_different_lengths_are_refused(write: Any, tmp_path: Path) -> None:
    path = write(tmp_path, steps(terminals=TERMINALS[:-1]))
    with pytest.raises(DatasetError, match=r"holds arrays of different lengths: .*'terminals': 7"):
        open_dataset(path)


class Bomb:
    """Creates the file ``ran`` when it is unpickled."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("ran"),))


def test_pickled_objects_and_text_are_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bombs = np.array([Bomb() for _ in range(COUNT)], object)
    path = tmp_path / "some.npz"
    np.savez(path, allow_pickle=True, **steps(terminals=TERMINALS) | {"actions": bombs})
    with pytest.raises(
        DatasetError, match=r"some\.npz: actions cannot be read, or holds pickled objects, which can run code"
    ):
        list(open_dataset(path))
    with h5py.File(tmp_path / "some.hdf5", "w") as file:
        for name, array in steps(terminals=TERMINALS).items():
            file[name] = ["text"] * COUNT if name == "actions" else array
    with pytest.raises(DatasetError, match=r"some\.hdf5: /actions is object; only numbers are read"):
        open_dataset(tmp_path / "some.hdf5")
    np.savez(path, **steps(terminals=TERMINALS) | {"actions": np.array(["text"] * COUNT)})
    with pytest.raises(DatasetError, match=r"some\.npz: actions is <U4; only numbers are read"):
        list(open_dataset(path))
    assert not Path("ran").exists()
