"""The metrics file has whole records only, and each is in the file at once, even if the run is killed."""

import json
import math
import os
import stat
from pathlib import Path

import numpy as np
import pytest
import torch

from pytorchrl.logging import MetricsFile, read_metrics


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def written(path: Path, *records: dict[str, float]) -> Path:
    file = MetricsFile(path)
    for record in records:
        file.write(record)
    file.close()
    return path


def test_a_record_can_be_read_as_soon_as_it_is_written(path: Path) -> None:
    file = MetricsFile(path)
    for count in range(1, 4):
        file.write({"steps": count, "train/return": count / 3})
        assert read_metrics(path) == [{"steps": step, "train/return": step / 3} for step in range(1, count + 1)]


@pytest.mark.parametrize("kind", [Path, str])
def test_the_metrics_of_a_run_can_be_read_by_its_folder(path: Path, kind: type[Path] | type[str]) -> None:
    written(path, {"steps": 3})
    assert read_metrics(kind(path.parent)) == [{"steps": 3}]


def test_a_record_is_a_line_of_strict_json_in_the_order_it_was_given(path: Path) -> None:
    written(path, {"steps": 3, "losses/q": 0.5, "a": 1}, {"steps": 6, "losses/q": math.nan})
    assert path.read_text() == '{"steps": 3, "losses/q": 0.5, "a": 1}\n{"steps": 6, "losses/q": null}\n'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), torch.tensor(torch.inf)])
def test_non_finite_numbers_are_null_in_the_file_and_nan_when_read(path: Path, value: float) -> None:
    written(path, {"steps": 1, "losses/q": value})
    assert json.loads(path.read_text()) == {"steps": 1, "losses/q": None}
    (record,) = read_metrics(path)
    assert record["steps"] == 1
    assert math.isnan(record["losses/q"])


@pytest.mark.parametrize(
    "value", [np.float32(0.25), np.float64(0.25), torch.tensor(0.25), torch.tensor([0.25], dtype=torch.float64)]
)
def test_a_scalar_of_numpy_or_torch_is_a_number_in_the_file(path: Path, value: float) -> None:
    written(path, {"value": value})
    assert path.read_text() == '{"value": 0.25}\n'


def test_counts_keep_all_their_digits(path: Path) -> None:
    written(path, {"steps": 2**53 + 1, "updates": int(np.int64(12))})
    assert read_metrics(str(path)) == [{"steps": 2**53 + 1, "updates": 12}]


def test_the_records_of_an_earlier_run_are_kept(path: Path) -> None:
    written(path, {"steps": 1})
    written(path, {"steps": 2})
    assert read_metrics(path) == [{"steps": 1}, {"steps": 2}]


def test_no_file_is_created_before_the_first_record(path: Path) -> None:
    MetricsFile(path).close()
    assert not path.exists()


@pytest.mark.parametrize("rest", ['{"steps": 2, "train/ret', '{"steps": 2, "nämé'.encode()[:-1], "{", '{"steps": 2'])
def test_an_incomplete_last_line_is_ignored_when_read(path: Path, rest: str | bytes) -> None:
    written(path, {"steps": 1})
    with path.open("ab") as file:
        file.write(rest if isinstance(rest, bytes) else rest.encode())
    assert read_metrics(path) == [{"steps": 1}]


def test_the_next_record_replaces_an_incomplete_last_line(path: Path) -> None:
    path.write_text('{"steps": 1}\n{"steps": 2, "train/ret')
    written(path, {"steps": 3})
    assert path.read_text() == '{"steps": 1}\n{"steps": 3}\n'


def test_a_complete_record_without_a_newline_is_kept(path: Path) -> None:
    path.write_text('{"steps": 1}\n{"steps": 2}')
    assert read_metrics(path) == [{"steps": 1}, {"steps": 2}]
    written(path, {"steps": 3})
    assert path.read_text() == '{"steps": 1}\n{"steps": 2}\n{"steps": 3}\n'


@pytest.mark.parametrize("damaged", ['{"steps": 2, "tra', "[1, 2]", "3"])
def test_a_damaged_line_before_the_last_is_reported_by_file_and_number(path: Path, damaged: str) -> None:
    path.write_text(f'{{"steps": 1}}\n{damaged}\n{{"steps": 3}}\n')
    with pytest.raises(ValueError, match="line 2 is no JSON object") as error:
        read_metrics(path)
    assert str(error.value).startswith(str(path))


def test_a_damaged_last_line_with_a_newline_is_an_error(path: Path) -> None:
    path.write_text('{"steps": 1}\n{"steps": 2, "tra\n')
    with pytest.raises(ValueError, match="line 2 is no JSON object"):
        read_metrics(path)


def test_a_closed_file_refuses_further_records(path: Path) -> None:
    file = MetricsFile(path)
    file.write({"steps": 1})
    file.close()
    file.close()
    with pytest.raises(ValueError, match=r"metrics\.jsonl was closed"):
        file.write({"steps": 2})
    assert read_metrics(path) == [{"steps": 1}]


def test_truncating_drops_the_records_of_later_steps_and_leaves_the_others_unchanged(path: Path) -> None:
    lines = ['{"steps": 10, "train/return": 1.0}', '{"steps":20,"test/return":null}', '{"steps": 30}', '{"steps": 25}']
    path.write_text("\n".join(lines) + '\n{"steps": 4')
    MetricsFile(path, goes_on_at=20).begin()
    assert path.read_text() == "\n".join(lines[:2]) + "\n"


def test_records_written_after_a_run_was_saved_are_dropped_at_equal_steps_too(path: Path) -> None:
    written(path, {"steps": 1}, {"steps": 2}, {"steps": 2, "train/resets": 1}, {"steps": 3})
    file = MetricsFile(path, goes_on_at=2)
    file.records = 2
    file.begin()
    assert file.records == 2
    file.write({"steps": 2, "train/resets": 1})
    assert file.records == 3
    assert read_metrics(path) == [{"steps": 1}, {"steps": 2}, {"steps": 2, "train/resets": 1}]


def test_truncating_to_the_start_leaves_an_empty_file(path: Path) -> None:
    written(path, {"steps": 1}, {"steps": 2})
    MetricsFile(path, goes_on_at=0).begin()
    assert read_metrics(path) == []


@pytest.mark.parametrize(("place", "name"), [(os, "fsync"), (Path, "replace")])
def test_an_interrupted_truncation_leaves_the_file_unchanged(
    path: Path, place: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    written(path, {"steps": 1}, {"steps": 2})
    before = path.read_bytes()
    monkeypatch.setattr(place, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        MetricsFile(path, goes_on_at=1).begin()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_truncated_file_is_synced_to_disk_before_it_replaces_the_whole_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk: list[int] = []
    fsync = os.fsync

    def watched(file: int) -> None:
        # The folder is synced afterwards, when it already contains the new file.
        if stat.S_ISREG(os.fstat(file).st_mode):
            assert read_metrics(path) == [{"steps": 1}, {"steps": 2}]
            on_disk.append(os.fstat(file).st_size)
        fsync(file)

    written(path, {"steps": 1}, {"steps": 2})
    monkeypatch.setattr(os, "fsync", watched)
    MetricsFile(path, goes_on_at=1).begin()
    assert on_disk == [path.stat().st_size]


def test_truncating_a_damaged_file_is_refused_and_leaves_it_unchanged(path: Path) -> None:
    path.write_text('{"steps": 1}\ndamaged\n{"steps": 3}\n')
    before = path.read_bytes()
    with pytest.raises(ValueError, match="line 2 is no JSON object"):
        MetricsFile(path, goes_on_at=1).begin()
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
