"""Logged probabilities and texts of actions in tables and flat arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import DatasetError
from storages.datasets import FlatNames, about_merged, fill, open_dataset, write_dataset
from storages.transition import ACT, ACTPROBS, LOGP
from tests.support.written_arrays import csv, hdf5, npz, parquet

COUNT = 8
DOSES = np.array(["none", "low", "high", "none"] * 2)
PROBABILITIES = np.array([[0.5, 0.2, 0.3], [0.1, 0.8, 0.1]] * 4)
"""Of high, low and none."""
LOGARITHMS = np.log(np.linspace(0.2, 0.9, COUNT))
NAMES = FlatNames("seen", "dose", "paid", episode="stay")


def table(**further: Any) -> dict[str, Any]:
    """Two episodes of four rows, of which each loses its last one."""
    return {
        "seen": np.arange(COUNT) / 3,
        "dose": DOSES,
        "paid": np.ones(COUNT),
        "stay": np.arange(COUNT) // 4,
        **further,
    }


def written(path: Path, write: Any, arrays: dict[str, Any]) -> Path:
    write(path, arrays)
    return path


@pytest.mark.parametrize("name", [LOGP, "log_prob", "logp"])
def test_columns_of_known_names_are_the_logged_probabilities(name: str, tmp_path: Path) -> None:
    columns = {"obs": np.arange(COUNT) / 3, "action": np.arange(COUNT) % 2, "reward": np.ones(COUNT)}
    arrays = columns | {"episode": np.arange(COUNT) // 4, name: LOGARITHMS}
    data = open_dataset(written(tmp_path / "some.csv", csv, arrays))
    first = next(iter(data))
    np.testing.assert_allclose(first.fields[LOGP], LOGARITHMS[:3, None])


def test_names_of_the_users_own_need_not_repeat_those_of_fields(tmp_path: Path) -> None:
    arrays = table(**{LOGP: LOGARITHMS, **{f"{ACTPROBS}_{n}": PROBABILITIES[:, n] for n in range(3)}})
    first = next(iter(open_dataset(written(tmp_path / "some.csv", csv, arrays), names=NAMES)))
    np.testing.assert_allclose(first.fields[LOGP], LOGARITHMS[:3, None])
    np.testing.assert_allclose(first.fields[ACTPROBS], PROBABILITIES[:3])


@pytest.mark.parametrize(("suffix", "write"), [("csv", csv), ("parquet", parquet)])
def test_texts_of_actions_are_numbered_in_their_order(suffix: str, write: Any, tmp_path: Path) -> None:
    data = open_dataset(written(tmp_path / f"some.{suffix}", write, table()), names=NAMES)
    assert [episode.fields[ACT][:, 0].tolist() for episode in data] == [[2, 1, 0], [2, 1, 0]]
    assert data.about.further["action_names"] == ["high", "low", "none"]
    assert data.about.action_space == {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}
    assert data.about.observation_space is not None
    assert data.about.observation_space["shape"] == [1]


@pytest.mark.parametrize("output", ["some.npz", "minari"])
def test_the_names_of_actions_and_their_probabilities_are_written(output: str, tmp_path: Path) -> None:
    names = FlatNames("seen", "dose", "paid", episode="stay", probabilities="high,low,none")
    arrays = table(**{name: PROBABILITIES[:, n] for n, name in enumerate(("high", "low", "none"))})
    data = open_dataset(written(tmp_path / "some.csv", csv, arrays), names=names)
    write_dataset(tmp_path / output, data, about=data.about)
    copied = open_dataset(tmp_path / output)
    assert list(copied.about.further["action_names"]) == ["high", "low", "none"]
    np.testing.assert_allclose(next(iter(copied)).fields[ACTPROBS], PROBABILITIES[:3])


def test_an_action_that_was_never_taken_counts_if_it_has_probabilities(tmp_path: Path) -> None:
    arrays = table(dose=np.arange(COUNT) % 2, p=PROBABILITIES)
    names = FlatNames("seen", "dose", "paid", episode="stay", probabilities="p")
    data = open_dataset(written(tmp_path / "some.npz", npz, arrays), names=names)
    assert data.about.action_space is not None
    assert data.about.action_space["n"] == 3


@pytest.mark.parametrize(
    ("key", "values", "message"),
    [
        (
            "log_probabilities",
            PROBABILITIES,
            r"p has shape \(8, 3\), not one number for each step; in the names, log_pr",
        ),
        ("probabilities", PROBABILITIES[:, :2], r"shape \(8, 2\), not one number for each step, or 3 for the probab"),
        (
            "probabilities",
            PROBABILITIES * 2,
            "the probabilities p sum to 2 in row 0; name those of all actions, in the",
        ),
    ],
    ids=["log-probabilities of all", "too few", "no probabilities"],
)
def test_probabilities_that_cannot_be_are_refused(key: str, values: Any, message: str, tmp_path: Path) -> None:
    path = written(tmp_path / "some.npz", npz, table(dose=np.arange(COUNT) % 3, p=values))
    with pytest.raises(DatasetError, match=message):
        open_dataset(path, names=FlatNames("seen", "dose", "paid", episode="stay", **{key: "p"}))


def test_groups_of_episodes_keep_their_logged_probabilities(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    arrays = {"obs": np.zeros((4, 2)), "actions": np.zeros((3, 1), "i8"), "rewards": np.ones(3)}
    of_group = arrays | {"terminated": [0, 0, 1], LOGP: LOGARITHMS[:3]}
    path = tmp_path / "some.hdf5"
    hdf5(path, {f"demo_0/{name}": array for name, array in of_group.items()})
    (episode,) = open_dataset(path)
    np.testing.assert_allclose(episode.fields[LOGP], LOGARITHMS[:3, None])
    path.unlink()
    hdf5(path, {f"demo_0/{name}": array for name, array in (of_group | {LOGP: LOGARITHMS[:2]}).items()})
    with pytest.raises(DatasetError, match="holds arrays of different lengths"):
        open_dataset(path)


def test_columns_that_are_not_used_are_known(tmp_path: Path) -> None:
    arrays = table(
        place=np.array(["here"] * COUNT), x_0=np.zeros(COUNT), x_1=np.zeros(COUNT), day=["2025-01-01"] * COUNT
    )
    path = written(tmp_path / "some.csv", csv, arrays)
    assert open_dataset(path, names=NAMES).unused == ["place", "x_0", "x_1", "day"]  # type: ignore[attr-defined]
    names = FlatNames("x", "dose", "paid", episode="stay")
    assert open_dataset(path, names=names).unused == ["seen", "place", "day"]  # type: ignore[attr-defined]


def test_tables_that_number_their_actions_differently_are_not_merged(tmp_path: Path) -> None:
    one = open_dataset(written(tmp_path / "one.csv", csv, table()), names=NAMES)
    two = open_dataset(written(tmp_path / "two.csv", csv, table(dose=np.array(["none", "low"] * 4))), names=NAMES)
    with pytest.raises(DatasetError, match=r"number their actions differently, \['high', 'low', 'none'\] and \['low'"):
        about_merged([one, two])
    assert about_merged([one, one]).further["action_names"] == ["high", "low", "none"]


def test_a_number_of_the_first_action_does_not_apply_to_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "some.csv", csv, table())
    with pytest.raises(DatasetError, match="dose is text, whose texts are numbered from 0; leave out first_action="):
        open_dataset(path, names=NAMES, first_action=1)


def test_a_storage_keeps_the_probabilities_of_a_table(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from storages import ReplayBuffer

    path = written(tmp_path / "some.csv", csv, table(**{LOGP: LOGARITHMS}))
    storage = ReplayBuffer.create_factory(size=10)("cpu", None, SimpleNamespace(gamma=0.9), None)
    fill(storage, open_dataset(path, names=NAMES))
    (batch,) = storage.generate_batches(1, 4)
    assert batch[LOGP].shape == (4, 1)
