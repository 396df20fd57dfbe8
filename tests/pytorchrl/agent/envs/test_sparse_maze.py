"""A maze that the shortest path solves, and random steps do not."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import pytorchrl as prl


def test_sparse_maze_passes_gymnasiums_environment_checker() -> None:
    check_env(prl.SparseMaze(3, 4), skip_render_check=True)


@pytest.mark.parametrize(("corridors", "length"), [(2, 2), (3, 4), (4, 3), (5, 9)])
def test_the_shortest_path_ends_at_the_only_reward(corridors: int, length: int) -> None:
    made = gym.make("pytorchrl/SparseMaze-v0", corridors=corridors, length=length, disable_env_checker=True)
    maze: Any = made.unwrapped
    lengths = set()
    for seed in range(60):
        seen, _ = made.reset(seed=seed)
        start, rewards, ended = int(seen.argmax()), [], False
        while not ended:
            seen, reward, ended, cut, info = made.step(maze.shortest_way(seen[None])[0, 0])
            rewards.append(reward)
            assert not cut
        assert (rewards[-1], sum(rewards), info["is_success"]) == (1.0, 1.0, True)
        # Every cell of the corridors and one between neighbours, except the cells before the start.
        assert len(rewards) == corridors * length + corridors - 2 - start
        lengths.add(len(rewards))
    assert len(lengths) == length - 1


def test_walls_block_steps_and_episodes_are_truncated_without_a_reward() -> None:
    maze = prl.SparseMaze(3, 4, max_steps=3)
    before, _ = maze.reset(seed=0)
    for step in range(3):
        seen, reward, terminated, truncated, info = maze.step(np.int64(3))  # up, into the wall
        np.testing.assert_array_equal(seen, before)
        assert (reward, terminated, truncated, info["is_success"]) == (0.0, False, step == 2, False)


def test_random_steps_do_not_find_the_goal() -> None:
    maze = prl.SparseMaze()
    generator = np.random.default_rng(0)
    for seed in range(100):
        maze.reset(seed=seed)
        steps = [maze.step(action) for action in generator.integers(0, 4, 150)]
        assert not any(reward for _, reward, *_ in steps)


@pytest.mark.parametrize("settings", [{"corridors": 1}, {"length": 1}, {"max_steps": 0}])
def test_a_maze_without_a_path_or_steps_is_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="SparseMaze: corridors and length must be at least 2, and max_steps 1"):
        prl.SparseMaze(**settings)
