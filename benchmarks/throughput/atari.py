"""Atari: environment steps per second beside stable-baselines3 and CleanRL, and the memory of stored stacks of frames.

Repetitions alternate between the libraries; a ratio is the median of those of neighbouring repetitions. All run in one
process on one thread of torch, and times are processor times, which other programs affect less. The
preprocessing is the same (no-ops, frame skip, lives, fire, clipped rewards, stacks of 4 frames), and so are network,
batches, updates and exploration of DQN. CleanRL's loop is that of ``peer_cleanrl.py``.
"""

import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

import pytorchrl as prl
from benchmarks.shared.pong_like import PongLike
from benchmarks.shared.rounds import machine

ENV = "PongNoFrameskip-v4"
TARGET_RATIO = 1.3
MOST_BYTES = 7_200
_LR, _EPSILON, _BUFFER, _TRAIN_EVERY, _TARGET_EVERY, _WARM_UP = 1e-4, 0.1, 10_000, 4, 1_000, 200


@dataclass
class Arguments:
    """What to measure."""

    repetitions: int = 5
    """Repetitions of each library."""
    env_steps: int = 2_000
    """Timed steps of each copy, where only environments are measured."""
    training_steps: int = 600
    """Timed steps of DQN."""
    stacks: int = 100_000
    """Stacks of frames whose memory is measured."""
    json: Path | None = None
    """Write the figures here too."""


def main(arguments: Arguments) -> None:
    """Measure, print, and write."""
    torch.set_num_threads(1)
    console = Console(width=110)
    about = machine("torch", "gymnasium", "ale-py", "opencv-python-headless", "stable-baselines3", "numpy")
    console.print(", ".join(f"{name} {value}" for name, value in about.items()), highlight=False)
    stored = stack_bytes(arguments.stacks)
    console.print(
        f"{arguments.stacks:,} stored stacks of 4 frames take {stored:,.0f} bytes of the process each; "
        f"the target is at most {MOST_BYTES:,}, a frame has {84 * 84:,}",
        highlight=False,
    )
    warnings.simplefilter("ignore")  # of the older ids
    tasks: dict[str, Mapping[str, Callable[[int], float]]] = {
        f"environment, {copies} cop{'y' if copies == 1 else 'ies'}": {
            "pytorchrl": lambda seed, copies=copies: our_envs(copies, seed, arguments.env_steps),
            "stable-baselines3": lambda seed, copies=copies: sb3_envs(copies, seed, arguments.env_steps),
            "CleanRL": lambda seed, copies=copies: cleanrl_envs(copies, seed, arguments.env_steps),
        }
        for copies in (1, 8)
    }
    tasks["DQN, 1 copy"] = {
        "pytorchrl": lambda seed: our_dqn(seed, arguments.training_steps),
        "stable-baselines3": lambda seed: sb3_dqn(seed, arguments.training_steps),
        "CleanRL": lambda seed: cleanrl_dqn(seed, arguments.training_steps),
    }
    speeds: dict[str, dict[str, list[float]]] = {task: {peer: [] for peer in peers} for task, peers in tasks.items()}
    for task, peers in tasks.items():
        for repetition in range(arguments.repetitions):
            for peer, measure in peers.items():
                speeds[task][peer].append(measure(repetition))
    console.print(_table(speeds))
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"machine": about, "bytes": stored, "steps_per_second": speeds}, indent=2) + "\n"
        )


def stack_bytes(stacks: int) -> float:
    """Return the bytes by which the process grows for each stack that a storage keeps.

    A small storage is filled before, so that what is loaded once is not counted.
    """
    _bytes_of(1_000)
    return _bytes_of(stacks) / stacks


def _bytes_of(stacks: int) -> int:
    """Return the bytes by which the process grows while a new run, with its networks made, collects stacks."""
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=stacks + 1, update_every=100, test_every=0),
        prl.OffPolicyActor.create_factory(),
        prl.ReplayBuffer.create_factory(size=stacks),
        prl.VecEnv.create_factory(PongLike, wrappers=[("FrameStackObservation", {"stack_size": 4})]),
        seed=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        learner = prl.Learner(scheme, stacks, Path(folder) / "run")
        before = _resident_bytes()
        while not learner.done():
            learner.step()
        grown = _resident_bytes() - before
        learner.close()
    return grown


def our_envs(copies: int, seed: int, steps: int) -> float:
    """Steps per second, random actions."""
    envs = prl.atari_envs(ENV, copies)()
    envs.reset(seed=seed)
    actions = np.random.default_rng(seed).integers(0, 6, (steps, copies, 1))
    speed = _speed(lambda: [envs.step(action) for action in actions], copies * steps)
    envs.close()
    return speed


def sb3_envs(copies: int, seed: int, steps: int) -> float:
    """Steps per second, random actions."""
    envs = _sb3_vector(copies, seed)
    envs.reset()
    actions = np.random.default_rng(seed).integers(0, 6, (steps, copies))
    speed = _speed(lambda: [envs.step(action) for action in actions], copies * steps)
    envs.close()
    return speed


def cleanrl_envs(copies: int, seed: int, steps: int) -> float:
    """Steps per second, random actions."""
    from benchmarks.throughput.peer_cleanrl import cleanrl_envs as make

    envs = make(ENV, copies)
    envs.reset(seed=seed)
    actions = np.random.default_rng(seed).integers(0, 6, (steps, copies))
    speed = _speed(lambda: [envs.step(action) for action in actions], copies * steps)
    envs.close()
    return speed


def our_dqn(seed: int, steps: int) -> float:
    """Steps per second of training, the metrics that the learner writes included."""
    scheme = prl.Scheme(
        prl.DQN.create_factory(
            lr=_LR,
            gamma=0.99,
            epsilon=_EPSILON,
            start_steps=_WARM_UP,
            update_every=_TRAIN_EVERY,
            mini_batch_size=32,
            double=False,
            polyak=0.0,
            target_update_interval=_TARGET_EVERY // _TRAIN_EVERY,
            max_grad_norm=10.0,
            test_every=0,
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=()),
        prl.ReplayBuffer.create_factory(size=_BUFFER),
        prl.atari_envs(ENV),
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        warm_up = _WARM_UP + 10 * _TRAIN_EVERY
        learner = prl.Learner(scheme, warm_up + steps, Path(folder) / "run")
        while scheme.steps < warm_up:
            learner.step()

        def train() -> None:
            while not learner.done():
                learner.step()

        speed = _speed(train, warm_up + steps - scheme.steps)
        learner.close()
    return speed


def sb3_dqn(seed: int, steps: int) -> float:
    """Steps per second of training."""
    from stable_baselines3 import DQN

    from benchmarks.shared.stable_baselines3 import without_log_folder

    model = DQN(
        "CnnPolicy",
        _sb3_vector(1, seed),
        learning_rate=_LR,
        buffer_size=_BUFFER,
        learning_starts=_WARM_UP,
        batch_size=32,
        train_freq=_TRAIN_EVERY,
        target_update_interval=_TARGET_EVERY,
        exploration_initial_eps=_EPSILON,
        exploration_final_eps=_EPSILON,
        seed=seed,
        device="cpu",
    )
    without_log_folder(model).learn(_WARM_UP + 10 * _TRAIN_EVERY)
    speed = _speed(lambda: model.learn(steps, reset_num_timesteps=False), steps)
    model.get_env().close()  # type: ignore[union-attr]
    return speed


def cleanrl_dqn(seed: int, steps: int) -> float:
    """Steps per second of training."""
    from benchmarks.throughput.peer_cleanrl import cleanrl_dqn as make

    train = make(
        ENV,
        seed,
        lr=_LR,
        buffer_size=_BUFFER,
        epsilon=_EPSILON,
        train_every=_TRAIN_EVERY,
        target_every=_TARGET_EVERY,
    )
    train(_WARM_UP, False)
    train(10 * _TRAIN_EVERY, True)
    return _speed(lambda: train(steps, True), steps)


def _sb3_vector(copies: int, seed: int) -> Any:
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    return VecFrameStack(make_atari_env(ENV, copies, seed=seed), 4)


def _speed(work: Callable[[], Any], steps: int) -> float:
    """Steps per second of processor time."""
    started = time.process_time()
    work()
    return steps / (time.process_time() - started)


def _resident_bytes() -> int:
    """Return the resident memory of this process, as Linux counts it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _table(speeds: Mapping[str, Mapping[str, list[float]]]) -> Table:
    table = Table(title=f"{ENV}: steps per second of processor time, one thread, medians", title_justify="left")
    for heading in ("task", "pytorchrl", "peer", "its steps", "ratio", "lowest to highest", "target", "met"):
        table.add_column(heading, justify="left" if heading in ("task", "peer") else "right")
    for task, peers in speeds.items():
        ours = peers["pytorchrl"]
        for peer, theirs in peers.items():
            if peer == "pytorchrl":
                continue
            ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
            ratio = statistics.median(ratios)
            table.add_row(
                task,
                f"{statistics.median(ours):,.0f}",
                peer,
                f"{statistics.median(theirs):,.0f}",
                f"{ratio:.2f}x",
                f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
                f"{TARGET_RATIO:g}x",
                "yes" if ratio >= TARGET_RATIO else "no",
            )
    return table


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
