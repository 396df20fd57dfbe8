"""The selection of episodes of a data set, and returns-to-go."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storages import DatasetError, Episode
from storages.datasets import (
    FORMATS,
    About,
    SelectedDataset,
    SelectEpisodes,
    first_transitions,
    normalised,
    open_dataset,
    references_of,
    return_of,
    succeeded,
    with_returns_to_go,
    write_dataset,
)
from storages.transition import ACT, REW, RTG


def episode(rewards: Sequence[float], **facts: Any) -> Episode:
    steps = len(rewards)
    fields = {ACT: np.zeros((steps, 1), np.int64), REW: np.array(rewards, np.float64)[:, None]}
    return Episode(np.arange(steps + 1, dtype=np.float32)[:, None], fields, True, False, facts)


def chosen(returns: Sequence[float], successful: Sequence[bool | None] | None = None, **arguments: Any) -> list[float]:
    numbers = SelectEpisodes(**arguments).numbers(returns, successful or [None] * len(returns))
    return [returns[number] for number in numbers]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [4, 1, 7, 2, 9, 3]),
        ({"min_return": 3}, [4, 7, 9, 3]),
        ({"min_return": 2, "max_return": 4}, [4, 2, 3]),
        ({"max_episodes": 2}, [7, 9]),
        ({"best_share": 0.5}, [4, 7, 9]),
        ({"max_return": 8, "best_share": 0.4}, [4, 7]),
    ],
)
def test_episodes_are_chosen_by_their_returns_and_keep_their_order(
    arguments: dict[str, Any], expected: list[float]
) -> None:
    assert chosen([4, 1, 7, 2, 9, 3], **arguments) == expected


def test_only_successful_episodes_are_chosen_if_all_episodes_record_success() -> None:
    assert chosen([1, 2, 3], [True, False, True], successes=True) == [1, 3]
    with pytest.raises(
        DatasetError, match=r"record whether they succeeded, as a fact success or is_success, and not all do"
    ):
        chosen([1, 2, 3], [True, None, True], successes=True)


@given(
    count=st.integers(2, 60),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
)
def test_the_training_and_validation_parts_are_disjoint_and_complete(count: int, share: float, seed: int) -> None:
    returns = list(range(count))
    train, validation = (
        chosen(returns, part=part, validation_share=share, seed=seed) for part in ("train", "validation")
    )
    assert sorted(train + validation) == returns
    assert train
    assert validation
    assert len(validation) == min(max(1, round(share * count)), count - 1)
    assert chosen(returns, part="train", validation_share=share, seed=seed) == train


def test_a_filter_does_not_move_episodes_between_parts() -> None:
    returns = list(range(50))
    validation = set(chosen(returns, part="validation"))
    assert set(chosen(returns, part="validation", min_return=25)) == {value for value in validation if value >= 25}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"validation_share": 1.0}, "validation_share"),
        ({"best_share": 0.0}, "best_share"),
        ({"part": "test"}, "part"),
        ({"min_return": 2.0, "max_return": 1.0}, "min_return must not be above max_return, got 2 and 1"),
    ],
)
def test_invalid_arguments_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"SelectEpisodes: {message}"):
        SelectEpisodes(**arguments)


def test_a_selection_shows_what_was_chosen_and_no_defaults() -> None:
    assert repr(SelectEpisodes()) == "SelectEpisodes()"
    chosen = SelectEpisodes(part="train", validation_share=0.3, seed=2)
    assert repr(chosen) == "SelectEpisodes(part='train', validation_share=0.3, seed=2)"


def test_a_selected_data_set_counts_its_episodes_and_an_empty_selection_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "some.npz", [episode([1.0] * steps) for steps in (1, 2, 3, 4)])
    dataset = open_dataset(tmp_path / "some.npz")
    some = SelectedDataset(dataset, SelectEpisodes(min_return=3))
    assert (len(some), some.steps) == (2, 7)
    assert [return_of(one) for one in some] == [3, 4]
    with pytest.raises(
        DatasetError, match=r"selects none of the 4 episodes of .*some\.npz; their returns lie in \[1, 4\]"
    ):
        len(SelectedDataset(dataset, SelectEpisodes(min_return=5)))


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_keeps_whether_an_episode_succeeded(format_: str, tmp_path: Path) -> None:
    if format_ != "npz":
        pytest.importorskip("h5py" if format_ == "minari-hdf5" else "pyarrow")
    path = tmp_path / ("some.npz" if format_ == "npz" else "some-v0")
    write_dataset(path, [episode([1.0, 2.0], success=True), episode([3.0], success=False)], format=format_)
    assert [succeeded(one) for one in open_dataset(path)] == [True, False]


def test_returns_to_go_are_the_discounted_rewards_to_the_end() -> None:
    (one,) = with_returns_to_go([episode([1, 2, 4])], gamma=0.5)
    np.testing.assert_array_equal(one.fields[RTG], np.array([[3], [4], [4]], np.float32))
    (one,) = with_returns_to_go([episode([1, 2, 4])])
    np.testing.assert_array_equal(one.fields[RTG][:, 0], [7, 6, 4])


def test_an_episode_cut_by_first_transitions_is_neither_terminated_nor_truncated() -> None:
    kept = list(first_transitions([episode([1, 1]), episode([1, 1, 1]), episode([1])], 4))
    assert [len(one) for one in kept] == [2, 2]
    assert (kept[1].terminated, kept[1].truncated) == (False, False)
    np.testing.assert_array_equal(kept[1].observations[:, 0], [0, 1, 2])  # type: ignore[index]
    assert kept[0].terminated


def test_scores_are_normalised_by_the_references_of_the_metadata() -> None:
    references = references_of(About(further={"ref_min_score": 10.0, "ref_max_score": 30}))
    assert references == (10.0, 30.0)
    np.testing.assert_array_equal(normalised([10.0, 20.0, 40.0], references), [0.0, 0.5, 1.5])
    for further in ({}, {"ref_min_score": 3, "ref_max_score": 3}, {"ref_min_score": "low", "ref_max_score": 3}):
        assert references_of(About(further=further)) is None


def test_a_cut_episode_of_several_parts_keeps_the_observation_after_its_last_step() -> None:
    parts = {"a": np.arange(4.0)[:, None], "b": np.arange(8.0).reshape(4, 2)}
    (one,) = first_transitions([replace(episode([1, 1, 1]), observations=parts)], 2)
    assert {name: part.tolist() for name, part in dict(one.observations).items()} == {
        "a": [[0], [1], [2]],
        "b": [[0, 1], [2, 3], [4, 5]],
    }
