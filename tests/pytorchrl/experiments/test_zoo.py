"""The zoo: each policy that comes with the toolkit reaches the return that its table names."""

import importlib.util
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import pytorchrl as prl
from benchmarks.learning.presets_zoo import COPIES, replayed
from pytorchrl.experiments.policies.published_policies import ZOO, names_in_zoo

MOST_BYTES = 8_000_000
TOLERANCE = 0.05
PACKAGES = {"-v5": "mujoco", "Lunar": "Box2D", "PointMaze": "gymnasium_robotics", "MinAtar": "minatar"}


def table() -> dict[str, list[str]]:
    lines = (ZOO / "README.md").read_text().splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return {row[0]: row for row in rows}


def cases() -> list[object]:
    return [pytest.param(*row[:5], id=name) for name, row in table().items()]


def test_the_table_of_the_zoo_lists_its_policies_which_are_small() -> None:
    assert sorted(table()) == names_in_zoo()
    assert len(names_in_zoo()) >= 5
    assert sum(file.stat().st_size for file in ZOO.iterdir()) < MOST_BYTES


@pytest.mark.parametrize(("name", "algorithm", "env", "mean_return", "first_return"), cases())
def test_a_policy_of_the_zoo_replays_the_first_episodes_of_its_row(
    name: str, algorithm: str, env: str, mean_return: str, first_return: str
) -> None:
    skip_without_package(env)
    assert type(prl.load_policy(f"zoo:{name}").algorithm).__name__ == algorithm
    assert abs(number(first_return) - number(mean_return)) < 0.5 * abs(number(mean_return))
    assert replayed(ZOO / f"{name}.pt", COPIES) == pytest.approx(number(first_return), rel=TOLERANCE)


@pytest.mark.long
@pytest.mark.parametrize(("name", "algorithm", "env", "mean_return", "first_return"), cases())
def test_a_policy_of_the_zoo_reaches_the_return_of_its_row(
    name: str, algorithm: str, env: str, mean_return: str, first_return: str
) -> None:
    skip_without_package(env)
    assert replayed(ZOO / f"{name}.pt") == pytest.approx(number(mean_return), rel=TOLERANCE)


def skip_without_package(env: str) -> None:
    needed = next((package for part, package in PACKAGES.items() if part in env), None)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"{env} needs the package {needed}")


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_a_policy_of_the_zoo_acts_in_its_environment() -> None:
    policy = prl.load_policy("zoo:ppo-cartpole")
    env = gym.make("CartPole-v1")
    observation, _ = env.reset(seed=3)
    steps = 0
    for _ in range(200):
        observation, _, terminated, _, _ = env.step(policy(observation))
        steps += 1
        if terminated:
            break
    env.close()
    assert steps == 200


def test_a_policy_of_the_zoo_has_no_state_of_training() -> None:
    for name in names_in_zoo():
        state = torch.load(ZOO / f"{name}.pt", weights_only=True)
        of_weights = {"format", "pytorchrl_version", "config", "steps", "weights", "test_return", "first_return"}
        assert set(state) == of_weights
        assert np.isfinite(state["test_return"])


def test_an_unknown_name_is_refused_with_those_of_the_zoo(tmp_path: Path) -> None:
    for name in ("ppo-cartpol", "../zoo/ppo-cartpole", "README.md", ""):
        with pytest.raises(prl.CheckpointError, match=r"the zoo has no policy .*; choose from .*ppo-cartpole"):
            prl.load_policy(f"zoo:{name}")
