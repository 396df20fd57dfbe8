"""``python -m pytorchrl data``: its output, the files that it writes, and its error messages."""

import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.table import DATA_COMMANDS
from pytorchrl.experiments import collect_demonstrations
from storages import Episode
from storages.datasets import FORMATS, episodes_of, fill, open_dataset, return_of, write_dataset
from storages.transition import ACT, ACTPROBS, REW
from tests.support.compositions import dqn_scheme
from tests.support.layouts import LAYOUTS, check_read
from tests.support.toys import Counter


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "data", *map(str, arguments)])
        main()
        return capsys.readouterr().out

    return run


def write_counter_data(path: Path, episodes: int = 3, length: int = 4) -> Path:
    """Write episodes with a return of 10 each."""
    envs = prl.VecEnv.create_factory(Counter, env_kwargs={"length": length})
    collect_demonstrations(lambda observations: np.zeros((1, 1), np.int64), envs, path=path, episodes=episodes)
    return path


def write_one_step_episodes(path: Path, *returns: float) -> Path:
    """Write episodes of one step, with the given returns."""
    observations = np.zeros((2, 3), np.float32)
    write_dataset(
        path,
        [Episode(observations, {ACT: np.zeros((1, 1), np.int64), REW: np.array([[r]])}, False, True) for r in returns],
    )
    return path


def test_ls_lists_data_sets_and_storages_below_a_folder(command: Any, tmp_path: Path) -> None:
    write_counter_data(tmp_path / "some" / "counted.npz")
    storage = prl.ReplayBuffer.create_factory(size=50, directory=tmp_path / "kept")("cpu", None, None, None)
    fill(storage, open_dataset(tmp_path / "some" / "counted.npz"))
    storage.close()
    (tmp_path / "broken.npz").write_text("nothing")
    lines = command("ls", tmp_path).splitlines()
    rows = {name: next(line.split() for line in lines if name in line) for name in ("counted", "kept", "broken")}
    assert rows["counted"][3:8] == ["npz", "│", "3", "│", "12"]
    assert rows["kept"][3:8] == ["storage", "│", "3", "│", "12"]
    assert rows["broken"][3:6] == ["cannot", "be", "read:"]
    (tmp_path / "empty").mkdir()
    assert command("ls", tmp_path / "empty").startswith("There is no data set in ")


def test_show_prints_fields_and_episodes(command: Any, tmp_path: Path) -> None:
    printed = command("show", write_counter_data(tmp_path / "counted.npz"))
    for expected in ("float32", "int64", "float64", "Observation", "3 episodes of 12 transitions", "3 terminated"):
        assert expected in printed
    (returns,) = (line.split() for line in printed.splitlines() if "│ return" in line)
    assert returns[3] == "10"


@pytest.mark.parametrize("format_", FORMATS)
def test_convert_writes_every_format(command: Any, format_: str, tmp_path: Path) -> None:
    if format_ != "npz":
        pytest.importorskip("h5py" if format_ == "minari-hdf5" else "pyarrow")
    source = write_counter_data(tmp_path / "counted.npz")
    output = tmp_path / ("out.npz" if format_ == "npz" else "out-v3")
    assert command("convert", source, output, "--format", format_) == (
        f"{output}: 3 episodes, 12 transitions ({format_})\n"
    )
    one, two = open_dataset(source), open_dataset(output)
    for left, right in zip(one, two, strict=True):
        assert isinstance(left.observations, np.ndarray)
        np.testing.assert_array_equal(left.observations, right.observations)
    assert one.about.action_space == two.about.action_space
    assert two.about.dataset_id == (None if format_ == "npz" else "out-v3")


def test_convert_reads_flat_arrays_with_any_names(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "flat.npz"
    starts = np.array([1, 0, 0, 1, 0], bool)
    np.savez(path, o=np.zeros((5, 2)), a=np.zeros((5, 1)), r=np.ones(5), s=starts)
    names = ("--names", "observations", "o", "actions", "a", "rewards", "r", "episode_starts", "s")
    command("convert", path, tmp_path / "unknown.npz", *names)
    command("convert", path, tmp_path / "ended.npz", *names, "--ends", "terminated")
    lengths = [[len(one) for one in open_dataset(tmp_path / name)] for name in ("unknown.npz", "ended.npz")]
    assert lengths == [[2, 1], [3, 2]]
    assert "2 episodes of 3 transitions" in command("show", path, *names)


def options(answers: Mapping[str, Any]) -> list[str]:
    """Return the options of commands for arguments of `open_dataset`."""
    names = [word for pair in answers.get("names", {}).items() for word in pair]
    others = {key: value for key, value in answers.items() if key != "names"}
    further = [word for key, value in others.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    return further + (["--names", *names] if names else [])


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_file_of_another_library_is_read_or_refused_with_the_answer(name: str, command: Any, tmp_path: Path) -> None:
    layout = LAYOUTS[name]
    for arguments, other_names in ((layout.needed, False), (layout.answers, True)):
        folder = tmp_path / str(other_names)
        path, output = layout.made(folder, other_names=other_names), folder / "converted.npz"
        if other_names:
            for read in (("convert", path, output), ("show", path)):
                with pytest.raises(SystemExit) as refused:
                    command(*read)
                assert [one for one in layout.named if one not in str(refused.value)] == []
            assert not output.exists()
        if arguments or not other_names:
            command("convert", path, output, *options(arguments))
            converted = open_dataset(output)
            check_read(converted, layout)
            assert f"2 episodes of {converted.steps} transitions" in command("show", path, *options(arguments))


def test_a_log_of_unknown_names_is_converted_with_the_names_of_its_columns(command: Any, tmp_path: Path) -> None:
    path, output = tmp_path / "log.csv", tmp_path / "log.npz"
    rows = [f"{t / 9},{t / 3},{t % 2},1,{t // 5},{int(t == 4)}" for t in range(10)]
    path.write_text("\n".join(["x,v,push,paid,run,fell", *rows]))
    for arguments in (("convert", path, output), ("show", path), ("prune", path, output, "--max-episodes", "1")):
        with pytest.raises(SystemExit, match=r"arrays of unknown names, x, v, push, paid, run, fell; .*or --names in"):
            command(*arguments)
    names = ("--names", "observations", "x,v", "actions", "push", "rewards", "paid", "terminals", "fell")
    with pytest.raises(
        SystemExit, match=r"it has fell, and neither time limits nor next .*in commands --timeouts, --max"
    ):
        command("convert", path, output, *names)
    command("convert", path, output, *names, "--episode", "run")
    first, second = open_dataset(output)
    assert (len(first), first.terminated, len(second), second.terminated) == (5, True, 4, False)
    assert np.asarray(first.observations).shape == (6, 2)
    command("convert", path, tmp_path / "limited.npz", *names, "--max-episode-steps", "3")
    assert [len(one) for one in open_dataset(tmp_path / "limited.npz")] == [2, 2, 2, 1]
    command("convert", path, tmp_path / "paid.npz", *names, "--timeouts", "none", "--rewards", "none")
    assert [return_of(one) for one in open_dataset(tmp_path / "paid.npz")] == [0, 0]


def test_a_table_keeps_its_logged_probabilities_and_says_what_it_does_not_use(command: Any, tmp_path: Path) -> None:
    path, output = tmp_path / "ward.csv", tmp_path / "ward.npz"
    rows = [
        f"{t},{('low', 'none')[t % 2]},0.25,0.75,1,{t // 5},{int(t == 4)},ward {t},2025-01-0{t % 9 + 1}"
        for t in range(10)
    ]
    path.write_text("\n".join(["pressure,dose,p_low,p_none,paid,stay,ended,place,day", *rows]))
    names = ["observations", "pressure", "actions", "dose", "rewards", "paid", "terminals", "ended"]
    printed = command("convert", path, output, "--episode", "stay", "--names", *names, "probabilities", "p_low,p_none")
    assert "The actions have the numbers 0 low, 1 none" in printed
    assert "Not used: place, day" in printed
    converted = open_dataset(output)
    first = next(iter(converted))
    assert first.fields[ACT][:2].tolist() == [[0], [1]]
    assert first.fields[ACTPROBS].tolist() == [[0.25, 0.75]] * 5
    assert "0 low, 1 none" in command("show", output)
    printed = command("convert", path, tmp_path / "other.npz", "--episode", "stay", "--names", *names)
    assert "Not used: p_low, p_none, place, day" in printed


def test_convert_and_show_say_what_of_a_table_may_be_wrong(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "contacts.csv"
    rows = [
        f"C{customer},{week},{week / 3},{('call', 'mail')[(customer + week) % 2]},1,{int(week == 2 and customer < 20)}"
        for customer in range(80)
        for week in range(3)
        if (customer, week) != (70, 1)
    ]
    rows[55] = rows[55].replace("call", "clal").replace("mail", "clal")
    path.write_text("\n".join(["customer,week,seen,contact,paid,left", *rows]))
    names = ["--episode", "customer", "--names", "observations", "seen", "actions", "contact", "rewards", "paid"]
    names += ["terminals", "left", "step", "week"]
    printed = command("convert", path, tmp_path / "contacts.npz", *names)
    assert "Warning: the action 'clal' occurs once, first in row 55, and counts as one of 3. If it is a" in printed
    assert "Cut: 1 episode where steps are missing" in printed
    # 80 customers, one of whom is cut into two.
    assert "the last steps of 61 episodes that did not terminate" in printed
    assert "and of 20 of the 20 that terminated" in printed
    printed = command("show", tmp_path / "contacts.npz")
    assert "Warning: All episodes return 2." in printed
    with pytest.raises(SystemExit, match="contact is 'clal' in row 55, which is none of the actions call, mail; corr"):
        command("convert", path, tmp_path / "other.npz", *names, "--action-names", "call", "mail")


def test_convert_warns_where_nothing_says_how_episodes_ended(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "contacts.csv"
    path.write_text("\n".join(["customer,seen,contact,paid,left", *(f"C{t // 3},{t},call,1,0" for t in range(12))]))
    names = ["--episode", "customer", "--names", "observations", "seen", "actions", "contact", "rewards", "paid"]
    printed = command("convert", path, tmp_path / "one.npz", *names)
    assert "Warning: nothing says how 4 of 4 episodes ended, so that values go on after their last steps." in printed
    assert "--names ... terminals COLUMN" in printed
    for number, known in enumerate((["--ends", "truncated"], ["terminals", "left"])):
        assert "nothing says" not in command("convert", path, tmp_path / f"known-{number}.npz", *names, *known)


def test_probabilities_in_percent_are_refused_before_anything_is_written(command: Any, tmp_path: Path) -> None:
    path, output = tmp_path / "contacts.csv", tmp_path / "contacts.npz"
    path.write_text("\n".join(["customer,seen,contact,paid,left,p", *(f"C{t},{t},call,1,1,39.4" for t in range(4))]))
    names = ["--episode", "customer", "--names", "observations", "seen", "actions", "contact", "rewards", "paid"]
    with pytest.raises(SystemExit, match=r"ActionProbs gives the action taken the probability 39\.4 in row 0"):
        command("convert", path, output, *names, "terminals", "left", "probabilities", "p")
    assert not output.exists()


def test_actions_outside_of_their_space_are_drawn_with_a_warning(command: Any, tmp_path: Path) -> None:
    fields = {ACT: np.array([[0], [-1], [7]]), REW: np.arange(3.0)[:, None]}
    write_dataset(tmp_path / "some.npz", [Episode(np.random.default_rng(0).normal(size=(4, 2)), fields, True, False)])
    arrays = dict(np.load(tmp_path / "some.npz"))
    about = {"action_space": {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}}
    arrays["About"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(tmp_path / "other.npz", **arrays)
    printed = command("show", tmp_path / "other.npz", "-o", tmp_path / "other.png")
    assert "Warning: 66.7% of the actions are none of the 3 of their space, counted from 0." in printed
    assert (tmp_path / "other.png").is_file()


def test_commands_without_answers_name_the_command_that_takes_them(command: Any, tmp_path: Path) -> None:
    path = LAYOUTS["D4RL"].made(tmp_path, other_names=True)
    with pytest.raises(
        SystemExit, match=r"cut_done may be flags.* python -m pytorchrl data convert \S+d4rl.hdf5 d4rl-conv"
    ):
        command("split", path, "--train", tmp_path / "a.npz", "--validation", tmp_path / "b.npz")


def test_show_names_arrays_that_look_like_flags_and_are_not_used(command: Any, tmp_path: Path) -> None:
    arrays = {"observations": np.zeros((4, 2)), "actions": np.zeros((4, 1)), "rewards": np.ones(4)}
    flags = {"terminals": np.zeros(4), "timeouts": np.array([0, 1, 0, 1]), "done_early": np.zeros(4)}
    np.savez(tmp_path / "some.npz", **arrays, **flags)
    assert "done_early" in next(
        line for line in command("show", tmp_path / "some.npz").splitlines() if "Not used" in line
    )


def test_merge_puts_data_sets_into_one(command: Any, tmp_path: Path) -> None:
    one, two = write_one_step_episodes(tmp_path / "one.npz", 1, 2), write_one_step_episodes(tmp_path / "two.npz", 3)
    assert "3 episodes, 3 transitions (npz)" in command("merge", one, two, "-o", tmp_path / "all.npz")
    assert [return_of(each) for each in open_dataset(tmp_path / "all.npz")] == [1, 2, 3]


def test_the_directory_of_an_episodic_buffer_is_read_as_a_data_set(command: Any, tmp_path: Path) -> None:
    storage = prl.PersistentEpisodicBuffer.create_factory(None, tmp_path / "kept")("cpu", None, None, None)
    fill(storage, open_dataset(write_counter_data(tmp_path / "counted.npz")))
    storage.close()
    (row,) = (line.split() for line in command("ls", tmp_path / "kept").splitlines() if "kept" in line)
    assert row[3:8] == ["episodes", "│", "3", "│", "12"]
    assert "3 episodes of 12 transitions" in command("show", tmp_path / "kept")
    command("convert", tmp_path / "kept", tmp_path / "copy.npz")
    command("merge", tmp_path / "kept", tmp_path / "copy.npz", "-o", tmp_path / "all.npz")
    assert [return_of(each) for each in open_dataset(tmp_path / "all.npz")] == [10] * 6


def test_prune_keeps_the_episodes_with_the_highest_returns(command: Any, tmp_path: Path) -> None:
    source = write_one_step_episodes(tmp_path / "paid.npz", 4, 1, 7, 2, 7)
    for name, arguments, expected in (
        ("a", ("--min-return", "3"), [4, 7, 7]),
        ("b", ("--max-episodes", "2"), [7, 7]),
        ("c", ("--max-episodes", "4", "--min-return", "2"), [4, 7, 2, 7]),
    ):
        command("prune", source, tmp_path / f"{name}.npz", *arguments)
        assert [return_of(each) for each in open_dataset(tmp_path / f"{name}.npz")] == expected


def test_prune_keeps_a_range_of_returns_or_a_share_of_episodes(command: Any, tmp_path: Path) -> None:
    source = write_one_step_episodes(tmp_path / "paid.npz", 4, 1, 7, 2, 9, 3)
    for name, arguments, expected in (
        ("range", ("--min-return", "2", "--max-return", "4"), [4, 2, 3]),
        ("best", ("--best-share", "0.5"), [4, 7, 9]),
    ):
        command("prune", source, tmp_path / f"{name}.npz", *arguments)
        assert [return_of(each) for each in open_dataset(tmp_path / f"{name}.npz")] == expected
    drawn = []
    for seed in (0, 0, 1):
        output = tmp_path / f"drawn-{len(drawn)}.npz"
        command("prune", source, output, "--random-share", "0.5", "--seed", str(seed))
        drawn.append([return_of(each) for each in open_dataset(output)])
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 3
    assert drawn[0] != drawn[2]


def test_split_divides_a_data_set_in_two(command: Any, tmp_path: Path) -> None:
    source = write_one_step_episodes(tmp_path / "paid.npz", *range(10))
    train, validation = tmp_path / "train.npz", tmp_path / "validation.npz"
    printed = command("split", source, "--train", train, "--validation", validation, "--validation-share", "0.3")
    assert "7 episodes" in printed
    assert "3 episodes" in printed
    parts = [{return_of(each) for each in open_dataset(path)} for path in (train, validation)]
    assert parts[0] | parts[1] == set(range(10))
    assert not parts[0] & parts[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "nowhere.npz"), "error: nowhere.npz does not exist"),
        (("ls", "nowhere"), "error: nowhere does not exist"),
        (("convert", "paid.npz", "paid.npz"), "error: paid.npz exists already; name another path, or delete it"),
        (("convert", "paid.npz", "x", "--format", "arrow"), "error: format must be one of minari-hdf5, minari-arrow"),
        (("show", "paid.npz", "--names", "colour", "c"), "error: --names: unknown colour; choose from actions, epi"),
        (("merge", "-o", "x.npz"), "error: merge: name the data sets to be merged"),
        (("prune", "paid.npz", "x.npz"), "error: prune: say what to leave out"),
        (("prune", "paid.npz", "x.npz", "--max-episodes", "0"), "error: --max-episodes must be at least 1, got 0"),
        (("prune", "paid.npz", "x.npz", "--best-share", "2"), "error: SelectEpisodes: best_share"),
        (
            ("prune", "paid.npz", "x.npz", "--successes"),
            "error: paid.npz: selecting successes needs episodes that record whether",
        ),
        (("split", "paid.npz", "--train", "x.npz", "--validation", "x.npz"), "error: split: --train and --validation"),
        (
            ("make", "--env", "CartPole-v1", "--kind", "random", "--seed", "-1"),
            "error: --seed must be at least 0, got -1",
        ),
        (("make", "--env", "CartPole-v1", "--kind", "random", "-o", "paid.npz"), "error: paid.npz exists already"),
        (("make", "--env", "CartPole-v1", "--kind", "expert", "--algorithm", "ppo"), "error: data make: PPO does not"),
        (
            ("prune", "paid.npz", "x.npz", "--min-return", "9"),
            "error: prune: the selection keeps none of the 2 episodes of paid.npz; the best return is 4",
        ),
    ],
)
def test_an_error_is_reported_in_one_line_and_writes_no_files(
    arguments: tuple[str, ...], message: str, command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_one_step_episodes(tmp_path / "paid.npz", 4, 1)
    with pytest.raises(SystemExit) as stopped:
        command(*arguments)
    assert str(stopped.value).startswith(message)
    assert "\n" not in str(stopped.value)
    assert [path.name for path in tmp_path.iterdir()] == ["paid.npz"]


def test_collect_records_the_agent_of_a_run(command: Any, tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    learner.run()
    learner.close()
    command("ls", tmp_path)
    output = tmp_path / "data.npz"
    assert command("collect", tmp_path / "run", output, "--episodes", "2").startswith(f"{output}: 2 episodes, ")
    command("collect", tmp_path / "run", tmp_path / "explored.npz", "--steps", "20", "--seed", "3", "--explore")
    explored = open_dataset(tmp_path / "explored.npz")
    assert explored.steps == 20
    assert explored.about.algorithm_name == "DQN"


def test_the_storage_of_a_run_is_converted_to_a_data_set(command: Any, tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(), 100, tmp_path / "run")
    learner.run()
    learner.close()
    assert "100 transitions" in command("convert", tmp_path / "run", tmp_path / "held.npz")
    whole = [len(one) for one in open_dataset(tmp_path / "held.npz") if one.terminated]
    assert whole == [len(one) for one in episodes_of(learner.scheme.storage, whole=True)]
    assert "of 100 transitions" in command("show", tmp_path / "run" / "checkpoint.pt")


def test_show_reads_the_storage_of_a_run_on_disk(command: Any, tmp_path: Path) -> None:
    storage = prl.ReplayBuffer.create_factory(size=100, directory=str(tmp_path / "kept"))
    learner = prl.Learner(dqn_scheme(storage=storage), 100, tmp_path / "run")
    learner.run()
    learner.close()
    for path in (tmp_path / "run", tmp_path / "kept"):
        assert "of 100 transitions" in command("show", path)


@pytest.mark.parametrize("name", DATA_COMMANDS)
def test_every_command_and_every_option_has_a_help_text(
    name: str, command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command(name, "--help")
    printed = " ".join(capsys.readouterr().out.split())
    described = inspect.getdoc(DATA_COMMANDS[name].function) or ""
    assert described.splitlines()[0] in printed
    for parameter in inspect.signature(DATA_COMMANDS[name].function).parameters:
        (text,) = (line.split(": ")[1] for line in described.splitlines() if line.startswith(f"    {parameter}: "))
        assert text.split()[0] in printed, f"{parameter} has no text"
