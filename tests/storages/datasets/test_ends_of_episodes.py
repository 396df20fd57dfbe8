"""How episodes of flat arrays end: by flags, numbers, time limits and next observations, and never by a guess."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storages.datasets import FlatNames, open_dataset
from storages.datasets.episode_bounds import breaks_in
from storages.errors import AmbiguousDataError, DatasetError
from storages.transition import ACT, REW
from tests.support.written_arrays import csv, hdf5, parquet

COUNT = 40
LAST = np.arange(COUNT) % 10 == 9
NONE = np.zeros(COUNT, bool)


def flat(path: Path, **changes: Any) -> Path:
    """Write four episodes of ten steps, without flags unless they are given."""
    seen = np.random.default_rng(0).normal(size=(COUNT, 3))
    arrays = {"observations": seen, "actions": np.zeros((COUNT, 1), "f4"), "rewards": np.ones(COUNT)} | changes
    np.savez(path / "some.npz", **{name: array for name, array in arrays.items() if array is not None})
    return path / "some.npz"


def following(arrays: Any = None) -> Any:
    """The next observations of the steps of :func:`flat`, which are new ones where an episode ends."""
    seen = np.random.default_rng(0).normal(size=(COUNT, 3))
    after = np.concatenate([seen[1:], seen[:1]])
    after[LAST] = 7
    return after


def lengths(path: Path, **answers: Any) -> list[tuple[int, bool, bool]]:
    return [(len(one), one.terminated, one.truncated) for one in open_dataset(path, **answers)]


def as_bfloat16(array: Any) -> Any:
    return (array.astype("f4").view("u4") & 0xFFFF0000).view("f4")


ROUNDED = {
    "float32": lambda array: array.astype("f4"),
    "float16": lambda array: array.astype("f2"),
    "float16 and back": lambda array: array.astype("f2").astype("f4"),
    "bfloat16": as_bfloat16,
    "bfloat16 and back to float64": lambda array: as_bfloat16(array).astype("f8"),
    "another order of sums": lambda array: array + 1e-15,
}


@pytest.mark.parametrize("cast", ROUNDED)
@pytest.mark.parametrize("of_next", [True, False])
def test_rounding_of_observations_or_next_observations_cuts_no_episode(
    cast: str, of_next: bool, tmp_path: Path
) -> None:
    seen = np.random.default_rng(0).normal(size=(COUNT, 3))
    arrays = {"observations": seen, "next_observations": following()}
    name = "next_observations" if of_next else "observations"
    arrays[name] = ROUNDED[cast](arrays[name])
    path = flat(tmp_path, **arrays, terminals=LAST & (np.arange(COUNT) < 10))
    # Time limits are found by the next observations.
    assert lengths(path) == [(10, True, False), (10, False, False), (10, False, False), (10, False, False)]
    path = flat(tmp_path, **arrays, terminals=NONE, timeouts=LAST)
    assert lengths(path) == [(10, False, True)] * 4


def test_lossy_next_observations_cut_no_episode_and_are_refused_without_flags(
    tmp_path: Path,
) -> None:
    noisy = following() + np.random.default_rng(1).normal(size=(COUNT, 3)) * 0.02
    assert lengths(flat(tmp_path, next_observations=noisy, terminals=NONE, timeouts=LAST)) == [(10, False, True)] * 4
    path = flat(tmp_path, next_observations=noisy, terminals=NONE)
    with pytest.raises(AmbiguousDataError, match="in 39 of 40 steps the next observation is not the follo"):
        open_dataset(path)
    assert lengths(path, max_episode_steps=10) == [(10, False, True)] * 4
    # Shuffled transitions are episodes of one step each.
    assert len(lengths(path, max_episode_steps=1)) == COUNT


@pytest.mark.parametrize("dtype", ["i8", "f4", "f2", "u1"])
def test_whole_numbers_are_compared_exactly(dtype: str) -> None:
    seen = np.arange(200)[:, None].astype(dtype)
    breaks = breaks_in({"": seen}, {"": np.where(np.arange(200)[:, None] == 9, 9, seen + 1).astype(dtype)})
    assert np.flatnonzero(breaks).tolist() == [9]


def test_steps_of_a_file_from_which_rows_were_removed_are_not_joined(tmp_path: Path) -> None:
    kept = np.delete(np.arange(COUNT), [3, 4, 25])
    seen = np.random.default_rng(0).normal(size=(COUNT, 3))
    arrays = {"observations": seen, "next_observations": following(), "terminals": NONE, "timeouts": LAST}
    arrays |= {"actions": np.zeros((COUNT, 1)), "rewards": np.ones(COUNT)}
    found = lengths(flat(tmp_path, **{name: array[kept] for name, array in arrays.items()}))
    assert found == [
        (3, False, False),
        (5, False, True),
        (10, False, True),
        (5, False, False),
        (4, False, True),
        (10, False, True),
    ]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"timeouts": "none"}, [(10, True, False), (29, False, False)]),
        ({"max_episode_steps": 10}, [(10, True, False)] + [(9, False, True)] * 3),
        ({"max_episode_steps": 15}, [(10, True, False), (14, False, True), (14, False, True)]),
        # The last episode may go on after the end of the file.
        ({"episode": "which"}, [(10, True, False), (9, False, True), (9, False, True), (9, False, False)]),
        ({"timeouts": "last"}, [(10, True, True)] + [(9, False, True)] * 3),
    ],
)
def test_each_answer_says_how_episodes_ended(answers: Any, expected: Any, tmp_path: Path) -> None:
    path = flat(tmp_path, terminals=LAST & (np.arange(COUNT) < 10), which=np.arange(COUNT) // 10 + 5, last=LAST)
    with pytest.raises(AmbiguousDataError, match=r"by terminating: it has terminals, and neither.*; last may be flags"):
        open_dataset(path)
    found = lengths(path, **answers)
    assert found[: len(expected)] == expected


def test_dones_beside_terminals_are_time_limits_and_alone_they_are_refused(tmp_path: Path) -> None:
    terminals = LAST & (np.arange(COUNT) < 10)
    expected = [(10, True, False)] + [(9, False, True)] * 3
    assert lengths(flat(tmp_path, terminals=terminals, dones=LAST)) == expected
    assert lengths(flat(tmp_path, dones=LAST, truncations=LAST & ~terminals)) == expected
    assert lengths(flat(tmp_path, dones=LAST), max_episode_steps=10) == [(9, False, True)] * 4
    assert lengths(flat(tmp_path, dones=LAST), timeouts="none") == [(10, True, False)] * 4
    for arrays in ({"dones": LAST}, {"terminals": terminals, "dones": terminals}):
        with pytest.raises(AmbiguousDataError, match=r"timeouts= .* or 'none'\), max_episode_steps= or episode="):
            open_dataset(flat(tmp_path, **arrays))
    with pytest.raises(DatasetError, match="terminals is true where dones is not"):
        open_dataset(flat(tmp_path, terminals=LAST, dones=terminals))


def test_dones_beside_terminals_and_time_limits_mark_further_ends(tmp_path: Path) -> None:
    terminals = LAST & (np.arange(COUNT) < 10)
    path = flat(tmp_path, terminals=terminals, timeouts=NONE, dones=LAST)
    assert lengths(path) == [(10, True, False)] + [(9, False, True)] * 3


def test_arrays_that_are_not_of_steps_or_tell_of_success_are_no_flags(tmp_path: Path) -> None:
    starts = np.arange(COUNT) % 10 == 0
    # As in the files of stable-baselines3, with one return for each episode.
    path = flat(tmp_path, episode_starts=starts, episode_returns=np.full(4, 10.0), success=LAST)
    assert lengths(path) == [(9, False, False)] * 4
    path = flat(tmp_path, episode_starts=starts, crashed=LAST)
    with pytest.raises(AmbiguousDataError, match=r"; crashed may be flags, .* or ends= \(terminated, truncated, unkn"):
        open_dataset(path)


@pytest.mark.parametrize("known", [{"timeouts": LAST}, {}])
def test_where_time_limits_are_known_only_terminations_are_asked_for(known: Any, tmp_path: Path) -> None:
    path, answers = flat(tmp_path, **known), {} if known else {"max_episode_steps": 10}
    with pytest.raises(AmbiguousDataError, match=r"terminals=\.\.\.\), or say ends='truncated' .* or --ends\)$"):
        open_dataset(path, **answers)
    assert lengths(path, ends="truncated", **answers) == [(9, False, True)] * 4
    with pytest.raises(AmbiguousDataError, match=r"; answer by timeouts= "):
        open_dataset(flat(tmp_path))


def test_two_names_of_one_flag_are_refused(tmp_path: Path) -> None:
    path = flat(tmp_path, terminals=LAST, terminated=NONE, timeouts=NONE)
    with pytest.raises(AmbiguousDataError, match="terminals and terminated, which both may be its terminals"):
        open_dataset(path)


@pytest.mark.parametrize("name", ["terminals", "timeouts"])
@pytest.mark.parametrize("value", [np.nan, 2.0, -1.0])
def test_a_flag_that_is_neither_0_nor_1_is_refused(name: str, value: float, tmp_path: Path) -> None:
    flags = {"terminals": LAST * 1.0, "timeouts": NONE * 1.0}
    flags[name][4] = value
    with pytest.raises(DatasetError, match=rf"{name} is {value} in row 4, where a flag must be 0 or 1"):
        open_dataset(flat(tmp_path, **flags))


def test_ends_are_refused_where_an_array_says_how_episodes_ended(tmp_path: Path) -> None:
    path = flat(tmp_path, terminals=LAST, timeouts=NONE)
    with pytest.raises(DatasetError, match="says by terminals how episodes ended, so ends= does not apply"):
        open_dataset(path, ends="truncated")


def test_rows_of_an_episode_that_are_apart_are_refused(tmp_path: Path) -> None:
    path = flat(tmp_path, episode=np.arange(COUNT) % 2)
    with pytest.raises(
        DatasetError, match="episode is 0 again in row 2, after rows of other episodes; sort the rows by episode"
    ):
        open_dataset(path)


def test_texts_number_episodes_and_are_refused_as_numbers_with_a_way_out(tmp_path: Path) -> None:
    names = np.array([f"run {number // 10}" for number in range(COUNT)])
    columns = {"obs": np.arange(COUNT) / 3, "action": np.zeros(COUNT), "reward": np.ones(COUNT), "episode_id": names}
    parquet(tmp_path / "some.parquet", columns)
    assert [length for length, *_ in lengths(tmp_path / "some.parquet")] == [9] * 4
    for key, way_out in (
        ("observations", r"table\['number'\] = table\['episode_id'\]\.map\({'run 0': 0, \.\.\.}\)"),
        ("terminals", r"table\['terminals'\] = table\['episode_id'\]\.isin\(\['run 0', \.\.\.\]\)\.astype\(int\)"),
    ):
        given = {"observations": "obs", "actions": "action", "rewards": "reward", key: "episode_id"}
        with pytest.raises(DatasetError, match=rf"episode_id is text \('run 0', .*\), and {key} must be .*{way_out}"):
            open_dataset(tmp_path / "some.parquet", names=FlatNames(**given))


def test_actions_below_0_are_refused_until_their_first_number_is_given(tmp_path: Path) -> None:
    actions = np.arange(COUNT) % 3 - 1
    path = flat(tmp_path, actions=actions, terminals=LAST, timeouts=NONE)
    with pytest.raises(AmbiguousDataError, match=r"has the action -1; .* first_action=-1"):
        open_dataset(path)
    first = next(iter(open_dataset(path, first_action=-1)))
    assert first.fields[ACT][:4, 0].tolist() == [0, 1, 2, 0]
    first = next(iter(open_dataset(path, first_action=0)))
    assert first.fields[ACT][:4, 0].tolist() == [-1, 0, 1, -1]
    with pytest.raises(DatasetError, match="has the action -1, less than first_action=1"):
        open_dataset(path, first_action=1)


def test_a_file_without_rewards_is_read_where_the_user_says_so(tmp_path: Path) -> None:
    path = flat(tmp_path, rewards=None, terminals=LAST, timeouts=NONE)
    with pytest.raises(AmbiguousDataError, match=r"no array of a known name for rewards; .* rewards='none'"):
        open_dataset(path)
    assert [one.fields[REW].sum() for one in open_dataset(path, rewards="none")] == [0] * 4


def test_parts_of_observations_are_left_out(tmp_path: Path) -> None:
    columns = {"observation.pose": np.zeros((COUNT, 2)), "observation.seed": np.ones(COUNT), "action": np.zeros(COUNT)}
    parquet(tmp_path / "some.parquet", columns | {"reward": np.ones(COUNT), "episode": np.arange(COUNT) // 10})
    path = tmp_path / "some.parquet"
    assert sorted(next(iter(open_dataset(path))).observations) == ["pose", "seed"]
    assert sorted(next(iter(open_dataset(path, leave_out=["seed"]))).observations) == ["pose"]
    with pytest.raises(DatasetError, match="has no part colour to leave out; it has pose, seed"):
        open_dataset(path, leave_out=["colour"])


def test_columns_are_joined_in_the_order_of_their_names_or_numbers(tmp_path: Path) -> None:
    columns = {
        "obs_1": np.full(COUNT, 1.5),
        "obs_0": np.zeros(COUNT),
        "v": np.full(COUNT, 2.5),
        "force": np.ones(COUNT),
    }
    path = tmp_path / "some.parquet"
    parquet(path, columns | {"r": np.ones(COUNT), "episode": np.arange(COUNT) // 10})
    names = FlatNames("v,obs_1,obs_0", "force", "r", episode="episode")
    assert np.asarray(next(iter(open_dataset(path, names=names))).observations)[0].tolist() == [2.5, 1.5, 0]
    names = FlatNames("obs", "force", "r", episode="episode")
    assert np.asarray(next(iter(open_dataset(path, names=names))).observations)[0].tolist() == [0, 1.5]
    with pytest.raises(DatasetError, match="lacks w; it has"):
        open_dataset(path, names=FlatNames("v,w", "force", "r", episode="episode"))


def test_missing_values_of_a_table_are_named(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text("obs,action,reward,episode\n1.5,0,1,0\n,0,1,0\n")
    with pytest.raises(DatasetError, match="obs has 1 missing values, the first in row 1"):
        list(open_dataset(path))


def test_an_answer_that_a_format_does_not_ask_for_is_refused(tmp_path: Path) -> None:
    from storages.datasets import write_dataset
    from tests.support.episodes import some

    write_dataset(tmp_path / "ours.npz", some())
    write_dataset(tmp_path / "minari", some())
    for name in ("ours.npz", "minari"):
        with pytest.raises(DatasetError, match=r"to which timeouts= does not apply; leave it out"):
            open_dataset(tmp_path / name, timeouts="none")


def test_a_table_with_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("obs,action,reward,reward\n1.5,0,1,0\n")
    with pytest.raises(DatasetError, match=r"some\.csv has several columns of one name: obs, action, reward, reward"):
        open_dataset(tmp_path / "some.csv")


@pytest.mark.parametrize("weeks", [1, 2, 3])
def test_terminations_stay_as_frequent_at_each_step_where_last_steps_are_left_out(weeks: int, tmp_path: Path) -> None:
    random, risk = np.random.default_rng(weeks), 0.2
    rows = [
        (episode, step, step + 1 == length and has_ended)
        for episode in range(400)
        for length, has_ended in [next(((t + 1, True) for t in range(weeks) if random.random() < risk), (weeks, False))]
        for step in range(length)
    ]
    numbers, steps, ended = map(np.array, zip(*rows, strict=True))
    arrays = {"observations": steps[:, None] / 2, "actions": np.zeros(len(rows)), "rewards": np.ones(len(rows))}
    np.savez(tmp_path / "some.npz", **arrays, episode=numbers, terminals=ended)
    data = open_dataset(tmp_path / "some.npz")
    read = [(step, one.terminated and step + 1 == len(one)) for one in data for step in range(len(one))]
    for number in range(weeks):
        of_file, of_data = ended[steps == number], [last for step, last in read if step == number]
        # All steps of the last week are left out: the others of that week would be terminations alone.
        assert of_data == [] if number == weeks - 1 else np.mean(of_data) == np.mean(of_file)
    assert sum(map(len, data)) == data.steps == (steps < weeks - 1).sum()


def test_of_recordings_of_different_lengths_a_share_of_terminal_steps_is_left_out(tmp_path: Path) -> None:
    # At step 0, 20 episodes terminate, 30 are cut, and 50 go on to a terminal second step.
    lengths_, ended = np.repeat([1, 1, 2], [20, 30, 50]), np.repeat([True, False, True], [20, 30, 50])
    last = np.repeat(np.cumsum(lengths_) - 1, lengths_) == np.arange(lengths_.sum())
    arrays = {"observations": np.zeros((150, 1)), "actions": np.zeros(150), "rewards": np.ones(150)}
    number = np.repeat(np.arange(100), lengths_)
    np.savez(tmp_path / "some.npz", **arrays, episode=number, terminals=last & ended[number])
    data = open_dataset(tmp_path / "some.npz")
    read = [len(one) for one in data]
    # 30 of the 80 others are left out, so 7.5 of the 20 are, which is rounded down.
    assert (read.count(1), read.count(2)) == (13, 50)
    assert all(one.terminated for one in data)


def test_texts_of_episodes_are_named_where_rows_are_apart_or_without_one(tmp_path: Path) -> None:
    columns = {"obs": np.arange(6) / 3, "action": np.zeros(6), "reward": np.ones(6)}
    for texts, message in (
        (["A", "A", "B", "A", "C", "C"], "customer is 'A' again in row 3, after rows of other episodes"),
        (["A", "A", "", "A", "C", "C"], "customer is empty in row 2; fill in of which episode the row is"),
        (["A", "A", "C", "C", "C", ""], "customer is empty in row 5; fill in"),
    ):
        csv(tmp_path / "some.csv", columns | {"customer": np.array(texts)})
        with pytest.raises(DatasetError, match=message):
            open_dataset(tmp_path / "some.csv", episode="customer", rewards="reward")


def test_an_episode_is_cut_where_a_step_is_missing_and_refused_where_steps_go_back(tmp_path: Path) -> None:
    weeks = np.array([0, 7, 14, 28, 35, 3, 10])
    arrays = {"o": np.arange(7) / 3, "a": np.zeros(7), "r": np.ones(7), "run": [0] * 5 + [1] * 2}
    arrays["end"] = [0, 0, 0, 0, 1, 0, 0]
    names = FlatNames("o", "a", "r", terminals="end", episode="run", step="day")
    np.savez(tmp_path / "some.npz", **arrays, day=weeks)
    assert lengths(tmp_path / "some.npz", names=names) == [(2, False, True), (2, True, False), (1, False, False)]
    weeks[2] = 5
    np.savez(tmp_path / "some.npz", **arrays, day=weeks)
    with pytest.raises(DatasetError, match="day is 5 in row 2, after 7 in the same episode; sort the rows of each"):
        open_dataset(tmp_path / "some.npz", names=names)


def test_terminal_steps_of_groups_of_episodes_are_left_out_as_often_as_others(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    arrays: dict[str, Any] = {}
    for number in range(30):
        ended = number % 2 == 0
        of_group = {"obs": np.zeros((3, 2)), "actions": np.zeros((3, 1), "i8"), "rewards": np.ones(3)}
        of_group |= {"terminated": np.array([0, 0, ended]), "truncated": np.array([0, 0, not ended])}
        arrays |= {f"demo_{number}/{name}": array for name, array in of_group.items()}
    hdf5(tmp_path / "some.hdf5", arrays)
    assert lengths(tmp_path / "some.hdf5") == [(2, False, True)] * 30
