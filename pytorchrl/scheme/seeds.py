"""Independent random seeds derived from a run's seed, one for each purpose."""

import numpy as np

WEIGHTS, ALGORITHM, STORAGE, RANDOM_ACTIONS, TRAIN_ENVS, TEST_ENVS, WORKERS, PROCESSES = range(8)
"""Purposes: the first spawn key of a seed."""
OF_TRAINING, OF_EVALUATION, OF_WORKERS, OF_COMMAND = range(4)
"""Kinds of processes: the spawn key after PROCESSES."""


def seed_of(run_seed: int, *purpose: int) -> np.random.SeedSequence:
    """Return the seed of a purpose, which a worker's number or a step may follow."""
    return np.random.SeedSequence(run_seed, spawn_key=purpose)


def seed_of_worker(run_seed: int, worker: int, generation: int = 0) -> int:
    """Return the seed of a worker that computes gradients; that of the first one is the run's.

    Args:
        run_seed: of the run.
        worker: its index.
        generation: how often the worker with this index was replaced.
    """
    if not worker and not generation:
        return run_seed
    return int(seed_of(run_seed, WORKERS, worker, generation).generate_state(1)[0])


def seed_of_training_envs(run_seed: int) -> np.random.SeedSequence:
    """Return the seed of the first reset of a run's training environments."""
    return seed_of(run_seed, TRAIN_ENVS)
