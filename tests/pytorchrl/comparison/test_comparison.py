"""Comparison of groups of runs: statistics computed by hand, scores over several environments, and notes."""

import csv
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.comparison.latex import as_latex
from pytorchrl.comparison.profiles import performance_profile, thresholds
from pytorchrl.comparison.references import reference_of
from pytorchrl.comparison.tables import as_csv, as_markdown
from tests.support.rliable_module import rliable_module
from tests.support.run_folders import composition, evaluated_run, recorded_run

RETURNS = [(0, 1.0), (100, 2.0)]
FINALS = {"DQN": [10.0, 20.0, 30.0, 90.0], "PPO": [50.0, 60.0, 70.0, 80.0]}


def two_groups(folder: Path, env: str = "CartPole-v1", factor: float = 1.0) -> Path:
    for algorithm, finals in FINALS.items():
        for seed, final in enumerate(finals, start=1):
            # A return of 1, then the best one, then nine of 5, then the final one.
            returns = [(0, 1.0), (50, 100.0 * factor), *((100 + 10 * n, 5.0) for n in range(9)), (1000, final * factor)]
            evaluated_run(folder / f"{algorithm}-{env}-{seed}", returns, algorithm=algorithm, env=env, seed=seed)
    return folder


def test_statistics_of_groups_equal_those_computed_by_hand(tmp_path: Path) -> None:
    comparison = prl.compare_runs([two_groups(tmp_path)])
    dqn, ppo = comparison.results
    assert (dqn.name, dqn.environment, dqn.seeds) == ("DQN", "CartPole-v1", "4")
    # The interquartile mean of four values leaves out the smallest and the largest.
    assert (dqn.iqm.value, dqn.mean, dqn.median) == (25.0, 37.5, 25.0)
    # Of returns of 10, 20, 30 and 90.
    assert dqn.std == pytest.approx((3_875 / 3) ** 0.5)
    assert (dqn.final, dqn.best) == (37.5, 100.0)
    # Nine returns of 5, and the final one.
    assert dqn.last_ten == pytest.approx((9 * 5 + 37.5) / 10)
    assert (dqn.steps, dqn.seconds) == (1000, 100)
    assert 10 <= dqn.iqm.low < 25 < dqn.iqm.high <= 90
    assert [run.seed for run in ppo.runs] == [1, 2, 3, 4]
    assert (ppo.iqm.value, ppo.median) == (65.0, 65.0)
    assert comparison.baseline == "DQN"
    (better,) = comparison.improvements
    # PPO's returns of 50 to 80 are below DQN's 90 only: PPO loses 4 of 16 pairs.
    assert (better.name, better.probability.value, better.seeds) == ("PPO", 0.75, 4)
    assert better.conclusion == "open: 17 more seeds"
    assert (comparison.overall, comparison.references) == ((), ())


def test_the_last_ten_evaluations_can_be_the_score_beside_other_scores(tmp_path: Path) -> None:
    comparison = prl.compare_runs([two_groups(tmp_path)], score="last_ten", baseline="PPO")
    dqn = comparison.results[0]
    assert dqn.iqm.value == pytest.approx(((45 + 20) / 10 + (45 + 30) / 10) / 2)
    text = as_markdown(comparison)
    assert (
        "| group | seeds | last ten IQM | 95% interval | mean | std | median | final | best | steps | seconds |" in text
    )
    assert "Probability of improvement over PPO" in text
    assert "last ten" in as_markdown(prl.compare_runs([tmp_path]))


def test_runs_can_be_compared_after_equal_numbers_of_steps(tmp_path: Path) -> None:
    for algorithm, last in (("DQN", 100), ("PPO", 300)):
        for seed in (1, 2):
            returns = [(step, float(step + seed)) for step in range(100, last + 1, 100)]
            evaluated_run(tmp_path / f"{algorithm}-{seed}", returns, algorithm=algorithm, seed=seed)
    comparison = prl.compare_runs([tmp_path])
    unequal = "Runs in CartPole-v1 were trained for 100 to 300 steps; at_steps (--at-steps)"
    assert comparison.notes[0].startswith(unequal)
    assert comparison.answer.startswith(unequal)
    assert "PPO is ahead of DQN" in comparison.answer
    assert any("PPO: 2 of 2 runs in CartPole-v1 have not reached their target" in note for note in comparison.notes)
    equal = prl.compare_runs([tmp_path], at_steps=250)
    assert [result.final for result in equal.results] == [101.5, 201.5]
    assert [result.steps for result in equal.results] == [100, 200]
    assert not any("--at-steps" in text for text in (*equal.notes, equal.answer))
    # Those of PPO went on, though they were not measured at 250 steps.
    ended = [note for note in equal.notes if "ended before" in note]
    assert ended == ["DQN: 2 of 2 runs in CartPole-v1 ended before 250 steps, after 100."]
    assert not any("ended before" in note for note in prl.compare_runs([tmp_path], at_steps=104).notes)
    with pytest.raises(ValueError, match=r"first measured test/return after 100 steps; raise at_steps, got 50"):
        prl.compare_runs([tmp_path], at_steps=50)


def test_scores_of_several_environments_are_normalised_by_given_references(tmp_path: Path) -> None:
    two_groups(tmp_path, "A-v0")
    two_groups(tmp_path, "B-v0", factor=10.0)
    comparison = prl.compare_runs([tmp_path], references={"A-v0": (0, 100), "B-v0": (-1000, 1000)})
    assert comparison.environments == ["A-v0", "B-v0"]
    dqn, ppo = comparison.overall
    # DQN: 0.1, 0.2, 0.3, 0.9 and 0.55, 0.6, 0.65, 0.95, of which the two smallest and the two largest are left out.
    assert dqn.iqm.value == pytest.approx((0.3 + 0.55 + 0.6 + 0.65) / 4)
    assert dqn.mean == pytest.approx((1.5 / 4 + 2.75 / 4) / 2)
    assert dqn.best == pytest.approx(1.0)
    assert ppo.scores["B-v0"].tolist() == [0.75, 0.8, 0.85, 0.9]
    assert comparison.main == comparison.overall
    assert "A-v0: 0 is 0, and 100 is 1 (given)." in comparison.notes
    (better,) = comparison.improvements
    assert better.probability.value == 0.75
    # Two environments halve the variance.
    assert better.seeds_needed == 11


def test_an_environment_with_more_seeds_does_not_count_more_in_scores_over_all(tmp_path: Path) -> None:
    for env, seeds, final in (("A-v0", 20, 1.0), ("B-v0", 4, 0.0)):
        for seed in range(seeds):
            evaluated_run(tmp_path / f"{env}-{seed}", [(1000, final)], env=env, seed=seed)
    comparison = prl.compare_runs([tmp_path], references={"A-v0": (0, 1), "B-v0": (0, 1)})
    (dqn,) = comparison.overall
    assert (dqn.iqm.value, dqn.mean, dqn.median) == (0.5, 0.5, 0.5)
    assert (dqn.final, dqn.last_ten, dqn.best) == (0.5, 0.5, 0.5)


def test_default_references_are_known_values_or_the_range_of_returns_and_are_noted(tmp_path: Path) -> None:
    two_groups(tmp_path, "CartPole-v1")
    two_groups(tmp_path, "Mine-v0")
    comparison = prl.compare_runs([tmp_path])
    assert "CartPole-v1: 22.2 is 0, and 475 is 1 (random policy over 1,000 episodes, and gymnasium's reward " in (
        "\n".join(comparison.notes)
    )
    assert "Mine-v0: 10 is 0, and 90 is 1 (smallest and largest return of the compared runs)." in comparison.notes
    with pytest.raises(ValueError, match="references are given for Hopper-v5, which has no runs; the runs are in"):
        prl.compare_runs([tmp_path], references={"Hopper-v5": (0, 1)})
    with pytest.raises(ValueError, match="the first reference of Mine-v0 must be below the second, got 5 and 5"):
        prl.compare_runs([tmp_path], references={"Mine-v0": (5, 5)})


@pytest.mark.parametrize(
    ("returns", "reason"),
    [
        ((1.0,), r"must be two returns, normalised to 0 and to 1, got \(1.0,\)"),
        ((1.0, 2.0, 3.0), r"must be two returns, normalised to 0 and to 1, got \(1.0, 2.0, 3.0\)"),
        ((-math.inf, math.inf), "must be finite, got -inf and inf"),
    ],
)
def test_references_that_span_no_range_are_refused(tmp_path: Path, returns: tuple[float, ...], reason: str) -> None:
    two_groups(tmp_path, "Mine-v0")
    with pytest.raises(ValueError, match=f"the references of Mine-v0 {reason}"):
        prl.compare_runs([tmp_path], references={"Mine-v0": returns})


def test_a_comparison_of_no_groups_is_refused_with_how_to_give_some() -> None:
    with pytest.raises(
        ValueError, match=r"no group of runs to compare; give a list of runs, or lists by name: \{'mine'"
    ):
        prl.compare_runs({})


@pytest.mark.parametrize(
    ("env", "low", "high"),
    [
        ("ALE/Breakout-v5", 1.7, 30.5),
        ("BreakoutNoFrameskip-v4", 1.7, 30.5),
        ("ALE/Pong-v5(frameskip=1)", -20.7, 14.6),
        ("Hopper-v5", -20.272305, 3234.3),
        # Not the game of Atari.
        ("pytorchrl/Breakout-v0", 3.0, 7.0),
        ("MinAtar/Breakout-v1", 3.0, 7.0),
        # Not the robot of MuJoCo.
        ("my/Ant-v0", 3.0, 7.0),
        ("", 3.0, 7.0),
    ],
)
def test_versions_of_an_environment_share_its_references(env: str, low: float, high: float) -> None:
    reference = reference_of(env, {}, np.array([3.0, 7.0]))
    assert (reference.low, reference.high) == (low, high)


def test_equal_returns_of_an_unknown_environment_are_normalised_to_0() -> None:
    assert reference_of("Mine-v0", {}, np.full(3, 7.0)).normalised(np.full(3, 7.0)).tolist() == [0, 0, 0]


def test_a_group_without_runs_in_every_environment_has_no_overall_score(tmp_path: Path) -> None:
    two_groups(tmp_path, "A-v0")
    evaluated_run(tmp_path / "more", [(0, 1.0), (1000, 2.0)], algorithm="DQN", env="B-v0", seed=1)
    comparison = prl.compare_runs([tmp_path])
    assert [result.name for result in comparison.overall] == ["DQN"]
    assert "Left out of the scores in all environments, because they lack runs in some: PPO." in comparison.notes
    # There is a single run in B, so that its variance is unknown.
    assert not comparison.overall[0].iqm.has_interval
    assert math.isnan(comparison.of("B-v0")[0].iqm.low)


def test_a_second_run_with_the_same_seed_is_ignored(tmp_path: Path) -> None:
    for number, seed in enumerate((1, 2, 2)):
        evaluated_run(tmp_path / str(number), [(1000, float(number))], seed=seed)
    comparison = prl.compare_runs([tmp_path])
    assert [run.final for run in comparison.results[0].runs] == [0, 1]
    assert any("2 is ignored: " in note and "has the same composition and seed" in note for note in comparison.notes)


def test_an_id_and_a_class_of_the_same_observations_are_noted_as_perhaps_the_same(tmp_path: Path) -> None:
    spaces = {"observation": {"type": "Box", "shape": [5]}, "action": {"type": "Discrete", "n": 2}}
    for name, env in {"by-id": "House-v0", "by-class": {"callable": "House"}, "other": "CartPole-v1"}.items():
        own = spaces if name != "other" else {"observation": {"type": "Box", "shape": [4]}}
        evaluated_run(tmp_path / name, [(1000, 3.0)], env=env, spaces=own)
    (note,) = (one for one in prl.compare_runs([tmp_path]).notes if "named by an id and by a class" in one)
    assert "House-v0" in note.partition(" have the same observations")[0]
    assert "CartPole-v1" not in note
    apart = prl.compare_runs([tmp_path / "by-id", tmp_path / "other"])
    assert not any("named by an id" in one for one in apart.notes)


def test_notes_warn_of_intervals_from_few_seeds(tmp_path: Path) -> None:
    for seed in range(3):
        evaluated_run(tmp_path / str(seed), [(1000, float(seed))], seed=seed)
    notes = "\n".join(prl.compare_runs([tmp_path]).notes)
    assert (
        "Intervals of 3 seeds cannot reach beyond their smallest and largest score, and cover the true median in at "
        "most 75%" in notes
    )
    assert "10,000 resamples by a generator of seed 0" in notes
    alone = "\n".join(prl.compare_runs([tmp_path / "0"]).notes)
    assert "A single run has no interval, and allows no conclusion: DQN." in alone


def test_runs_without_evaluations_are_compared_by_training_returns_with_a_note(tmp_path: Path) -> None:
    trained = {"steps": 10, "train/return": 3.0}
    recorded_run(tmp_path / "without", [trained], composition("PPO"))
    recorded_run(tmp_path / "with", [trained, {"steps": 20, "test/return": 9.0}], composition("DQN"))
    comparison = prl.compare_runs([tmp_path])
    assert comparison.metric == "train/return"
    assert {result.final for result in comparison.results} == {3.0}
    assert "mean returns of training episodes, with exploration" in " ".join(comparison.notes)
    named = f"Returns of training are compared since some runs have no evaluations: {tmp_path / 'without'}."
    assert named in comparison.notes
    (note,) = (note for note in comparison.notes if '(metric="test/return") compares the other runs' in note)
    assert "leaves out those that have none" in note
    by_evaluations = prl.compare_runs([tmp_path], metric="test/return")
    assert [result.final for result in by_evaluations.results] == [9.0]
    alone = prl.compare_runs([tmp_path / "with"], metric="train/return")
    assert not any("evaluations" in note for note in alone.notes)
    recorded_run(tmp_path / "evaluated", [{"steps": 20, "test/return": 9.0}], composition("SAC"))
    with pytest.raises(ValueError, match="without has no evaluations, and another run no returns of training"):
        prl.compare_runs([tmp_path])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_runs_of_nonfinite_last_values_are_noted_with_the_step_of_their_score(tmp_path: Path, value: float) -> None:
    for seed in range(5):
        # The first run and those of PPO stay finite.
        more = [(4000, value), (5000, value)] if seed else [(4000, 600.0)]
        evaluated_run(tmp_path / f"DQN-{seed}", [(1000, 10.0), (3000, 500.0), *more], algorithm="DQN", seed=seed)
        evaluated_run(
            tmp_path / f"PPO-{seed}",
            [(1000, 1.0), (2000, value), (3000, 2.0), (4000, 102.0)],
            algorithm="PPO",
            seed=seed,
        )
    noted = [note for note in prl.compare_runs([tmp_path]).notes if "not finite" in note]
    assert noted == [
        "DQN: 4 of 5 runs in CartPole-v1 end with values that are not finite; their scores are those of the last "
        "finite one, of step 3,000."
    ]
    of_ten = prl.compare_runs([tmp_path], score="last_ten")
    assert noted[0].replace("finite one, of", "10 finite ones, until") in of_ten.notes
    assert not any("not finite" in note for note in prl.compare_runs([tmp_path], at_steps=3000).notes)


def test_groups_can_be_named_in_a_script(tmp_path: Path) -> None:
    two_groups(tmp_path)
    comparison = prl.compare_runs({"mine": tmp_path.glob("PPO-*"), "theirs": tmp_path.glob("DQN-*")}, baseline="theirs")
    assert [result.name for result in comparison.results] == ["mine", "theirs"]
    assert comparison.improvements[0].name == "mine"
    with pytest.raises(ValueError, match="there is no group 'ours' to use as baseline; choose from: mine; theirs"):
        prl.compare_runs({"mine": tmp_path.glob("PPO-*"), "theirs": tmp_path.glob("DQN-*")}, baseline="ours")


def test_a_csv_table_has_all_digits_and_empty_cells_for_unknown_values(tmp_path: Path) -> None:
    two_groups(tmp_path, "A-v0")
    evaluated_run(tmp_path / "alone", [(1000, 1 / 3)], algorithm="A2C", env="A-v0", seed=1)
    rows = {row["group"]: row for row in csv.DictReader(io.StringIO(as_csv(prl.compare_runs([tmp_path]))))}
    assert set(rows) == {"DQN", "PPO", "A2C"}
    assert float(rows["A2C"]["final"]) == 1 / 3
    assert rows["A2C"]["iqm_low"] == ""
    baseline = next(name for name in rows if not rows[name]["probability_of_improvement"])
    assert {row["baseline"] for name, row in rows.items() if name != baseline} == {baseline}


def test_a_vertical_bar_in_a_name_is_escaped_in_markdown(tmp_path: Path) -> None:
    two_groups(tmp_path)
    text = as_markdown(prl.compare_runs({"a|b": [tmp_path]}))
    assert r"| a\|b | 8 |" in text


def test_a_latex_table_has_rules_of_booktabs_and_escaped_names(tmp_path: Path) -> None:
    for name in ("50% & a_b", "[other]"):
        evaluated_run(tmp_path / name, RETURNS)
    comparison = prl.compare_runs({name: [tmp_path / name] for name in ("50% & a_b", "[other]")})
    text = as_latex(comparison)
    head = "% Needs \\usepackage{booktabs} before the document.\n% 50% & a_b has the same mean as [other]: 2.00 "
    assert text.startswith(head)
    assert comparison.answer in text
    assert text.count("\\begin{tabular}{lrrrr") == text.count("\\end{tabular}") == 2
    assert text.count("\\toprule") == text.count("\\midrule") == text.count("\\bottomrule") == 2
    rows = [line.strip() for line in text.splitlines() if line.endswith("\\\\")]
    assert rows[1].startswith("50\\% \\& a\\_b & 1 & ")
    assert rows[2].startswith("{}[other] & 1 & ")
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows[:3]} == {10}
    assert "\\caption{Scores in CartPole-v1}\n  \\label{tab:scores-in-cartpole-v1}\n" in text


def test_negative_numbers_of_a_latex_table_have_a_minus(tmp_path: Path) -> None:
    for name in ("one-step", "3-step, lr=1e-3"):
        evaluated_run(tmp_path / name, [(step, -value) for step, value in RETURNS])
    text = as_latex(prl.compare_runs({name: [tmp_path / name] for name in ("one-step", "3-step, lr=1e-3")}))
    table = text[text.index("\\begin{tabular}") :]
    assert re.search(r"one-step & 1 & \$-\$\d", table)
    assert "3-step, lr=1e-3 & 1 & $-$" in table


def test_columns_of_tables_are_those_chosen_in_their_order(tmp_path: Path) -> None:
    comparison = prl.compare_runs([two_groups(tmp_path)])
    text = as_latex(comparison, ["95% interval", "final IQM", "seeds"])
    headings = [line.strip() for line in text.splitlines() if line.lstrip().startswith("group &")]
    assert headings == [
        "group & 95\\% interval & final IQM & seeds \\\\",
        "group & 95\\% interval & seeds \\\\",
    ]
    assert as_markdown(comparison, ["best"]).count("| group |") == 1
    with pytest.raises(
        ValueError, match="columns: there is no 'IQM'; choose from: seeds; final IQM; 95% interval; mean"
    ):
        as_markdown(comparison, ["IQM"])


def test_settings_that_differ_and_that_no_name_tells_are_noted(tmp_path: Path) -> None:
    for storage, n_step, alpha in (("PERBuffer", 1, 0.6), ("NStepReplayBuffer", 3, None)):
        buffer = {"n_step": n_step, "size": 100} | ({} if alpha is None else {"alpha": alpha})
        evaluated_run(tmp_path / storage, RETURNS, storage=storage, buffer=buffer)
    (note,) = [note for note in prl.compare_runs([tmp_path]).notes if "also differ" in note]
    assert note.endswith("also differ in settings that their names do not say: storage.n_step (3; 1).")
    evaluated_run(tmp_path / "other", RETURNS, storage="PERBuffer", buffer={"n_step": 3, "size": 100, "alpha": 0.6})
    told = prl.compare_runs([tmp_path / "other", tmp_path / "PERBuffer"])
    assert {result.name for result in told.results} == {"DQN, n_step=1", "DQN, n_step=3"}
    assert not [note for note in told.notes if "also differ" in note]


def test_the_interquartile_mean_of_three_seeds_is_noted_to_be_their_mean(tmp_path: Path) -> None:
    for seed in (1, 2, 3, 4):
        evaluated_run(tmp_path / str(seed), RETURNS, seed=seed)
    text = "The IQM of fewer than four seeds is their mean"
    assert any(text in note for note in prl.compare_runs([tmp_path / str(seed) for seed in (1, 2, 3)]).notes)
    assert not any(text in note for note in prl.compare_runs([tmp_path]).notes)


def test_a_profile_is_the_share_of_runs_above_a_score_averaged_over_environments() -> None:
    scores = {"A": np.array([1.0, 2.0, 3.0, 4.0]), "B": np.array([3.0, 3.0])}
    at = thresholds(list(scores.values()))
    assert at[1:-1].tolist() == [1, 2, 3, 4]
    shares, low, high = performance_profile(scores, at)
    # Half of the runs in A and all runs in B score more than 2.
    assert shares.tolist() == [1, 0.875, 0.75, 0.125, 0, 0]
    assert (low <= shares).all()
    assert (high >= shares).all()
    assert np.isnan(performance_profile({"A": scores["A"], "B": np.array([1.0])}, at)[1]).all()


# rliable takes seconds to import.
@pytest.mark.long
def test_a_profile_equals_that_of_rliable() -> None:
    library = rliable_module("library")
    scores = np.random.default_rng(5).normal(size=(7, 3))
    at = thresholds(list(scores.T))
    ours = performance_profile({str(env): of_env for env, of_env in enumerate(scores.T)}, at)[0]
    theirs = [library.run_score_deviation(scores, threshold) for threshold in at]
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("several", [False, True])
def test_pictures_are_drawn_for_one_environment_and_for_several(tmp_path: Path, several: bool) -> None:
    two_groups(tmp_path / "runs", "A-v0")
    if several:
        two_groups(tmp_path / "runs", "B-v0")
    comparison = prl.compare_runs([tmp_path / "runs"])
    assert prl.draw_comparison(comparison, tmp_path / "intervals.png").stat().st_size > 10_000
    assert prl.draw_profile(comparison, tmp_path / "profile.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(ValueError, match=r"its name must end in \.png, \.svg, \.pdf or \.csv"):
        prl.draw_profile(comparison, tmp_path / "profile.jpg")


def test_a_profile_of_several_environments_counts_the_runs_of_each(tmp_path: Path) -> None:
    from matplotlib.text import Text

    drawn: list[Any] = []
    for env in ("A-v0", "B-v0"):
        two_groups(tmp_path / "runs", env)
        drawn.append(prl.profile_axes(prl.compare_runs([tmp_path / "runs"])).figure)
    one, several = (" ".join(text.get_text() for text in figure.findobj(Text)) for figure in drawn)
    assert "4 runs, with 95% bootstrap intervals" in one
    assert "4 runs in each of 2 environments, with 95% bootstrap intervals" in " ".join(several.split())


def test_groups_without_a_common_environment_are_not_drawn(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "1", [(1000, 1.0)], algorithm="DQN", env="A-v0")
    evaluated_run(tmp_path / "2", [(1000, 1.0)], algorithm="PPO", env="B-v0")
    comparison = prl.compare_runs([tmp_path])
    assert comparison.improvements == ()
    with pytest.raises(ValueError, match="no group has runs in all of A-v0, B-v0; compare each environment separately"):
        prl.draw_comparison(comparison, tmp_path / "intervals.png")


@pytest.mark.parametrize(
    "given", ["DQN, epsilon=0.1, double=True", "DQN,\nepsilon=0.1,\ndouble=True", "DQN,epsilon=0.1, double=True"]
)
def test_the_baseline_may_be_copied_from_the_lines_of_a_table(given: str, tmp_path: Path) -> None:
    for number, settings in enumerate(({"epsilon": 0.1, "double": True}, {"epsilon": 0.2, "double": False})):
        evaluated_run(tmp_path / f"{number}", [(1000, number)], settings=settings)
    assert prl.compare_runs([tmp_path], baseline=given).baseline == "DQN, epsilon=0.1, double=True"


def test_modules_that_runs_imported_are_no_setting_of_theirs(tmp_path: Path) -> None:
    for number, epsilon in enumerate((0.1, 0.2)):
        evaluated_run(tmp_path / f"{number}", [(1000, 1)], settings={"epsilon": epsilon}, imports=[f"module_{number}"])
    comparison = prl.compare_runs([tmp_path])
    assert [result.name for result in comparison.results] == ["DQN, epsilon=0.1", "DQN, epsilon=0.2"]
    assert not any("module_0" in note for note in comparison.notes)


def test_a_mean_of_the_last_ten_of_fewer_measurements_is_noted(tmp_path: Path) -> None:
    evaluated_run(tmp_path / "few", [(100 * n, 1.0) for n in range(4)])
    evaluated_run(tmp_path / "many", [(100 * n, 1.0) for n in range(12)], algorithm="PPO")
    notes = [note for note in prl.compare_runs([tmp_path]).notes if "last ten" in note]
    assert notes == ['DQN: "last ten" in CartPole-v1 is the mean of all 4 measurements where a run has no more.']


def test_equal_scores_of_few_seeds_have_no_interval(tmp_path: Path) -> None:
    for seed in range(2):
        evaluated_run(tmp_path / f"{seed}", [(1000, 0.0)], seed=seed)
    comparison = prl.compare_runs([tmp_path])
    assert "[0.00, 0.00]" not in as_markdown(comparison)
    assert "All seeds have the same score, so that there is no interval: DQN." in comparison.notes
    (row,) = csv.DictReader(io.StringIO(as_csv(comparison)))
    assert (row["iqm"], row["iqm_low"], row["iqm_high"]) == ("0.0", "", "")


def test_an_interval_that_the_table_leaves_out_is_left_out_everywhere(tmp_path: Path) -> None:
    for algorithm, better in (("DQN", 0.0), ("PPO", 100.0)):
        for seed in range(3):
            evaluated_run(tmp_path / f"{algorithm}-{seed}", [(1000, better + seed)], algorithm=algorithm, seed=seed)
    comparison = prl.compare_runs([tmp_path])
    assert comparison.improvements[0].probability.value == 1.0
    assert not comparison.improvements[0].probability.has_interval
    assert "1.00, 1.00" not in as_markdown(comparison)
    rows = {row["group"]: row for row in csv.DictReader(io.StringIO(as_csv(comparison)))}
    assert (rows["PPO"]["probability_of_improvement"], rows["PPO"]["probability_low"]) == ("1.0", "")
