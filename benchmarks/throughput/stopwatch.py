"""Environment steps per second of training alone: the steps before learning are not timed."""

import gc
import tempfile
import time
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback

import pytorchrl as prl
from benchmarks.shared.stable_baselines3 import without_log_folder
from benchmarks.throughput.cleanrl_control import Train
from benchmarks.throughput.pairs import Pair


def our_speed(pair: Pair, seed: int, steps: int) -> float:
    """Steps per second of pytorchrl, the metrics that its learner writes into the run folder included."""
    with tempfile.TemporaryDirectory() as folder:
        learner = warm_learner(pair, seed, steps, Path(folder))
        gc.collect()
        before, started = learner.scheme.steps, time.perf_counter()
        while not learner.done():
            learner.step()
        seconds = time.perf_counter() - started
        learner.close()
        return (learner.scheme.steps - before) / seconds


def warm_learner(pair: Pair, seed: int, steps: int, folder: Path) -> prl.Learner:
    """Return a learner after the pair's warm-up, with ``steps`` environment steps left to train."""
    learner = prl.Learner(pair.ours(seed), pair.warm_up_steps + steps, folder / "run")
    while learner.scheme.steps < pair.warm_up_steps:
        learner.step()
    return learner


def their_speed(pair: Pair, seed: int, steps: int) -> float:
    """Steps per second of stable-baselines3, without logs."""
    model = without_log_folder(pair.theirs(seed))
    clock = _Clock(pair.warm_up_steps)
    model.learn(pair.warm_up_steps + steps, callback=clock)
    seconds = time.perf_counter() - clock.started
    environments = model.get_env()
    assert environments is not None
    environments.close()
    return (model.num_timesteps - clock.steps_at_start) / seconds


def cleanrl_speed(train: Train, warm_up_steps: int, steps: int) -> float:
    """Return the steps per second of a function that trains as a script of CleanRL does."""
    train(warm_up_steps)
    gc.collect()
    started = time.perf_counter()
    train(steps)
    return steps / (time.perf_counter() - started)


class _Clock(BaseCallback):
    """Starts the clock after the warm-up, between an update and the next rollout.

    Args:
        warm_up_steps: environment steps that are not timed.
    """

    def __init__(self, warm_up_steps: int) -> None:
        super().__init__()
        self.started = 0.0
        self.steps_at_start = 0
        self._warm_up_steps = warm_up_steps

    def _on_rollout_start(self) -> None:
        if not self.steps_at_start and self.num_timesteps >= self._warm_up_steps:
            gc.collect()
            self.steps_at_start = self.num_timesteps
            self.started = time.perf_counter()

    def _on_step(self) -> bool:
        return True
