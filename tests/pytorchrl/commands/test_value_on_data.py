"""``evaluate --data``: the values of policy and data, and what follows from them."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.evaluation.on_data import conclusions
from pytorchrl.experiments.policies.importance_sampling import ImportanceEstimates
from pytorchrl.experiments.policies.policy_export import metadata_of
from pytorchrl.experiments.policies.value_from_data import Closeness, ValueFromData
from pytorchrl.logging.bootstrap import Estimate
from storages.datasets import open_dataset, write_dataset
from tests.support.data_sets import recorded

QUICK = ("--fits", "2", "--updates", "8")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> str:
        monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", *map(str, arguments)])
        main()
        return " ".join(capsys.readouterr().out.split())

    return run


def trained(command: Any, algorithm: str, data: Path, *further: str) -> str:
    small = ("--actor.hidden-sizes", "8", "--algorithm.mini-batch-size", "8", "--steps", "3")
    command("train", "--algorithm", algorithm, "--data", data, *small, *further, "--log-dir", "runs/one")
    return "runs/one/seed-1"


@pytest.mark.long
def test_a_run_is_evaluated_on_the_episodes_that_it_held_out(command: Any, tmp_path: Path) -> None:
    data = recorded(tmp_path / "balanced.npz", steps=200)
    run = trained(command, "discrete-bcq", data, "--select", 'SelectEpisodes(part="train", validation_share=0.4)')
    printed = command("evaluate", run, "--data", data, *QUICK)
    assert "on 4 episodes of" in printed
    assert 'part="validation"' in printed or "part='validation'" in printed
    assert "of them take about" in printed
    for name in ("policy, fitted Q evaluation", "data, their own policy", "policy - data", "effective episodes"):
        assert name in printed
    assert "return discounted by 0.99 a step" in printed
    assert "probabilities of a clone of the data" in printed
    assert re.search(r"\d+% of the data's actions are the policy's; random ones: 50%", printed)
    assert "learnt from these episodes" not in printed
    on_all = command("evaluate", run, "--data", data, *QUICK, "--select", "SelectEpisodes(max_episodes=6)")
    assert "on 6 episodes of" in on_all
    assert "The run learnt from these episodes, which makes the policy's value too high. Hold some out" in on_all


def test_saved_policies_are_evaluated_with_random_actions_and_written_to_a_file(command: Any, tmp_path: Path) -> None:
    data = recorded(tmp_path / "balanced.npz", steps=200)
    run = trained(command, "discrete-bcq", data, "--callbacks", "SavePolicies(every=2)")
    file = f"{run}/policies/steps-000000002.pt"
    printed = command("evaluate", file, "--data", data, *QUICK, "--epsilon", "0.5", "--output", "values.csv")
    assert f"{file}, random actions with probability 0.5 on" in printed
    assert "The run learnt from these episodes" in printed
    header, *rows = Path("values.csv").read_text().splitlines()
    assert header == "estimate,value,low,high,gamma"
    assert "policy - data" in [row.split(",")[0] for row in rows] or "diverged" in printed
    command("evaluate", run, "--data", data, *QUICK, "-o", "values.png")
    assert Path("values.png").stat().st_size > 5_000


def test_continuous_actions_have_no_importance_weighted_estimates(command: Any, tmp_path: Path) -> None:
    data = recorded(tmp_path / "damped.npz", "Pendulum-v1", 60)
    printed = command("evaluate", trained(command, "td3bc", data), "--data", data, *QUICK)
    assert "policy, fitted Q evaluation" in printed
    assert "effective episodes" not in printed
    assert re.search(r"[\d.]+% of their range away from the data's, root mean square; random ones: [\d.]+%", printed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--explore",), "--data evaluates the greedy actions, which load_policy takes; leave out --explore"),
        (("--epsilon", "0.1"), "random actions are evaluated for Discrete spaces, and this one is Box"),
        (("--output", "values.txt"), "its name must end in .png, .svg, .pdf or .csv, got 'values.txt'"),
        (("--select", "7"), r"--select must be a SelectEpisodes\(...\), such as .*, got '7'"),
        (("--fits", "0"), "--fits must be at least 1, got 0"),
        (("--fits", "1"), "at least two episodes and two fits, got 3 and 1"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(
    options: tuple[str, ...], message: str, command: Any, tmp_path: Path
) -> None:
    data = recorded(tmp_path / "damped.npz", "Pendulum-v1", 60)
    run = trained(command, "td3bc", data)
    with pytest.raises(SystemExit, match=message):
        command("evaluate", run, "--data", data, "--updates", "2", *options)


FOUND = ValueFromData(
    policy=Estimate(10.0, 9.0, 11.0),
    behaviour=Estimate(7.0, 6.5, 7.5),
    difference=Estimate(3.0, 1.0, 5.0),
    clone=Estimate(7.5, 6.0, 9.0),
    gain=Estimate(2.5, 1.5, 3.5),
    behaviour_return=Estimate(8.0, 7.0, 9.0),
    importance=None,
    probabilities=None,
    closeness=Closeness(0.3, 0.5),
    last_change=0.1,
    possible=(-5.0, 12.0),
    fits=11,
    fits_beyond=0,
    fits_of_clone_beyond=0,
    updates=1_000,
    episodes=50,
    steps=500,
    terminated=50,
    gamma=0.9,
    seconds=1.0,
)


@pytest.mark.parametrize(
    ("difference", "sentence"),
    [
        (Estimate(3.0, 1.0, 5.0), "higher than the data's by 3, and the interval of this difference lies above 0"),
        (Estimate(-3.0, -5.0, -1.0), "lower than the data's by 3, and the interval of this difference lies below 0"),
        (Estimate(3.0, -1.0, 7.0), "contains 0: these data do not tell whether the policy is better"),
    ],
)
def test_a_sentence_says_what_follows_from_the_difference(difference: Estimate, sentence: str) -> None:
    (said,) = conclusions(replace(FOUND, difference=difference), None, None)
    assert sentence in said


def test_a_better_value_is_doubted_where_nothing_keeps_the_policy_to_the_data() -> None:
    (said,) = conclusions(FOUND, None, None, "SAC")
    assert "nothing keeps SAC to the actions of data" in said
    assert "do not conclude that it is better" in said
    worse = replace(FOUND, difference=Estimate(-3.0, -5.0, -1.0))
    assert "do not conclude" not in " ".join(conclusions(worse, None, None, "SAC"))


def test_what_a_greedy_clone_of_the_data_gains_too_is_not_said_to_be_learnt() -> None:
    (said,) = conclusions(FOUND, None, None)
    assert said.endswith("It is better than a greedy clone of that policy by 2.5.")
    (said,) = conclusions(replace(FOUND, clone=Estimate(9.6, 8, 11), gain=Estimate(0.4, 0.1, 0.7)), None, None)
    assert "better than a greedy clone of that policy by 0.4: take that for what was learnt. The rest is the cl" in said
    (said,) = conclusions(replace(FOUND, clone=Estimate(9.9, 8, 11), gain=Estimate(0.1, -0.2, 0.4)), None, None)
    assert "greedy clone of the policy that made the data, which always takes its likeliest action, is 9.9" in said
    assert "do not conclude that anything was learnt" in said
    assert "by these data, it is better" not in said
    (said,) = conclusions(replace(FOUND, fits_of_clone_beyond=1, gain=Estimate(0.1, -0.2, 0.4)), None, None)
    assert "clone" not in said


def test_intervals_of_few_fits_are_called_rough() -> None:
    said = conclusions(replace(FOUND, fits=5), None, None)
    assert "Intervals of 4 resamples are rough" in said[1]


def test_sentences_say_what_makes_the_values_unsure() -> None:
    few = ImportanceEstimates(*[Estimate(1.0, 0.0, 2.0)] * 3, effective_episodes=2.5, followed=0.45)
    said = conclusions(replace(FOUND, last_change=-0.9, importance=few), None, None)
    assert (
        "over the last quarter of their updates, the value changed by -0.9. Raise --updates from 1,000 to 2,000."
        in said[1]
    )
    assert "these are worth 2.5 of" in said[2]
    assert "takes 45% of the data's actions" in said[2]


def test_short_episodes_make_the_difference_doubtful() -> None:
    said = conclusions(replace(FOUND, beyond_the_ends=0.8), None, None)
    assert "80% of the weight of discounted rewards lies after their ends, 10 steps on average" in said[1]
    assert len(conclusions(replace(FOUND, beyond_the_ends=0.4), None, None)) == 1


def test_data_with_other_names_of_actions_are_refused(command: Any, tmp_path: Path) -> None:
    data = recorded(tmp_path / "balanced.npz", steps=60)
    for file, names in (("learnt.npz", ["left", "right"]), ("later.npz", ["left", "rihgt"])):
        source = open_dataset(data)
        write_dataset(tmp_path / file, source, about=replace(source.about, further={"action_names": names}))
    run = trained(command, "discrete-bcq", tmp_path / "learnt.npz")
    assert prl.load_policy(run).action_names == ("left", "right")
    with pytest.raises(SystemExit, match=r"learnt the actions left, right, .* and .*later.npz have left, rihgt; write"):
        command("evaluate", run, "--data", tmp_path / "later.npz", *QUICK)
    with pytest.raises(SystemExit, match="the data of the new run have left, rihgt"):
        command("train", "--from", run, "--data", tmp_path / "later.npz", "--steps", "2")
    assert "fitted Q evaluation" in command("evaluate", run, "--data", data, *QUICK)
    policy = prl.load_policy(run)
    exported = metadata_of(policy.algorithm, policy.action_names)
    assert exported["action_names"] == ["left", "right"]


def test_the_parts_of_one_split_are_apart_and_those_of_others_are_not(command: Any, tmp_path: Path) -> None:
    data = recorded(tmp_path / "balanced.npz", steps=100)
    storage = prl.ReplayBuffer.create_factory(size=None)
    train = prl.SelectEpisodes(part="train", validation_share=0.2)
    learnt: Any = prl.from_dataset(storage, data, select=train)
    for chosen, sentences in (
        (replace(train, part="validation"), 1),
        (replace(train, part="validation", seed=4), 2),
        (train, 2),
        (None, 2),
    ):
        assert len(conclusions(FOUND, learnt, chosen)) == sentences, chosen
