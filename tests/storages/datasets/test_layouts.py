"""Files of the layouts of other libraries are read as they are, and refused where their flags have other names."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from storages import Episode, NStepReplayBuffer
from storages.datasets import Dataset, FlatNames, fill, open_dataset
from storages.errors import AmbiguousDataError
from storages.transition import DISCOUNT, OBS, OBS2, REW
from tests.support.layouts import LAYOUTS, Layout

pytest.importorskip("h5py")
pytest.importorskip("pyarrow")


def observed(episode: Episode) -> list[float]:
    (part,) = episode.observations.values() if isinstance(episode.observations, dict) else (episode.observations,)
    values: list[float] = np.asarray(part)[:, 0].tolist()
    return values


def n_step_rows(dataset: Dataset) -> list[tuple[float, ...]]:
    """The distinct rows of observation, 3-step reward, discount and next observation."""
    storage = NStepReplayBuffer.create_factory(size=50, n_step=3)("cpu", None, SimpleNamespace(gamma=1.0), None)
    fill(storage, dataset)
    batch = next(storage.generate_batches(1, 500))
    parts = [next(iter(part.values())) if isinstance(part := batch[key], dict) else part for key in (OBS, OBS2)]
    columns = (parts[0], batch[REW], batch[DISCOUNT], parts[1])
    return sorted(set(zip(*(column.ravel().tolist() for column in columns), strict=True)))


def expected(layout: Layout) -> list[list[float]]:
    first = [0, 1, 2, 3] if layout.final else [0, 1, 2, 2] if layout.kind else [0, 1, 2]
    return [first, [100, 101, 102, 103] if layout.final else [100, 101, 102]]


def check(dataset: Dataset, layout: Layout) -> None:
    episodes = list(dataset)
    assert [observed(one) for one in episodes] == expected(layout)
    assert (len(dataset), dataset.steps) == (2, sum(map(len, episodes)))
    assert [one.terminated for one in episodes] == [layout.kind, False]
    assert not episodes[0].truncated
    rows = n_step_rows(dataset)
    for seen, reward, discount, following in rows:
        assert (seen < 50) == (following < 50), "a row crosses a reset"
        of_first = seen < 50
        steps = min(3, (len(episodes[not of_first])) - int(seen % 100))
        assert reward == steps * (1 if of_first else 50)
        assert discount == (0 if of_first and layout.kind else 1)
    assert len(rows) == dataset.steps


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_with_its_episodes_ends_and_n_step_returns(name: str, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    check(open_dataset(layout.made(tmp_path), **layout.always), layout)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_whose_flags_have_other_names_is_refused_with_the_arguments_that_answer(
    name: str, tmp_path: Path
) -> None:
    layout = LAYOUTS[name]
    path = layout.made(tmp_path, other_names=True)
    with pytest.raises(AmbiguousDataError) as refused:
        open_dataset(path)
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
    check(open_dataset(layout.made(tmp_path, other_names=True), **answers), layout)
