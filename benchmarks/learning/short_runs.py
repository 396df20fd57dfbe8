"""Training returns of many short runs, beside stable-baselines3 with the same settings: ``docs/short-runs.md``.

A few long runs cannot show a small difference between two implementations of an algorithm, because seeds differ more.
These runs take seconds, so that there can be many. A run that has finished is not repeated: the same command goes on
where it was stopped.
"""

import contextlib
import io
import json
import math
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
import tyro

import pytorchrl as prl
from benchmarks.shared.page_texts import paragraphs, standard_error
from pytorchrl.terminal import ending_with_its_reader

_ROOT = Path(__file__).resolve().parents[2]
ENV = "Pendulum-v1"
GAMMA, START_STEPS, BATCH, TAU, NOISE = 0.99, 600, 64, 0.005, 0.1
HIDDEN = (64, 64)
LEARNING_RATE = 1e-3
OURS: Mapping[str, type[prl.OffPolicyAlgorithm]] = {"SAC": prl.SAC, "TD3": prl.TD3, "DDPG": prl.DDPG}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "SAC": {"lr_alpha": LEARNING_RATE},
    "TD3": {"exploration_noise": NOISE},
    "DDPG": {"exploration_noise": NOISE},
}
"""Settings of ours that not all have."""

Key: TypeAlias = tuple[str, str, int]
"""The algorithm, whose it is, and the seed."""


@dataclass
class Arguments:
    """What to run."""

    algorithms: tuple[Literal["SAC", "TD3", "DDPG"], ...] = ("SAC", "TD3", "DDPG")
    """Algorithms to run."""
    seeds: int = 40
    """Number of seeds, from 1 on."""
    target_steps: int = 4_000
    """Environment steps of a run."""
    processes: int = 2
    """Runs at a time, each on one thread."""
    results: Path = _ROOT / "benchmarks" / "learning" / "finished" / "short-runs.jsonl"
    """Where results of finished runs are kept; those of another number of steps are not used."""
    output: Path = _ROOT / "docs" / "short-runs.md"
    """The page to write."""


def main(arguments: Arguments) -> None:
    """Make the runs that are missing, then write the table of all."""
    finished = _read(arguments.results, arguments.target_steps)
    wanted: list[Key] = [
        (algorithm, whose, seed)
        for seed in range(1, arguments.seeds + 1)
        for algorithm in arguments.algorithms
        for whose in _TRAIN
    ]
    missing = [key for key in wanted if key not in finished]
    print(f"{len(wanted)} runs, {len(wanted) - len(missing)} of them finished", flush=True)
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    # Spawned, not forked: a fork of a process that has used torch's threads may hang.
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(train, key, arguments.target_steps): key for key in missing}
        for done, future in enumerate(as_completed(running), 1):
            key = running[future]
            finished[key] = future.result()
            with arguments.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps([*key, arguments.target_steps, finished[key]]) + "\n")
            minutes = (time.monotonic() - begun) / 60
            print(f"{done} of {len(missing)} in {minutes:.0f} min: {key}: {finished[key]:.1f}", flush=True)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(page(finished, arguments.target_steps), encoding="utf-8")
    print(f"Table: {arguments.output}")


def train(key: Key, target_steps: int) -> float:
    """Return the mean return of all training episodes of a run."""
    torch.set_num_threads(1)
    algorithm, whose, seed = key
    # Several runs share one terminal.
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        _TRAIN[whose](algorithm, seed, target_steps, Path(folder))
        records = prl.read_metrics(Path(folder) / "metrics.jsonl")
    ended = [record for record in records if record.get("train/episodes")]
    weights = [record["train/episodes"] for record in ended]
    return float(np.average([record["train/return"] for record in ended], weights=weights))


def _train_ours(algorithm: str, seed: int, target_steps: int, folder: Path) -> None:
    shared = {
        "lr_pi": LEARNING_RATE,
        "lr_q": LEARNING_RATE,
        "gamma": GAMMA,
        "polyak": 1 - TAU,
        "start_steps": START_STEPS,
        "update_every": 1,
        "mini_batch_size": BATCH,
        "test_every": 0,
    }
    scheme = prl.Scheme(
        OURS[algorithm].create_factory(**shared, **SETTINGS[algorithm]),
        prl.OffPolicyActor.create_factory(hidden_sizes=HIDDEN),
        prl.ReplayBuffer.create_factory(size=target_steps),
        prl.VecEnv.create_factory(ENV),
        seed=seed,
    )
    with prl.Learner(scheme, target_steps, folder, log_every=target_steps // 20) as learner:
        learner.run()


def _train_theirs(algorithm: str, seed: int, target_steps: int, folder: Path) -> None:
    # Needs further packages.
    import stable_baselines3 as sb3
    from stable_baselines3.common.noise import NormalActionNoise

    from benchmarks.shared.stable_baselines3 import Records, without_log_folder

    noise = {} if algorithm == "SAC" else {"action_noise": NormalActionNoise(np.zeros(1), np.full(1, NOISE))}
    model = getattr(sb3, algorithm)(
        "MlpPolicy",
        ENV,
        learning_rate=LEARNING_RATE,
        gamma=GAMMA,
        tau=TAU,
        learning_starts=START_STEPS,
        batch_size=BATCH,
        buffer_size=target_steps,
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": list(HIDDEN), "activation_fn": torch.nn.ReLU},
        seed=seed,
        device="cpu",
        **noise,
    )
    without_log_folder(model).learn(target_steps, callback=Records(folder / "metrics.jsonl", target_steps // 20))


_TRAIN = {"pytorchrl": _train_ours, "stable-baselines3": _train_theirs}


def page(finished: Mapping[Key, float], target_steps: int) -> str:
    """Return the page with the table of all results."""
    about = (
        "Written by `benchmarks/learning/short_runs.py`, which `make learning-short` calls. A few long runs cannot "
        "show a small difference between two implementations, because seeds differ more; these runs are short, and "
        f"there are many. Each trains for {target_steps:,} steps in {ENV}, with two layers of {HIDDEN[0]} units, "
        f"batches of {BATCH}, a learning rate of {LEARNING_RATE:g} and {START_STEPS} random steps at the beginning, "
        "and otherwise with the settings of [MuJoCo's runs](mujoco.md), equal in both. The figures are means over the "
        "seeds of the mean return of all training episodes, with standard errors; a difference within twice its "
        "standard error is no sign that one learns faster. Runs of one library with the same seed take the same random "
        "steps at the beginning, so that the rows are not independent."
    )
    rows = [
        ["algorithm", "runs of each", "pytorchrl", "stable-baselines3", "difference", "in standard errors"],
        ["---", *["---:"] * 5],
        *[_row(algorithm, finished) for algorithm in OURS if any(key[0] == algorithm for key in finished)],
    ]
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(["# Results of many short runs", "", *paragraphs(about), "", *table, ""])


def _row(algorithm: str, finished: Mapping[Key, float]) -> list[str]:
    seeds = sorted({seed for name, _, seed in finished if name == algorithm})
    # Those that only one of them has would make the means incomparable.
    both = [seed for seed in seeds if all((algorithm, whose, seed) in finished for whose in _TRAIN)]
    returns = {whose: [finished[algorithm, whose, seed] for seed in both] for whose in _TRAIN}
    if len(both) < 2:
        return [f"`{algorithm}`", str(len(both)), "-", "-", "-", "-"]
    means = {whose: statistics.mean(each) for whose, each in returns.items()}
    errors = {whose: standard_error(each) for whose, each in returns.items()}
    difference = means["pytorchrl"] - means["stable-baselines3"]
    error = math.hypot(*errors.values())
    shown = [f"{means[whose]:,.1f} ± {errors[whose]:,.1f}" for whose in _TRAIN]
    return [
        f"`{algorithm}`",
        str(len(both)),
        *shown,
        f"{difference:+,.1f} ± {error:,.1f}",
        f"{difference / error:+.1f}",
    ]


def _read(results: Path, target_steps: int) -> dict[Key, float]:
    if not results.exists():
        return {}
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {(algorithm, whose, seed): value for algorithm, whose, seed, steps, value in lines if steps == target_steps}


if __name__ == "__main__":
    with ending_with_its_reader():
        main(tyro.cli(Arguments, description=__doc__))
