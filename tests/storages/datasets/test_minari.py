"""The package ``minari`` reads data sets written here, and data sets written by it are read here."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages import DatasetError, Episode
from storages.datasets import FORMATS, About, open_dataset, write_dataset
from storages.transition import ACT, LOGP, REW
from tests.support.episodes import KINDS, assert_same, episode, some

minari = pytest.importorskip("minari")
h5py = pytest.importorskip("h5py")
pytest.importorskip("pyarrow")
spaces = pytest.importorskip("gymnasium").spaces

LAYOUTS = ("hdf5", "arrow", "parquet")
BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def buffers(episodes: list[Episode], space: Any, start: int = 0) -> list[Any]:
    """The episodes as Minari's collector would record them."""
    made = []
    for one in episodes:
        length, actions = len(one), one.fields[ACT]
        made.append(
            minari.data_collector.EpisodeBuffer(
                seed=one.facts["seed"],
                observations=nested(space, one.observations),
                actions=actions[:, 0] + start if actions.dtype.kind == "i" and actions.shape[1] == 1 else actions,
                rewards=list(one.fields[REW][:, 0]),
                terminations=[one.terminated and step == length - 1 for step in range(length)],
                truncations=[one.truncated and step == length - 1 for step in range(length)],
                infos={"text": ["nothing"] * (length + 1), "noise": np.zeros((length + 1, 2))},
            )
        )
    return made


def nested(space: Any, observations: Any, name: str = "") -> Any:
    """Observations in the layout of a space."""
    join = f"{name}/" if name else ""
    if isinstance(space, spaces.Dict):
        return {key: nested(part, observations, f"{join}{key}") for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(nested(part, observations, f"{join}{place}") for place, part in enumerate(space.spaces))
    values = observations[name] if isinstance(observations, Mapping) else observations
    return values[:, 0] if isinstance(space, spaces.Discrete) else values


def of_minari(path: Path) -> Any:
    return minari.MinariDataset(path / "data")


def written_by_minari(
    path: Path, layout: str, observation: Any, action: Any, made: list[Any], *, jpeg_encoding: bool = True
) -> Path:
    data = path / "data"
    data.mkdir(parents=True)
    storage = minari.dataset.minari_storage.MinariStorage.new(
        data, observation, action, data_format=layout, jpeg_encoding=jpeg_encoding
    )
    storage.update_metadata(
        {"dataset_id": "some/thing-v3", "minari_version": minari.__version__, "author": {"A. Body"}}
    )
    storage.update_episodes(made)
    return path


SPACES = {
    "vector": BOX,
    "discrete": spaces.Discrete(7),
    "tuple": spaces.Tuple((BOX, spaces.Discrete(7), spaces.Dict({"bits": spaces.MultiBinary(4)}))),
    "nested": spaces.Dict({"arm": spaces.Dict({"left": BOX, "right": spaces.MultiDiscrete([3, 4])}), "leg": BOX}),
}


def observed(space: Any, rows: int, random: np.random.Generator, name: str = "") -> Any:
    """Values of a space in the layout of an episode."""
    join = f"{name}/" if name else ""
    parts: dict[str, Any] = {}
    if isinstance(space, spaces.Dict | spaces.Tuple):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in items:
            inner = observed(part, rows, random, f"{join}{key}")
            parts |= inner if isinstance(inner, dict) else {f"{join}{key}": inner}
        return parts
    if isinstance(space, spaces.Discrete):
        return random.integers(0, space.n, (rows, 1))
    if isinstance(space, spaces.Box):
        return random.normal(size=(rows, *space.shape)).astype(space.dtype)
    return random.integers(0, 2, (rows, *space.shape)).astype(space.dtype)


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("continuous", [True, False])
def test_data_sets_written_by_minari_are_read(layout: str, kind: str, continuous: bool, tmp_path: Path) -> None:
    space, random = SPACES[kind], np.random.default_rng(0)
    episodes = [
        Episode(observed(space, len(one) + 1, random), one.fields, one.terminated, one.truncated, one.facts)
        for one in some(continuous=continuous)
    ]
    action = spaces.Box(-9, 9, (2,), np.float32) if continuous else spaces.Discrete(4, start=-1)
    made = buffers(episodes, space, start=-1)
    dataset = open_dataset(written_by_minari(tmp_path / "of minari", layout, space, action, made))
    assert_same(dataset, episodes)
    assert [one.facts for one in dataset] == [{"number": number, "seed": number + 1} for number in range(4)]
    assert (len(dataset), dataset.steps) == (4, 13)
    assert (dataset.about.dataset_id, dataset.about.author) == ("some/thing-v3", ("A. Body",))
    again = open_dataset(tmp_path / "of minari" / "data")
    assert_same(again, episodes)
    # Written again, the data set has the same values and spaces for Minari.
    write_dataset(tmp_path / "back", dataset, format=f"minari-{layout}", about=dataset.about)
    one, two = of_minari(tmp_path / "of minari"), of_minari(tmp_path / "back")
    assert (one.observation_space, one.action_space) == (two.observation_space, two.action_space)
    for before, after in zip(one, two, strict=True):
        assert_equal(before.observations, after.observations)
        assert_equal(before.actions, after.actions)
        assert_equal(before.rewards, after.rewards)
        assert_equal(before.truncations, after.truncations)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_minari_opens_written_data_sets(layout: str, kind: str, tmp_path: Path) -> None:
    episodes = some(kind, continuous=kind == "double")
    about = About(
        "pendulum/expert-v0", author=("A. Body", "N. Body"), algorithm_name="SAC", further={"ref_max_score": 9}
    )
    write_dataset(tmp_path / "written", episodes, format=f"minari-{layout}", about=about)
    opened = of_minari(tmp_path / "written")
    assert (opened.id, opened.total_episodes, opened.total_steps) == ("pendulum/expert-v0", 4, 13)
    metadata = opened.storage.metadata
    assert (metadata["author"], metadata["algorithm_name"]) == ({"A. Body", "N. Body"}, "SAC")
    assert metadata["ref_max_score"] == 9
    for one, other in zip(opened, episodes, strict=True):
        observations = nested(opened.observation_space, other.observations)
        assert_equal(one.observations, observations)
        assert opened.observation_space.contains(first_of(observations))
        assert_equal(one.actions, other.fields[ACT] if kind == "double" else other.fields[ACT][:, 0])
        assert_equal(one.rewards, other.fields[REW][:, 0])
        assert one.terminations.tolist() == [False] * (len(other) - 1) + [other.terminated]
        assert one.truncations.tolist() == [False] * (len(other) - 1) + [other.truncated]
        assert one.infos == {}
    seeds = [facts.get("seed") for facts in opened.storage.get_episode_metadata(range(4))]
    assert seeds == [1, 2, 3, 4]


def first_of(observations: Any) -> Any:
    if isinstance(observations, dict):
        return {name: first_of(part) for name, part in observations.items()}
    return observations[0]


def assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert set(one) == set(other)
        for name in one:
            assert_equal(one[name], other[name])
    elif isinstance(one, tuple):
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right)
    else:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    ("format_", "kind", "continuous"),
    [
        (format_, kind, (row + column) % 2 == 0)
        for row, format_ in enumerate(FORMATS)
        for column, kind in enumerate(KINDS)
    ],
)
def test_written_episodes_are_read_unchanged(format_: str, kind: str, continuous: bool, tmp_path: Path) -> None:
    episodes = some(kind, continuous=continuous, further=True)
    path = tmp_path / ("written.npz" if format_ == "npz" else "written")
    written = write_dataset(path, iter(episodes), format=format_)
    assert (written.path, written.format, written.episodes, written.steps) == (path, format_, 4, 13)
    dataset = open_dataset(path)
    assert_same(dataset, episodes)
    # Each iteration starts with the first episode.
    assert_same(dataset, episodes)
    assert next(iter(dataset)).fields[LOGP].shape == (5, 1)
    assert (len(dataset), dataset.steps) == (4, 13)


def test_minari_finds_a_data_set_in_a_folder_named_after_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    write_dataset(tmp_path / "counting-v2", some())
    assert minari.load_dataset("counting-v2").total_steps == 13
    assert list(minari.list_local_datasets()) == ["counting-v2"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_that_minari_stored_as_jpeg_are_read(layout: str, tmp_path: Path) -> None:
    space = spaces.Box(0, 255, (36, 40, 3), np.uint8)
    gradient = np.broadcast_to(np.arange(36, dtype=np.uint8)[:, None, None] * 5, (36, 40, 3))
    noise = np.random.default_rng(0).integers(0, 255, (36, 40, 3), np.uint8)
    for number, pictures in enumerate(([gradient] * 3, [gradient, noise, gradient])):
        one = episode(2)
        seen = Episode(np.stack(pictures), one.fields, True, False, one.facts)
        path = written_by_minari(tmp_path / str(number), layout, space, spaces.Discrete(4), buffers([seen], space))
        (read,) = open_dataset(path)
        assert_equal(read.observations, next(iter(of_minari(path))).observations)
        assert abs(read.observations[0].astype(int) - gradient).max() < 8


@pytest.mark.parametrize(("package", "format_"), [("h5py", "minari-hdf5"), ("pyarrow", "minari-arrow")])
def test_without_the_package_the_command_that_installs_it_is_named(
    package: str, format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tmp_path / "written", some(), format=format_)
    monkeypatch.setitem(sys.modules, package, None)
    needed = f"needs the package {package}; pip install {package}"
    with pytest.raises(DatasetError, match=needed):
        list(open_dataset(tmp_path / "written"))
    with pytest.raises(DatasetError, match=needed):
        write_dataset(tmp_path / "again", some(), format=format_)
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


def test_values_that_do_not_match_the_space_are_not_written(tmp_path: Path) -> None:
    wide = {"type": "Box", "dtype": "float32", "shape": [4], "low": [0.0] * 4, "high": [1.0] * 4}
    with pytest.raises(DatasetError, match=r"written was not written: values of shape \(3,\) are not of the space"):
        write_dataset(tmp_path / "written", some(), about=About(observation_space=wide))
    named = About(observation_space={"type": "Dict", "subspaces": {"a": wide}})
    with pytest.raises(DatasetError, match=r"has observations \['a'\], the episode \[''\]"):
        write_dataset(tmp_path / "written", some(), about=named)
    below = [Episode(one.observations, one.fields | {ACT: one.fields[ACT] - 9}, True, False) for one in some()]
    with pytest.raises(DatasetError, match="those of a Discrete space are counted from 0"):
        write_dataset(tmp_path / "written", below)
    with pytest.raises(DatasetError, match="dataset_id must look like"):
        write_dataset(tmp_path / "written", some(), about=About("no version"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_actions_of_discrete_spaces_are_counted_from_their_starts_on_disk_and_0_here(
    layout: str, tmp_path: Path
) -> None:
    action, start = spaces.MultiDiscrete([3, 2], start=[5, 7]), np.array([5, 7])
    counted = [np.array([[0, 0], [2, 1], [1, 0]]), np.array([[1, 1]])]
    episodes = [
        Episode(
            np.zeros((len(one) + 1, 3), np.float32), {ACT: one, REW: np.ones((len(one), 1))}, True, False, {"seed": 1}
        )
        for one in counted
    ]
    made = [replace(one, actions=actions + start) for one, actions in zip(buffers(episodes, BOX), counted, strict=True)]
    path = written_by_minari(tmp_path / "of minari", layout, BOX, action, made)
    dataset = open_dataset(path)
    assert [one.fields[ACT].tolist() for one in dataset] == [actions.tolist() for actions in counted]
    write_dataset(tmp_path / "back", dataset, format=f"minari-{layout}", about=dataset.about)
    back = of_minari(tmp_path / "back")
    assert back.action_space == action
    for one, actions in zip(back, counted, strict=True):
        assert one.actions.tolist() == (actions + start).tolist()
        assert all(action.contains(each) for each in one.actions)
    negative = [Episode(one.observations, {**one.fields, ACT: one.fields[ACT] - 1}, True, False) for one in dataset]
    with pytest.raises(DatasetError, match="those of a MultiDiscrete space are counted from 0"):
        write_dataset(tmp_path / "negative", negative, format=f"minari-{layout}", about=dataset.about)


def with_mission(path: Path, layout: str) -> Path:
    """A data set whose observations have a text beside numbers, as those of Minigrid."""
    write_dataset(path, some("dict"), format=f"minari-{layout}")
    file = path / "data" / "metadata.json"
    metadata = json.loads(file.read_text())
    space = json.loads(metadata["observation_space"])
    space["subspaces"]["mission"] = {"type": "Text", "max_length": 9, "min_length": 1, "charset": "abc"}
    file.write_text(json.dumps(metadata | {"observation_space": json.dumps(space)}))
    return path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_part_that_is_no_number_is_refused_by_name_and_can_be_left_out(layout: str, tmp_path: Path) -> None:
    path = with_mission(tmp_path / "some", layout)
    with pytest.raises(
        DatasetError, match=r"a part 'mission' of type 'Text', .* leave_out=\['mission'\], or --leave-out"
    ):
        list(open_dataset(path))
    dataset = open_dataset(path, leave_out=["mission"])
    assert_same(dataset, some("dict"))
    assert "mission" not in (dataset.about.observation_space or {})["subspaces"]
    with pytest.raises(DatasetError, match="has no part colour to leave out"):
        open_dataset(path, leave_out=["colour"])


@pytest.mark.long
@pytest.mark.parametrize("text", ["of infos", "left out"])
def test_texts_that_repeat_in_a_parquet_file_take_no_memory(text: str, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = with_mission(tmp_path / "some", "parquet")
    for file in path.rglob("*.parquet"):
        table = pq.read_table(file)
        texts = pa.array(["x" * (1 << 20)] * len(table))
        name, found = ("infos", None) if text == "of infos" else ("observations", table.column("observations"))
        parts = [] if found is None else [found.combine_chunks().field(part) for part in found.type.names]
        parts_named = ["mission"] if found is None else [*found.type.names, "mission"]
        changed = pa.StructArray.from_arrays([*parts, texts], names=parts_named)
        table = table.drop_columns([name] if name in table.column_names else []).append_column(name, changed)
        pq.write_table(table, file, compression="zstd")
        del table, texts, changed, found, parts
    code = (
        "import sys, pyarrow; from storages.datasets import open_dataset; "
        "dataset = open_dataset(sys.argv[1], leave_out=['mission']); "
        "print(sum(map(len, dataset)), pyarrow.default_memory_pool().max_memory())"
    )
    # In a process of its own, whose largest use of memory is that of this data set.
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    steps, most = map(int, done.stdout.split())
    assert steps == sum(map(len, some("dict")))
    assert 0 < most < 1 << 20
