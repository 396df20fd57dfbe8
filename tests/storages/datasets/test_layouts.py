"""Files of the layouts of other libraries are read as they are, and refused where their flags have other names."""

from pathlib import Path
from typing import Any

import pytest

from storages.datasets import FlatNames, open_dataset
from storages.errors import AmbiguousDataError
from tests.support.layouts import LAYOUTS, check_read

pytest.importorskip("h5py")
pytest.importorskip("pyarrow")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_with_its_episodes_ends_and_n_step_returns(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    check_read(open_dataset(layout.made(tmp_path), **layout.needed), layout)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_whose_flags_have_other_names_is_refused_with_the_arguments_that_answer(
    name: str, tmp_path: Path
) -> None:
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
