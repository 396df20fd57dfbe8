"""Files of the layouts of other libraries are read as they are, and refused where their flags have other names."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.datasets import FlatNames, open_dataset
from storages.errors import AmbiguousDataError, DatasetError
from tests.support.layouts import LAYOUTS, check_read, expected, observed
from tests.support.written_arrays import hdf5

pytest.importorskip("h5py")
pytest.importorskip("pyarrow")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_with_its_episodes_ends_and_n_step_returns(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    check_read(open_dataset(layout.made(tmp_path), **layout.needed), layout)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_with_other_names_of_flags_is_refused_with_the_arguments_it_needs(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    path = layout.made(tmp_path, other_names=True)
    with pytest.raises(AmbiguousDataError) as refused:
        # Minari's tables are read when their turn comes.
        list(open_dataset(path))
    message = str(refused.value)
    assert str(path) in message
    assert "\n" not in message
    assert [one for one in layout.named if one not in message] == []


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.answers])
def test_the_answers_make_the_same_of_a_layout_whose_flags_have_other_names(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    answers: dict[str, Any] = dict(layout.answers)
    if "names" in answers:
        answers["names"] = FlatNames(**answers["names"])
    check_read(open_dataset(layout.made(tmp_path, other_names=True), **answers), layout)


@pytest.mark.parametrize(
    ("name", "ends"), [("d3rlpy 2", "unknown"), ("robomimic", "truncated"), ("imitation", "truncated")]
)
def test_how_all_episodes_ended_is_said_in_place_of_flags(name: str, ends: Any, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    path = layout.made(tmp_path, other_names=name != "imitation")
    is_cut = ends == "truncated"
    changed = replace(layout, kind=False, cut=is_cut)
    episodes = list(open_dataset(path, ends=ends))
    assert [observed(one) for one in episodes] == expected(changed)
    assert [(one.terminated, one.truncated) for one in episodes] == [(False, is_cut)] * 2


def test_groups_with_numbers_beside_flat_arrays_are_no_episodes(tmp_path: Path) -> None:
    layout = LAYOUTS["D4RL"]
    hdf5(tmp_path / "some.hdf5", {**layout.arrays, "camera_0/pixels": np.zeros((6, 2)), "camera_1/pixels": np.ones(6)})
    check_read(open_dataset(tmp_path / "some.hdf5"), layout)


def test_of_minari_s_arrays_flags_alone_may_have_other_names(tmp_path: Path) -> None:
    path = LAYOUTS["Minari"].made(tmp_path)
    with pytest.raises(DatasetError, match="in which only terminals and timeouts may have other names"):
        open_dataset(path, names=FlatNames(observations="obs", terminals="terminations"))


def test_observations_of_several_arrays_in_dumps_of_d3rlpy_are_parts(tmp_path: Path) -> None:
    arrays = dict(LAYOUTS["d3rlpy 2"].arrays)
    for number in range(2):
        seen = arrays.pop(f"observations_{number}")
        arrays |= {f"observations_{number}_0": seen, f"observations_{number}_1": np.zeros((3, 2, 2), np.uint8)}
    hdf5(tmp_path / "some.h5", arrays)
    first, second = open_dataset(tmp_path / "some.h5")
    assert [np.shape(part) for part in dict(first.observations).values()] == [(4, 1), (4, 2, 2)]
    assert np.asarray(dict(second.observations)["0"]).tolist() == [[100], [101], [102]]
