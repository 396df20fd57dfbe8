"""Record episodes of a policy in parts, which are kept until all are complete."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.global_generators import seeding_processes
from pytorchrl.experiments.interruption import Interruption
from pytorchrl.experiments.recordings.demonstrations import episodes_of_actor
from pytorchrl.logging.bars import bar
from storages.component.factory import Factory
from storages.datasets import open_dataset, write_dataset
from storages.episode import Episode

_PART = 10_000
"""Smallest number of transitions of a part, except the last."""


class Recorder:
    """Records whole episodes up to a number of transitions, and resumes where it was stopped.

    Args:
        folder: where finished parts are kept.
        envs: the environments to act in.
        seed: of each part's environment and of exploring.
    """

    def __init__(self, folder: Path, envs: Factory[VecEnv], seed: np.random.SeedSequence) -> None:
        self._folder, self._envs, self._seed = folder, envs, seed

    def record(self, actor: Callable[[VecEnv, int], Any], transitions: int, title: str) -> Iterator[Episode]:
        """Yield the episodes, recording the parts that are missing.

        Args:
            actor: the algorithm or function that acts in environments, from a seed.
            transitions: of all episodes at least.
            title: what is recorded, for the progress bar.

        Raises:
            InterruptedError: it was stopped; what was recorded up to the last whole part is kept.
        """
        parts = [min(_PART, transitions - begin) for begin in range(0, transitions, _PART)]
        with Interruption() as interruption, bar(f"Recording {title}", transitions, "transitions") as advance:
            for number, wanted in enumerate(parts):
                file = self._folder / f"part-{number:05}-{wanted}.npz"
                if not file.exists():
                    self._record_part(file, number, wanted, actor, interruption.is_requested)
                advance(wanted)
        for number, wanted in enumerate(parts):
            yield from open_dataset(self._folder / f"part-{number:05}-{wanted}.npz")

    def forget(self) -> None:
        """Delete the parts."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _record_part(
        self,
        file: Path,
        number: int,
        wanted: int,
        actor: Callable[[VecEnv, int], Any],
        stopped: Callable[[], bool],
    ) -> None:
        key = (*self._seed.spawn_key, number)
        seed = int(np.random.SeedSequence(self._seed.entropy, spawn_key=key).generate_state(1)[0])
        with seeding_processes(np.random.SeedSequence(self._seed.entropy, spawn_key=(*key, 0))), self._envs() as envs:
            episodes = episodes_of_actor(actor(envs, seed), envs, seed, deterministic=False)
            write_dataset(file, _until(episodes, wanted, stopped, self._folder), allow_nonfinite=True)


def random_actions(envs: VecEnv, seed: int) -> Callable[[Any], Any]:
    """A policy of uniform actions."""
    codec = make_codec(envs.action_space, torch.device("cpu"), scaled=isinstance(envs.action_space, spaces.Box))
    random = np.random.default_rng(seed)
    return lambda observation: codec.to_env(codec.uniform(random, envs.num_envs))


def _until(
    episodes: Iterator[Episode], transitions: int, stopped: Callable[[], bool], folder: Path
) -> Iterator[Episode]:
    left = transitions
    while left > 0:
        if stopped():
            raise InterruptedError(f"recording to {folder} was stopped; run the same command again to continue")
        episode = next(episodes)
        left -= len(episode)
        yield episode
