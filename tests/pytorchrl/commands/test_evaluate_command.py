"""``evaluate`` gives the mean return an interval, and says whether a policy is better than a baseline."""

import sys
from pathlib import Path

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.evaluation.in_environment import compared, described
from pytorchrl.scheme.evaluation import Evaluation
from tests.support.compositions import dqn_scheme


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m pytorchrl", "evaluate", *map(str, arguments)])
    main()


def of(*returns: float) -> Evaluation:
    return Evaluation(returns, (5,) * len(returns))


def said(ours: Evaluation, theirs: Evaluation) -> str:
    return compared("new", ours, "old", theirs)


def test_a_policy_is_called_better_or_worse_where_the_interval_lies_on_one_side_of_zero() -> None:
    random = np.random.default_rng(0)
    low = random.normal(size=20)
    high = low + 1 + 0.1 * random.normal(size=20)
    assert said(of(*high), of(*low)).startswith("new is better than old: the mean difference of returns is 1.0")
    assert "the larger return in 20 of 20 episodes" in said(of(*high), of(*low))
    assert said(of(*low), of(*high)).startswith("new is worse than old: the mean difference of returns is -1.0")


def test_episodes_that_do_not_tell_say_how_many_would() -> None:
    random = np.random.default_rng(0)
    differences = random.normal(size=20)
    differences += 0.2 - differences.mean()
    differences *= 1 / differences.std(ddof=1)
    text = said(of(*differences), of(*np.zeros(20)))
    # (1.960 + 0.842) ** 2 / mean ** 2 of a deviation of 1.
    needed = int(np.ceil((1.95996 + 0.84162) ** 2 / differences.mean() ** 2))
    assert needed > 20
    assert text.startswith(f"20 episodes do not tell new from old; {needed:,} would, for a difference of this size: ")


def test_few_or_equal_episodes_make_no_policy_better() -> None:
    assert said(of(5.0, 6.0), of(1.0, 2.0)).startswith("2 episodes are too few to say whether new is better than old")
    equal = of(*[500.0] * 20)
    assert said(equal, equal) == "new has the same return as old in each of 20 episodes."
    assert said(equal, of(*[400.0] * 20)) == "new has 100.0 more than old in each of 20 episodes."


def test_the_mean_return_has_an_interval_unless_all_returns_are_equal() -> None:
    assert "mean return 2.00 (95% interval [1.38, 2.62]), standard" in described(
        of(1.0, 1.0, 3.0, 3.0, 2.0, 2.0, 1.0, 3.0)
    )
    assert "mean return 1.00, standard" in described(of(1.0, 1.0))


@pytest.mark.long
def test_the_baseline_is_random_or_a_run_of_the_same_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with prl.Learner(dqn_scheme(), 60, tmp_path / "run") as learner:
        learner.run(progress=False)
    capsys.readouterr()
    command(monkeypatch, tmp_path / "run", "--episodes", "12", "--baseline", "zoo:ppo-cartpole")
    first, *_, other, last = capsys.readouterr().out.splitlines()
    assert first.startswith("12 episodes: mean return")
    assert other.startswith("zoo:ppo-cartpole, 12 episodes: mean return 500.00")
    assert last.startswith(f"{tmp_path / 'run'} is worse than zoo:ppo-cartpole: ")
    printed = []
    for seed in ("3", "3", "4"):
        command(monkeypatch, "zoo:ppo-cartpole", "--episodes", "10", "--seed", seed, "--baseline", "random")
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]
    assert "Random actions, 10 episodes: mean return " in printed[0]
    assert "zoo:ppo-cartpole is better than random actions: " in printed[0]
    with pytest.raises(SystemExit, match=r"acts in Pendulum-v1, and .* in CartPole-v1"):
        command(monkeypatch, "zoo:ppo-cartpole", "--baseline", "zoo:sac-pendulum")
    with pytest.raises(SystemExit, match="leave out --baseline"):
        command(monkeypatch, tmp_path / "run", "--data", "data.npz", "--baseline", "random")
