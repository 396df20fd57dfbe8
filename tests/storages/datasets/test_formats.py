"""Data sets are found, written completely or not at all, merged and filtered; a storage directory is one, too."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from storages import DatasetError, Episode
from storages.datasets import (
    D4RL,
    FORMATS,
    STABLE_BASELINES3,
    About,
    Dataset,
    Space,
    about_merged,
    chosen,
    episodes_of,
    fill,
    find_datasets,
    format_for,
    merged,
    open_dataset,
    return_of,
    write_dataset,
)
from storages.persistent import DamageError
from storages.transition import REW
from tests.support.directories import made, small_segments
from tests.support.episodes import assert_same, episode, some
from tests.support.episodic import buffer
from tests.support.model import Stream

DISCRETE: Space = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 4}


@pytest.mark.parametrize("way", ["plain", "priority"])
def test_the_directory_of_a_storage_is_a_data_set_of_its_episodes(way: str, tmp_path: Path) -> None:
    with small_segments():
        storage = made(way, tmp_path / "kept", size=20, commit_every=3)
        stream = Stream(2, "dict", True, np.random.default_rng(0))
        for _ in range(50):
            storage.insert_transition(stream.step())
        storage.flush()
        expected = list(episodes_of(storage))
        # Also while the storage is in use.
        assert_same(open_dataset(tmp_path / "kept"), expected)
        storage.close()
    before = {path: path.read_bytes() for path in (tmp_path / "kept").iterdir() if path.name != "lock"}
    dataset = open_dataset(tmp_path / "kept")
    assert (len(dataset), dataset.steps, dataset.format) == (len(expected), 40, "storage")
    assert_same(dataset, expected)
    assert {path: path.read_bytes() for path in before} == before
    # A copy of the data set can fill another storage.
    write_dataset(tmp_path / "written.npz", dataset)
    other = made("plain", None, size=20)
    fill(other, open_dataset(tmp_path / "written.npz"), num_envs=2)
    assert len(other) == 40


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("size", [25, 1000])
def test_the_directory_of_an_episodic_buffer_is_a_data_set_of_its_episodes(
    size: int, closed: bool, tmp_path: Path
) -> None:
    storage, stream = buffer(tmp_path / "kept", "dict", size=size), Stream(2, "dict", True, np.random.default_rng(0))
    for _ in range(100):
        storage.insert_transition(stream.step())
    # Also while the buffer is in use, and the newest episodes are only in the write-ahead log.
    storage.close() if closed else storage.flush()
    expected = list(storage.episodes())
    dataset = open_dataset(tmp_path / "kept")
    assert list(find_datasets(tmp_path)) == [tmp_path / "kept"]
    assert (len(dataset), dataset.steps, dataset.format) == (len(expected), len(storage), "episodes")
    assert_same(dataset, expected)
    write_dataset(tmp_path / "written.npz", dataset)
    assert_same(open_dataset(tmp_path / "written.npz"), expected)
    storage.close()


def test_a_damaged_episode_of_a_buffer_is_named(tmp_path: Path) -> None:
    storage, stream = buffer(tmp_path / "kept"), Stream(2, "vector", True, np.random.default_rng(0))
    for _ in range(100):
        storage.insert_transition(stream.step())
    storage.close()
    path = min((tmp_path / "kept" / "episodes" / "Observation").glob("c.*"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamageError, match=r"c\.\S+ is damaged, which holds a part of .* episodes, transitions"):
        list(open_dataset(tmp_path / "kept"))


def test_nested_data_sets_are_found_but_hidden_files_and_links_are_skipped(tmp_path: Path) -> None:
    write_dataset(tmp_path / "b.npz", some())
    write_dataset(tmp_path / "a" / "deep" / "c.npz", some())
    storage = made("plain", tmp_path / "kept", size=20)
    fill(storage, some())
    storage.close()
    (tmp_path / "a" / "notes.txt").write_text("nothing")
    write_dataset(tmp_path / ".hidden.npz", some())
    (tmp_path / "round").symlink_to(tmp_path)
    assert list(find_datasets(tmp_path)) == [tmp_path / "a" / "deep" / "c.npz", tmp_path / "b.npz", tmp_path / "kept"]
    assert list(find_datasets(tmp_path / "b.npz")) == [tmp_path / "b.npz"]
    with pytest.raises(DatasetError, match="elsewhere does not exist"):
        find_datasets(tmp_path / "elsewhere")


def test_a_path_without_a_data_set_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"elsewhere\.npz does not exist"):
        open_dataset(tmp_path / "elsewhere.npz")
    with pytest.raises(
        DatasetError, match="holds no data set of a known format: a Minari data set is a folder with data/"
    ):
        open_dataset(tmp_path)


def interrupted() -> Iterator[Episode]:
    yield from some()
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["written.npz", "written"])
def test_an_interrupted_write_leaves_no_files(name: str, tmp_path: Path) -> None:
    if name == "written":
        pytest.importorskip("h5py")
    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / name, interrupted())
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "written.npz"
    write_dataset(path, some())
    content = path.read_bytes()
    with pytest.raises(DatasetError, match=r"written\.npz exists already; name another path, or delete it"):
        write_dataset(path, some())

    def meanwhile() -> Iterator[Episode]:
        yield episode(2)
        (tmp_path / "other.npz").write_text("of another process")

    with pytest.raises(DatasetError, match="exists already"):
        write_dataset(tmp_path / "other.npz", meanwhile())
    assert path.read_bytes() == content
    assert (tmp_path / "other.npz").read_text() == "of another process"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.npz", "written.npz"]


def test_an_unsuitable_format_is_refused_before_episodes_are_read(tmp_path: Path) -> None:
    def never() -> Iterator[Episode]:
        raise AssertionError
        yield

    with pytest.raises(
        DatasetError, match="format must be one of minari-hdf5, minari-arrow, minari-parquet, npz, got 'x'"
    ):
        write_dataset(tmp_path / "written", never(), format="x")
    for name, format_ in (("written.npz", "minari-arrow"), ("written", "npz"), ("written.hdf5", None)):
        with pytest.raises(DatasetError, match="cannot be in the format"):
            write_dataset(tmp_path / name, never(), format=format_)
    assert [format_for(tmp_path / name, None) for name in ("a", "a.npz")] == ["minari-hdf5", "npz"]
    assert set(FORMATS) == {"minari-hdf5", "minari-arrow", "minari-parquet", "npz"}
    assert D4RL.terminals == "terminals"
    assert STABLE_BASELINES3.observations == "obs"


def test_episodes_of_different_layouts_and_incomplete_episodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"episode 1 differs from the first one: .*LogProbability"):
        write_dataset(tmp_path / "written.npz", [episode(2), episode(2, further=True)])
    with pytest.raises(DatasetError, match="there is no episode to write"):
        write_dataset(tmp_path / "written.npz", [episode(0)])
    with pytest.raises(DatasetError, match="an episode needs Action and Reward, and has Reward"):
        write_dataset(tmp_path / "written.npz", [replace(one, fields={REW: one.fields[REW]}) for one in some()])
    with pytest.raises(DatasetError, match="an episode of 5 steps has 5 rows of Observation"):
        write_dataset(tmp_path / "written.npz", [replace(one, observations=np.zeros((len(one), 2))) for one in some()])
    assert list(tmp_path.iterdir()) == []


def test_the_metadata_of_a_data_set_and_the_facts_of_its_episodes_are_kept(tmp_path: Path) -> None:
    about = About(
        "some/thing-v1", None, DISCRETE, "{}", "SAC", ("A",), ("a@b",), "words", ("p-v0", "q-v0"), {"code": 3}
    )
    write_dataset(tmp_path / "written.npz", some(), about=about)
    dataset = open_dataset(tmp_path / "written.npz")
    assert dataset.about == about
    assert [one.facts for one in dataset] == [{"seed": seed} for seed in (1, 2, 3, 4)]
    assert repr(dataset) == f"NpzDataset({str(tmp_path / 'written.npz')!r}, 4 episodes, 13 steps)"


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("format_", FORMATS)
def test_a_randomly_changed_file_is_refused_by_name_or_read_as_numbers(format_: str, tmp_path: Path) -> None:
    if format_ != "npz":
        pytest.importorskip("h5py" if format_ == "minari-hdf5" else "pyarrow")
    path, random = tmp_path / ("some.npz" if format_ == "npz" else "some"), np.random.default_rng(0)
    write_dataset(path, some(), format=format_)
    files = sorted(file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
    refused = 0
    for attempt in range(60):
        file = files[attempt % len(files)]
        whole = file.read_bytes()
        content = bytearray(whole[: random.integers(len(whole))] if attempt % 3 == 0 else whole)
        for place in random.integers(len(content), size=3) if content else ():
            content[place] = random.integers(256)
        file.write_bytes(content)
        message = error_of_reading(path)
        refused += message is not None
        assert message is None or str(path) in message
        file.write_bytes(whole)
    assert refused > 20
    assert_same(open_dataset(path), some())


def error_of_reading(path: Path) -> str | None:
    """The error of reading a data set; None if there is none."""
    try:
        for one in open_dataset(path):
            assert one.fields[REW].dtype.kind in "biuf"
    except DatasetError as error:
        return str(error)
    return None


def dataset_at(path: Path, episodes: list[Episode], **about: object) -> Dataset:
    write_dataset(path, episodes, about=About(**about))  # type: ignore[arg-type]
    return open_dataset(path)


def test_merged_data_sets_are_concatenated_and_their_metadata_is_combined(tmp_path: Path) -> None:
    one = dataset_at(
        tmp_path / "one.npz", some(), action_space=DISCRETE, author=("A", "B"), algorithm_name="SAC", dataset_id="a-v0"
    )
    wider = {**DISCRETE, "n": 6}
    two = dataset_at(tmp_path / "two.npz", some()[::-1], action_space=wider, author=("B", "C"), algorithm_name="PPO")
    assert_same(merged([one, two]), some() + some()[::-1])
    assert [each.facts["source"] for each in merged([one, two])] == [str(one.path)] * 4 + [str(two.path)] * 4
    assert about_merged([one, two]) == About(
        action_space=wider, author=("A", "B", "C"), combined_datasets=("a-v0", "two")
    )


def test_compatible_spaces_are_united_and_others_are_refused(tmp_path: Path) -> None:
    def box(low: float, high: float, kind: str = "float32") -> Space:
        return {"type": "Box", "dtype": kind, "shape": [3], "low": [low] * 3, "high": [high] * 3}

    def both(left: Space, right: Space) -> Space | None:
        number = len(list(tmp_path.iterdir()))
        one = dataset_at(tmp_path / f"{number}.npz", some(), observation_space=left)
        two = dataset_at(tmp_path / f"{number + 1}.npz", some(), observation_space=right)
        return about_merged([one, two]).observation_space

    assert both(box(-1, 1), box(0, 2)) == box(-1, 2)
    nested: list[Space] = [{"type": "Dict", "subspaces": {"a": box(0, high)}} for high in (1, 2)]
    assert both(*nested) == nested[1]
    for different in (box(0, 1, "float64"), DISCRETE):
        with pytest.raises(DatasetError, match="have different spaces"):
            both(box(0, 1), different)
    with pytest.raises(DatasetError, match="have different spaces"):
        both(DISCRETE, {**DISCRETE, "start": 1})


def test_incompatible_data_sets_are_not_merged(tmp_path: Path) -> None:
    one, two = dataset_at(tmp_path / "one.npz", some()), dataset_at(tmp_path / "two.npz", some("double", further=True))
    with pytest.raises(
        DatasetError,
        match=r"one\.npz and .*two\.npz are incompatible: Observation float32\(3,\) beside float64\(2, 2\); Log",
    ):
        about_merged([one, two])


def test_the_best_episodes_are_chosen() -> None:
    returns = [3.0, 1.0, 5.0, 3.0, -2.0]
    assert chosen(returns) == {0, 1, 2, 3, 4}
    assert chosen(returns, min_return=3.0) == {0, 2, 3}
    assert chosen(returns, max_episodes=2) == {0, 2}
    assert chosen(returns, min_return=4.0, max_episodes=2) == {2}
    assert return_of(episode(4)) == pytest.approx(float(episode(4).fields[REW].sum()))


def test_an_empty_storage_is_an_empty_data_set_which_is_not_merged(tmp_path: Path) -> None:
    storage = made("plain", tmp_path / "kept", size=20)
    fill(storage, some())
    storage.reset()
    storage.close()
    dataset = open_dataset(tmp_path / "kept")
    assert (len(dataset), dataset.steps, list(dataset)) == (0, 0, [])
    with pytest.raises(DatasetError, match="kept is empty; leave it out"):
        about_merged([dataset_at(tmp_path / "one.npz", some()), dataset])
