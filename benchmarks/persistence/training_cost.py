"""Cost of a directory in a training loop: SAC on Pendulum-v1 as in ``examples/sac_pendulum.py``, with and without.

Both learners are in one process and take turns, block by block. Every block of the one with a directory holds a commit,
more often than by default, and ends when that is on disk.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytorchrl as prl

WITHOUT, WITH = "without", "with directory="
_START_STEPS = 1_000
_WARM_UP_STEPS = 20
"""Steps after which all kernels are compiled."""


def learners(folder: Path, block_steps: int, quick: bool) -> Mapping[str, prl.Learner]:
    """Make both learners, and train them until learning has begun.

    Args:
        folder: for runs and experience.
        block_steps: environment steps of a block.
        quick: begin to learn early, though there is little to learn from.
    """
    start_steps = block_steps if quick else _START_STEPS
    both = {
        name: prl.Learner(
            _scheme(start_steps, block_steps, folder / "experience" if name == WITH else None), 10**9, folder / name
        )
        for name in (WITHOUT, WITH)
    }
    for learner in both.values():
        while learner.scheme.steps < start_steps + _WARM_UP_STEPS:
            learner.step()
    return both


def block(learner: prl.Learner, steps: int) -> Callable[[], float]:
    """Return a function that trains for a number of environment steps, and returns seconds per step."""

    def call() -> float:
        begun, started = learner.scheme.steps, time.perf_counter()
        while learner.scheme.steps < begun + steps:
            learner.step()
        # Reading the position waits for pending commits.
        _ = learner.scheme.storage.position
        return (time.perf_counter() - started) / (learner.scheme.steps - begun)

    return call


def _scheme(start_steps: int, block_steps: int, directory: Path | None) -> prl.Scheme:
    # Two thirds of commit_every steps are committed at a time, so that every block holds a commit.
    storage = prl.ReplayBuffer.create_factory(size=100_000, directory=directory, commit_every=3 * block_steps // 2)
    return prl.Scheme(
        prl.SAC.create_factory(
            lr_pi=3e-4, lr_q=1e-3, lr_alpha=3e-4, start_steps=start_steps, mini_batch_size=256, test_every=0
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(256, 256)),
        storage,
        prl.VecEnv.create_factory("Pendulum-v1", num_envs=1),
        seed=1,
    )
