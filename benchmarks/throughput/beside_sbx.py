"""Updates of pytorchrl beside SBX, stable-baselines3's algorithms in jax, in processor time on one core.

SBX compiles all updates of a step to one call. Both train the same networks on HalfCheetah-v5 with the same batches,
learning rates and updates a step; repetitions alternate, and the ratio is the median of those of neighbouring ones.
Only training is timed: no compilation, no evaluation.
"""

import gc
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# jax reads this when it is imported; torch is told below.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
sys.path.insert(0, str(Path(__file__).parents[2]))

import sbx
import torch
import tyro
from rich.console import Console
from rich.table import Table
from stable_baselines3.common.callbacks import BaseCallback

import pytorchrl as prl
from benchmarks.shared.stable_baselines3 import without_log_folder

_ENVIRONMENT = "HalfCheetah-v5"
_START_STEPS, _WARM_UP_STEPS = 1_000, 1_050
_TINY = (8, 8)


@dataclass
class Arguments:
    """What to measure."""

    only: str = ""
    """Measure the rows alone whose title contains this."""
    repetitions: int = 5
    """Of each library."""
    quick: bool = False
    """Show that everything works; the figures mean little."""


@dataclass(frozen=True)
class Row:
    """One algorithm with a number of updates a step."""

    title: str
    ours: type[prl.Algorithm]
    theirs: Any
    updates: int = 1
    hidden_sizes: tuple[int, ...] = (256, 256)
    mini_batch_size: int = 256

    def scheme(self, seed: int) -> prl.Scheme:
        """Make pytorchrl's half."""
        settings: dict[str, Any] = {"lr_pi": 3e-4, "lr_q": 3e-4, "start_steps": _START_STEPS, "test_every": 0}
        settings |= {"num_mini_batch": self.updates, "mini_batch_size": self.mini_batch_size}
        if self.ours is prl.TQC:
            settings["num_critics"] = 2
        return prl.Scheme(
            self.ours.create_factory(**settings),
            prl.OffPolicyActor.create_factory(hidden_sizes=self.hidden_sizes),
            prl.ReplayBuffer.create_factory(size=50_000),
            prl.VecEnv.create_factory(_ENVIRONMENT),
            seed=seed,
        )

    def model(self, seed: int) -> Any:
        """Make SBX's half."""
        return self.theirs(
            "MlpPolicy",
            _ENVIRONMENT,
            learning_rate=3e-4,
            qf_learning_rate=3e-4,
            batch_size=self.mini_batch_size,
            gradient_steps=self.updates,
            learning_starts=_START_STEPS,
            buffer_size=50_000,
            policy_kwargs={"net_arch": list(self.hidden_sizes)},
            seed=seed,
        )


def main(arguments: Arguments) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        # XLA starts threads of its own.
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    console = Console(width=100)
    table = Table(title="Microseconds of processor time for each environment step, medians", title_justify="left")
    table.add_column("row")
    for heading in ("pytorchrl", "SBX", "SBX / pytorchrl", "lowest to highest"):
        table.add_column(heading, justify="right")
    for row in ROWS:
        if arguments.only not in row.title:
            continue
        steps = 20 if arguments.quick else max(100, 1_000 // row.updates)
        ours, theirs = [], []
        for seed in range(1, (1 if arguments.quick else arguments.repetitions) + 1):
            ours.append(_our_time_us(row.scheme(seed), steps))
            theirs.append(_their_time_us(row.model(seed), steps))
        ratios = sorted(their / our for our, their in zip(ours, theirs, strict=True))
        figures = (statistics.median(ours), statistics.median(theirs))
        table.add_row(
            row.title,
            *(f"{figure:,.0f}" for figure in figures),
            f"{statistics.median(ratios):.2f}",
            f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        )
        console.print(f"{row.title}: {statistics.median(ratios):.2f}", highlight=False)
    console.print(table)


def _our_time_us(scheme: prl.Scheme, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        learner = prl.Learner(scheme, _WARM_UP_STEPS + steps, Path(folder) / "run")
        while scheme.steps < _WARM_UP_STEPS:
            learner.step()
        gc.collect()
        before, started = scheme.steps, time.process_time()
        while not learner.done():
            learner.step()
        taken = (time.process_time() - started) / (scheme.steps - before) * 1e6
        learner.close()
    return taken


def _their_time_us(model: Any, steps: int) -> float:
    model = without_log_folder(model)
    clock = _Clock()
    model.learn(_WARM_UP_STEPS + steps, callback=clock)
    taken = (time.process_time() - clock.started) / (model.num_timesteps - clock.steps_at_start) * 1e6
    model.get_env().close()
    return taken


class _Clock(BaseCallback):
    """Starts the clock after the warm-up, between an update and the next step."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.steps_at_start = 0.0, 0

    def _on_rollout_start(self) -> None:
        if not self.steps_at_start and self.num_timesteps >= _WARM_UP_STEPS:
            gc.collect()
            self.steps_at_start, self.started = self.num_timesteps, time.process_time()

    def _on_step(self) -> bool:
        return True


ROWS = (
    Row("SAC, 1 update a step", prl.SAC, sbx.SAC),
    Row("SAC, 20 updates a step", prl.SAC, sbx.SAC, updates=20),
    Row("SAC, 2 x 8, batches of 32, 1 update", prl.SAC, sbx.SAC, hidden_sizes=_TINY, mini_batch_size=32),
    Row("SAC, 2 x 8, batches of 32, 20 updates", prl.SAC, sbx.SAC, 20, _TINY, 32),
    Row("TD3, 1 update a step", prl.TD3, sbx.TD3),
    Row("TD3, 20 updates a step", prl.TD3, sbx.TD3, updates=20),
    Row("CrossQ, 1 update a step", prl.CrossQ, sbx.CrossQ),
    Row("TQC, 1 update a step", prl.TQC, sbx.TQC),
)

if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
