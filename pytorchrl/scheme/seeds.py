"""Streams of random numbers that follow from a run's seed, one for each purpose."""

import numpy as np

WEIGHTS, ALGORITHM, STORAGE, RANDOM_ACTIONS, TRAIN_ENVS, TEST_ENVS, WORKERS = range(7)
"""Purposes."""


def seed_of(run_seed: int, *purpose: int) -> np.random.SeedSequence:
    """The seed of a purpose, and of a worker or a moment where numbers of such follow."""
    return np.random.SeedSequence(run_seed, spawn_key=purpose)


def seed_of_training_envs(run_seed: int) -> np.random.SeedSequence:
    """What the training environments of a run are reset with at its beginning."""
    return seed_of(run_seed, TRAIN_ENVS)
