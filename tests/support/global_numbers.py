"""An environment that draws from the global generators of NumPy, Python and torch, and writes down what it drew."""

import os
import random
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

COMPARED = 4
"""Number of lines that are compared: the first ones of each process."""


class DrawsGlobally(gym.Env[Any, Any]):
    """Writes the numbers of each process, a line for each draw, into a file of the process; its first is the maker's.

    Args:
        folder: of the files.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.draw()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.draw(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.draw(), 1.0, self.count == 7, False, {}

    def draw(self) -> Any:
        drawn = np.random.random(), random.random(), float(torch.rand((), dtype=torch.float64))  # noqa: NPY002
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write(" ".join(map(repr, drawn)) + "\n")
        return np.array(drawn, np.float32)


def drawn_by_processes(folder: Path, *, but: int | None = None) -> list[list[tuple[float, ...]]]:
    """Return the first numbers that each process drew, (draws, generators), in the order of the numbers.

    Args:
        folder: of the environments.
        but: id of a process that is left out.
    """
    files = [file for file in folder.iterdir() if file.name != str(but)]
    lines = [file.read_text().splitlines()[:COMPARED] for file in files]
    return sorted([tuple(map(float, line.split())) for line in each] for each in lines)


def disturb_generators() -> None:
    """Draw from the global generators of this process, whose state must not matter."""
    np.random.random()  # noqa: NPY002
    random.random()
    torch.rand(())


def assert_seeded_apart(runs: dict[str, list[list[tuple[float, ...]]]], processes: int) -> None:
    """Check that processes draw numbers of their own, which follow from the seed of the run.

    Args:
        runs: the numbers of runs "one" and "again" with the same seed, and "other" with another one.
        processes: how many there are.
    """
    for name, run in runs.items():
        assert len(run) == processes, name
        for generator in range(3):
            drawn = [draw[generator] for process in run for draw in process]
            assert len(set(drawn)) == len(drawn), f"{name}: two processes drew the same numbers"
    assert runs["one"] == runs["again"]
    assert not {draw for process in runs["one"] for draw in process} & {
        draw for process in runs["other"] for draw in process
    }
