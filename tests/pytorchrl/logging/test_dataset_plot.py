"""Pictures of data sets, and warnings about data that is hard to learn from."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytorchrl.__main__ import main
from pytorchrl.logging.pictures.dataset_sample import data_warnings, sample_of
from storages import Episode
from storages.datasets import About, open_dataset, write_dataset
from storages.transition import ACT, OBS, REW
from tests.support.data_sets import recorded

BOX = {"type": "Box", "dtype": "float32", "shape": [2], "low": [-1, -1], "high": [1, 1]}


def episodes(count: int = 30, **changes: Any) -> list[Episode]:
    random = np.random.default_rng(0)

    def episode(number: int) -> Episode:
        steps = 5 + number
        fields = {
            OBS: random.normal(size=(steps + 1, 3)).astype(np.float32),
            ACT: random.uniform(-0.9, 0.9, (steps, 2)).astype(np.float32),
            REW: random.normal(size=(steps, 1)),
        }
        for name, change in changes.items():
            if name in fields:
                change(fields[name])
        return Episode(fields.pop(OBS), fields, changes.get("terminated", True), False)

    return [episode(number) for number in range(count)]


def warnings_of(made: list[Episode], tmp_path: Path, space: Any = BOX) -> list[str]:
    write_dataset(tmp_path / "some.npz", made, allow_nonfinite=True)
    dataset = open_dataset(tmp_path / "some.npz")
    return data_warnings(sample_of(dataset, dataset), space)


def put(where: Any, value: float) -> Any:
    def change(array: Any) -> None:
        array[where] = value

    return change


def test_constant_numbers_are_named_by_their_part_and_pixels_counted(tmp_path: Path) -> None:
    made = []
    for episode in episodes():
        numbers = np.asarray(episode.observations)
        image = np.zeros((len(numbers), 4, 4), np.uint8)
        image[:, 0] = np.arange(len(numbers))[:, None]
        still = np.full((len(numbers), 2), 7, np.float32)
        made.append(replace(episode, observations={"numbers": numbers, "still": still, "view": image}))
    found = warnings_of(made, tmp_path)
    assert "Constant observation dimensions (of 21): still[0], still[1]." in found
    assert "12 of 16 pixels are constant." in found


def test_good_data_has_no_warnings(tmp_path: Path) -> None:
    assert warnings_of(episodes(), tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({OBS: put((slice(None), 1), 3.0)}, "Constant observation dimensions (of 3): 1."),
        ({OBS: put((0, 0), np.nan)}, "30 numbers are NaN or infinite."),
        ({ACT: put((slice(None), 0), 0.5)}, "Constant action dimensions (of 2): 0."),
        ({ACT: put((slice(None, None, 1), 1), 1.0)}, "50% of the actions are at a bound of their space."),
        ({ACT: put((0, 0), 2.0)}, "% of the actions are outside their space."),
        ({REW: put(slice(None), 0.0)}, "All episodes return 0."),
        ({REW: put(slice(None), 1.0)}, "All rewards are 1; returns differ only by the lengths of episodes."),
        ({"terminated": False}, "100% of the episodes break off: they are neither terminated nor truncated."),
    ],
)
def test_suspicious_data_is_reported_in_warnings(changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert any(expected in warning for warning in warnings_of(episodes(**changes), tmp_path))


def test_duplicate_episodes_and_unused_actions_are_reported_in_warnings(tmp_path: Path) -> None:
    made = episodes(3)
    for repeated, expected in (
        (
            made[:2],
            "2 episodes repeat all values of an earlier one (counted from 0): 3 that of 0, 4 that of 1.",
        ),
        (made[2:], "1 episode repeats all values of an earlier one (counted from 0): 3 that of 2."),
    ):
        assert expected in warnings_of([*made, *repeated], tmp_path)
        (tmp_path / "some.npz").unlink()
    flat = [
        Episode(one.observations, {**one.fields, ACT: np.ones((len(one), 1), np.int64)}, True, False) for one in made
    ]
    assert "Actions 0, 2 of 3 are never taken." in warnings_of(flat, tmp_path, {"type": "Discrete", "n": 3, "start": 0})


def test_a_sample_has_evenly_spaced_steps_of_the_whole_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytorchrl.logging.pictures.dataset_sample._MOST_STEPS", 50)
    made = episodes(20)
    write_dataset(tmp_path / "some.npz", made)
    dataset = open_dataset(tmp_path / "some.npz")
    sample = sample_of(dataset, dataset)
    rewards = np.concatenate([one.fields[REW] for one in made])[:, 0]
    np.testing.assert_array_equal(sample.rewards, rewards[:: -(-dataset.steps // 50)])
    assert 25 <= len(sample.actions) == len(sample.observations) == len(sample.rewards) <= 50


@pytest.mark.long
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_show_writes_a_picture_or_a_page(
    env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = recorded(tmp_path / "data.npz", env, 200)
    for suffix, begins in ((".png", b"\x89PNG"), (".html", b"<!doctype html>")):
        output = tmp_path / f"report{suffix}"
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "data", "show", str(data), "--output", str(output)])
        main()
        assert f"Picture: {output}" in capsys.readouterr().out
        assert output.read_bytes().startswith(begins)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "200 transitions" in page
    assert "data:image/png;base64," in page
    assert "http" not in page, "the page needs no network"


def test_the_description_of_a_data_set_is_escaped_in_html(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = About(description="<script>alert(1)</script>")
    write_dataset(tmp_path / "some.npz", episodes(3), about=about)
    monkeypatch.setattr(
        sys, "argv", ["pytorchrl", "data", "show", str(tmp_path / "some.npz"), "-o", str(tmp_path / "page.html")]
    )
    main()
    assert "<script>" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_another_type_of_output_file_is_refused_before_the_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "data", "show", "nowhere.npz", "-o", "picture.pdf"])
    with pytest.raises(SystemExit, match=r"the output must end in \.png or \.html, got 'picture\.pdf'"):
        main()
