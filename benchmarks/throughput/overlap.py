"""Overlapped beside alternating collection, with an environment whose step costs as much as an update.

Repetitions alternate between the two; a ratio is the median of those of neighbouring repetitions. A step of the
environment takes a fixed processor time, found by timing updates first. Seconds count where two cores are free for it;
where other programs take part of them, the processor time of each process says what it would be: the time of a step is
then that of the busier process.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import gymnasium as gym
import torch
import tyro
from rich.console import Console
from rich.table import Table

import pytorchrl as prl
from benchmarks.shared.rounds import machine

TARGET_RATIO = 1.6
_WARM_UP_STEPS = 300
_ALGORITHMS = {
    "DQN": ("CartPole-v1", prl.DQN.create_factory(start_steps=100, update_every=1, mini_batch_size=128, test_every=0)),
    "SAC": ("Pendulum-v1", prl.SAC.create_factory(start_steps=100, update_every=1, mini_batch_size=256, test_every=0)),
}


@dataclass
class Arguments:
    """What to measure."""

    algorithms: tuple[str, ...] = ("DQN", "SAC")
    """Algorithms to measure, of these two."""
    repetitions: int = 7
    """Repetitions of each way to collect."""
    steps: int = 1_000
    """Timed steps of each repetition."""
    max_policy_lag: int = 8
    """Update phases by which the weights of the acting policy may lag."""
    json: Path | None = None
    """Write the figures here too."""


class Run(NamedTuple):
    """Milliseconds of a step."""

    seconds: float
    learner: float
    """Processor time of the process that learns."""
    collector: float
    """Processor time of the process that collects; 0 where there is none."""


class TakesTime(gym.Wrapper[Any, Any, Any, Any]):
    """Uses processor time in each step.

    Args:
        env: the environment.
        milliseconds: processor time.
    """

    def __init__(self, env: gym.Env[Any, Any], milliseconds: float) -> None:
        super().__init__(env)
        self._seconds = milliseconds / 1_000

    def step(self, action: Any) -> Any:
        """Step, and compute."""
        end = time.thread_time() + self._seconds
        while time.thread_time() < end:
            pass
        return self.env.step(action)


def main(arguments: Arguments) -> None:
    """Measure, print, and write."""
    torch.set_num_threads(1)
    console = Console(width=110)
    about = machine("torch", "gymnasium", "numpy")
    console.print(", ".join(f"{name} {value}" for name, value in about.items()), highlight=False)
    console.print(f"load of the machine: {os.getloadavg()[0]:.1f} programs on {os.cpu_count()} cores", highlight=False)
    figures: dict[str, dict[str, list[Run]]] = {}
    for name in arguments.algorithms:
        # The time of a step without the environment, nearly all of it the update.
        update = run(name, None, 0.0, arguments.steps).learner
        runs: dict[str, list[Run]] = {"in between": [], "overlapped": []}
        for _ in range(arguments.repetitions):
            for way, collection in (("in between", None), ("overlapped", prl.Overlapped(arguments.max_policy_lag))):
                runs[way].append(run(name, collection, update, arguments.steps))
        figures[name] = runs
        console.print(_table(f"{name}, a step of the environment takes {update:.2f} ms", runs))
    if arguments.json is not None:
        told = {
            name: {way: [one._asdict() for one in of] for way, of in runs.items()} for name, runs in figures.items()
        }
        arguments.json.write_text(json.dumps({"machine": about, "milliseconds": told}, indent=2) + "\n")


def run(name: str, collection: prl.Overlapped | None, milliseconds: float, steps: int) -> Run:
    """Train for some steps after a warm-up, and time them."""
    env, algorithm = _ALGORITHMS[name]
    scheme = prl.Scheme(
        algorithm,
        prl.OffPolicyActor.create_factory(hidden_sizes=(256, 256)),
        prl.ReplayBuffer.create_factory(size=50_000),
        prl.VecEnv.create_factory(env, wrappers=[lambda env: TakesTime(env, milliseconds)]),
        collection=collection,
    )
    with tempfile.TemporaryDirectory() as folder:
        learner = prl.Learner(scheme, 10_000_000, Path(folder) / "run")
        while scheme.steps < _WARM_UP_STEPS:
            learner.step()
        collectors = [] if collection is None else _children()
        begin = time.perf_counter(), time.process_time(), _processor_seconds(collectors)
        while scheme.steps < _WARM_UP_STEPS + steps:
            learner.step()
        end = time.perf_counter(), time.process_time(), _processor_seconds(collectors)
        learner.close()
    return Run(*(1_000 * (after - before) / steps for before, after in zip(begin, end, strict=True)))


def _children() -> list[int]:
    """Return the ids of the child processes of this one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(child) for child in children.split()]


def _processor_seconds(processes: list[int]) -> float:
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _table(title: str, runs: dict[str, list[Run]]) -> Table:
    faster = statistics.median(a.seconds / b.seconds for a, b in zip(*runs.values(), strict=True))
    by_processor = statistics.median(
        a.learner / max(b.learner, b.collector) for a, b in zip(*runs.values(), strict=True)
    )
    reached = ["met" if ratio >= TARGET_RATIO else "NOT MET" for ratio in (faster, by_processor)]
    caption = (
        f"target: at least {TARGET_RATIO}x as fast: {faster:.2f}x, {reached[0]}; "
        f"by processor time, with a core for each process: {by_processor:.2f}x, {reached[1]}"
    )
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in ("collecting", "ms a step", "lowest to highest", "processor, learner", "processor, collector"):
        table.add_column(heading, justify="left" if heading == "collecting" else "right")
    for way, of in runs.items():
        seconds = [one.seconds for one in of]
        learner, collector = (statistics.median(getattr(one, who) for one in of) for who in ("learner", "collector"))
        table.add_row(
            way,
            f"{statistics.median(seconds):.2f}",
            f"{min(seconds):.2f} to {max(seconds):.2f}",
            f"{learner:.2f}",
            f"{collector:.2f}",
        )
    return table


if __name__ == "__main__":
    main(tyro.cli(Arguments))
