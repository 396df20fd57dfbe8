"""Logged probabilities and texts of actions in tables and flat arrays."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import DatasetError, Episode
from storages.datasets import About, FlatNames, about_merged, fill, open_dataset, write_dataset
from storages.transition import ACT, ACTPROBS, LOGP, OBS, REW
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
        (
            "probabilities",
            PROBABILITIES[:, :2],
            "dose is 2 in row 2, and there are probabilities of the 2 actions from 0 to 1",
        ),
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
    with pytest.raises(DatasetError, match="actions differently, high, low, none and low, none; convert") as error:
        about_merged([one, two])
    assert str(error.value).endswith("in its order: --action-names high low none")
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


WORDS = np.array([[0.5, 0.2, 0.2, 0.1]] * COUNT)
"""Probabilities of high, low, medium, which was never taken, and none."""


@pytest.mark.parametrize("order", ["p_none,p_low,p_medium,p_high", "p_high,p_low,p_medium,p_none"])
def test_columns_of_probabilities_name_all_actions_in_whatever_order(order: str, tmp_path: Path) -> None:
    columns = dict(zip(("p_high", "p_low", "p_medium", "p_none"), WORDS.T, strict=True))
    path = written(tmp_path / "some.csv", csv, table(**columns))
    data = open_dataset(path, names=FlatNames("seen", "dose", "paid", episode="stay", probabilities=order))
    assert data.about.further["action_names"] == ["high", "low", "medium", "none"]
    first = next(iter(data))
    assert first.fields[ACT][:, 0].tolist() == [3, 1, 0]
    np.testing.assert_allclose(first.fields[ACTPROBS], WORDS[:3])


def test_actions_are_numbered_in_the_order_that_is_given_and_others_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "some.csv", csv, table())
    data = open_dataset(path, names=NAMES, action_names=["none", "low", "medium", "high"])
    assert [episode.fields[ACT][:, 0].tolist() for episode in data] == [[0, 1, 3], [0, 1, 3]]
    assert data.about.action_space is not None
    assert data.about.action_space["n"] == 4
    with pytest.raises(DatasetError, match="dose is 'high' in row 2, which is none of the actions none, low; correct"):
        open_dataset(path, names=NAMES, action_names=["none", "low"])
    numbers = written(tmp_path / "numbers.csv", csv, table(dose=np.arange(COUNT) % 3))
    data = open_dataset(numbers, names=NAMES, action_names=["none", "low", "medium", "high"])
    assert data.about.further["action_names"] == ["none", "low", "medium", "high"]
    with pytest.raises(DatasetError, match="has the action 2, counted from 0, and action_names= are 2 names"):
        open_dataset(numbers, names=NAMES, action_names=["none", "low"])


def test_a_text_without_a_column_of_its_probability_is_named_with_its_row(tmp_path: Path) -> None:
    doses = DOSES.copy()
    doses[5] = "hgih"
    columns = dict(zip(("p_high", "p_low", "p_none"), PROBABILITIES.T, strict=True))
    path = written(tmp_path / "some.csv", csv, table(dose=doses, **columns))
    names = FlatNames("seen", "dose", "paid", episode="stay", probabilities="p_high,p_low,p_none")
    with pytest.raises(DatasetError, match="dose is 'hgih' in row 5, which is none of the actions high, low, none,"):
        open_dataset(path, names=names)


def test_texts_that_occur_rarely_are_known_with_their_row(tmp_path: Path) -> None:
    doses = np.tile(DOSES, 300)
    doses[[7, 9]] = "hgih"
    arrays = {"seen": np.arange(len(doses)) / 3, "dose": doses, "paid": np.ones(len(doses))}
    arrays |= {"stay": np.arange(len(doses)) // 4}
    data: Any = open_dataset(written(tmp_path / "some.csv", csv, arrays), names=NAMES)
    assert [(rare.name, rare.count, rare.row) for rare in data.rare_actions] == [("hgih", 2, 7)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {ACT: -1},
            r"Action is -1 in step 1 of episode 1; those of a Discrete space are counted from 0, and it has 4 choices",
        ),
        ({ACT: 4}, r"Action is 4 in step 1 of episode 1"),
        ({ACT: 0.5}, r"Action is 0.5 in step 1 of episode 1"),
        ({REW: np.nan}, r"Reward is nan in step 1 of episode 1; correct it, or leave the episode out"),
        ({OBS: np.inf}, r"Observation\[0\] is inf in step 1 of episode 1"),
        ({ACTPROBS: 0.0}, r"ActionProbs gives the action taken the probability 0 in step 1 of episode 1"),
        ({LOGP: -np.inf}, r"LogProbability gives the action taken the logarithm -inf in step 1 of episode 1"),
    ],
)
@pytest.mark.parametrize("output", ["some.npz", "minari"])
def test_values_that_cannot_be_are_not_written(
    changes: dict[str, float], message: str, output: str, tmp_path: Path
) -> None:
    about = About(action_space={"type": "Discrete", "dtype": "int64", "start": 0, "n": 4})

    def episode(changes: dict[str, float]) -> Episode:
        arrays = {OBS: np.zeros((4, 2)), ACT: np.zeros((3, 1)), REW: np.ones((3, 1)), ACTPROBS: np.full((3, 1), 0.5)}
        arrays[LOGP] = np.log(arrays[ACTPROBS])
        for name, value in changes.items():
            arrays[name][1, 0] = value
        return Episode(arrays.pop(OBS), arrays, terminated=True, truncated=False)

    with pytest.raises(DatasetError, match=message):
        write_dataset(tmp_path / output, [episode({}), episode(changes)], about=about)
    assert list(tmp_path.iterdir()) == []
    if changes.keys() & {OBS, REW}:
        write_dataset(tmp_path / output, [episode(changes)], about=about, allow_nonfinite=True)
