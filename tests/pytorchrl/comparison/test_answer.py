"""What a comparison says: which group is best, and how sure that is."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import pytorchrl as prl
from tests.support.run_folders import composition, evaluated_run, recorded_run


def answer(folder: Path, **returns: Sequence[float]) -> str:
    for algorithm, values in returns.items():
        for seed, value in enumerate(values):
            evaluated_run(folder / algorithm / f"{seed}", [(1000, value)], algorithm=algorithm, seed=seed)
    return prl.compare_runs([folder]).answer


def test_a_clear_difference_over_few_seeds_is_not_sure(tmp_path: Path) -> None:
    assert answer(tmp_path, DQN=(10, 20, 30), PPO=(40, 50, 60)) == (
        "PPO is ahead of DQN: 50.0 (95% interval [40.0, 60.0], 3 seeds) against 20.0 (95% interval [10.0, 30.0], 3 "
        "seeds). A run of PPO scores more than one of DQN with a probability of 1.00. 3 seeds are too few "
        "to be sure of it: for a difference of this size, 6 of each are needed."
    )


def test_a_clear_difference_over_many_seeds_is_concluded(tmp_path: Path) -> None:
    found = answer(tmp_path, DQN=range(10), PPO=range(20, 30))
    assert found.startswith("PPO is ahead of DQN: ")
    assert "with a probability of 1.00 [1.00, 1.00]. " in found
    assert found.endswith("There are enough seeds to conclude that it is better.")


def test_the_best_is_compared_with_the_next_whatever_the_baseline_is(tmp_path: Path) -> None:
    found = answer(tmp_path, DQN=(1, 2), PPO=(7, 8), SAC=(5, 6))
    assert "PPO is ahead of SAC, the next of 3: " in found


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ({"DQN": (5,)}, "DQN reaches 5.00 (1 seed). One seed does not show how much others would differ"),
        ({"DQN": (5, 6, 7)}, "there is nothing to compare it with"),
        ({"DQN": (5, 6), "PPO": (5, 6)}, "This shows no difference between the two."),
        ({"DQN": (5, 6), "PPO": (5, 6)}, "DQN has the same mean as PPO: 5.50 (95% interval"),
        ({"DQN": (1, 2, 9), "PPO": (1, 2, 10)}, "PPO is ahead of DQN"),
        ({"DQN": (0, 5), "PPO": (2, 4)}, "PPO has a higher mean than DQN"),
        ({"DQN": (0, 5), "PPO": (2, 4)}, "with a probability of 0.50 [0.00, 1.00]. This shows no difference"),
        ({"DQN": (5, 5, 5), "PPO": (1, 1, 90)}, "Most of its runs score less, so that its mean alone does not make"),
        ({"DQN": (5, 5), "PPO": (1, 2)}, "DQN is ahead of PPO: 5.00 (2 seeds) against 1.50 (95% interval [1.00, 2.00]"),
        ({"DQN": (5,), "PPO": (6,)}, "One seed is too few to be sure of it"),
    ],
)
def test_one_group_one_seed_or_no_difference_is_said(
    returns: dict[str, Sequence[float]], message: str, tmp_path: Path
) -> None:
    assert message in answer(tmp_path, **returns)


def test_groups_that_have_no_environments_in_common_are_not_ranked(tmp_path: Path) -> None:
    for algorithm, env in (("DQN", "A-v0"), ("PPO", "B-v0")):
        evaluated_run(tmp_path / algorithm, [(1000, 1.0)], algorithm=algorithm, env=env)
    assert "No group has runs in all of A-v0, B-v0" in prl.compare_runs([tmp_path]).answer


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("offline/initial_value", "PPO has a higher offline/initial_value than DQN: 9.50"),
        ("losses/loss", "DQN has the same losses/loss as PPO: 1.00"),
    ],
)
def test_a_metric_that_is_no_return_makes_no_group_better(metric: str, message: str, tmp_path: Path) -> None:
    for algorithm, values in {"DQN": (1, 2), "PPO": (9, 10)}.items():
        for seed, value in enumerate(values):
            record = {"steps": 1000, "seconds": 1, "offline/initial_value": value, "losses/loss": 1}
            recorded_run(tmp_path / algorithm / f"{seed}", [record], composition(algorithm=algorithm, seed=seed))
    found = prl.compare_runs([tmp_path], metric=metric).answer
    assert found.startswith(message)
    assert "ahead" not in found
    assert found.endswith("It is no return, so that it does not say which is better.")
