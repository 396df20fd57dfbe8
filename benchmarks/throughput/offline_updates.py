"""Updates per second of offline algorithms beside d3rlpy's, and the share of an update that sampling takes.

The same algorithms with the same networks, batches, learning rates and numbers of sampled actions, on the same data,
on one torch thread each. d3rlpy runs in a process of another interpreter (``--d3rlpy``), with which blocks of updates
alternate; without it only our figures are measured. A ratio is the median of those of neighbouring blocks, by processor
time, which other programs affect less than wall-clock time; both are shown.

Our updates are those of a learner, its metrics included. Batches are drawn from memory, and from a directory of which a
quarter may be in memory.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
import tyro
from rich.console import Console

import pytorchrl as prl
from benchmarks.shared.rounds import Goal, Rounds, machine
from storages.datasets import write_dataset
from storages.episode import Episode
from storages.transition import ACT, REW

BATCH, HIDDEN, GAMMA, ACTIONS = 256, (256, 256), 0.99, 10
OBSERVATION, ACTION, EPISODE = 17, 6, 1_000
"""The shapes of HalfCheetah, whose episodes have as many steps."""
BYTES_OF_A_STEP = 4 * (OBSERVATION + ACTION + 1) + 3
TARGET_RATIO, LARGEST_SHARE = 1.5, 0.05


@dataclass(frozen=True)
class Task:
    """One algorithm, composed twice."""

    ours: Any
    """The class of ours."""
    settings: dict[str, Any]
    """Hyper-parameters of ours."""
    theirs: dict[str, Any]
    """Arguments of d3rlpy's configuration."""
    updates: int
    """Updates in a block."""


_RATES = {"lr_pi": 3e-4, "lr_q": 3e-4}
_THEIR_RATES = {"actor_learning_rate": 3e-4, "critic_learning_rate": 3e-4}
TASKS = {
    "TD3BC": Task(prl.TD3BC, {"alpha": 2.5, "policy_delay": 2}, {"alpha": 2.5, "update_actor_interval": 2}, 200),
    "IQL": Task(prl.IQL, {"lr_value": 3e-4}, {"expectile": 0.7, "weight_temp": 3.0}, 200),
    "CQL": Task(
        prl.CQL,
        {"conservative_weight": 5.0, "num_samples": ACTIONS, "lr_alpha": 3e-4},
        # Without learning it, the multiplier of the weight is 1.
        {
            "conservative_weight": 5.0,
            "n_action_samples": ACTIONS,
            "temp_learning_rate": 3e-4,
            "alpha_learning_rate": 0.0,
            "alpha_threshold": 0.0,
        },
        20,
    ),
    "BCQ": Task(
        prl.BCQ,
        {"lr_vae": 3e-4, "num_target_actions": ACTIONS},
        {"imitator_learning_rate": 3e-4, "n_action_samples": ACTIONS},
        50,
    ),
}


@dataclass
class Arguments:
    """What to measure."""

    d3rlpy: Path | None = None
    """A Python interpreter that has d3rlpy; ours alone where None."""
    only: str | None = None
    """Measure one algorithm alone: TD3BC, IQL, CQL or BCQ."""
    repetitions: int = 7
    """Blocks of each, from 3; ``quick`` makes it 3."""
    quick: bool = False
    """Show in a minute that everything works; the figures mean little."""
    json: Path | None = None
    """Write the figures here too."""


def main(arguments: Arguments) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 110)
    facts = machine("torch", "numpy")
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    if arguments.only is not None and arguments.only not in TASKS:
        raise SystemExit(f"--only must be one of {', '.join(TASKS)}, got {arguments.only!r}")
    figures: dict[str, Any] = {"machine": facts}
    for name in [arguments.only] if arguments.only else TASKS:
        with tempfile.TemporaryDirectory() as folder:
            figures[name] = _measured(console, name, arguments, Path(folder))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


def _measured(console: Console, name: str, arguments: Arguments, folder: Path) -> dict[str, Any]:
    task, quick = TASKS[name], arguments.quick
    updates = max(2, task.updates // 20) if quick else task.updates
    write_data(folder, episodes=8 if quick else 100)
    work = {storage: Ours(name, folder, storage) for storage in ("memory", "disk")}
    peer = None if arguments.d3rlpy is None else Peer(arguments.d3rlpy, name, folder)
    all_of = {"pytorchrl, from memory": work["memory"], "pytorchrl, from disk": work["disk"]}
    blocks: dict[str, Any] = all_of if peer is None else all_of | {"d3rlpy": peer}
    cpu, wall = ({row: [] for row in blocks} for _ in range(2))  # type: dict[str, list[float]], dict[str, list[float]]
    shares: dict[str, list[float]] = {row: [] for row in all_of}
    for row in blocks.values():
        row.run(updates)
    for _ in range(3 if quick else max(3, arguments.repetitions)):
        for row, each in blocks.items():
            of_cpu, of_wall = each.run(updates)
            cpu[row].append(updates / of_cpu)
            wall[row].append(updates / of_wall)
            if row in shares:
                # As many batches as take about as long to draw as the clock needs to be read.
                shares[row].append(each.draw(5 * updates) / 5 / of_cpu)
    for each in blocks.values():
        each.close()
    return _report(console, name, cpu, wall, shares)


def _report(console: Console, name: str, cpu: Any, wall: Any, shares: Any) -> dict[str, Any]:
    by_clock = Rounds(f"{name}, by the clock", "updates/s", lambda rate: f"{rate:,.1f}", wall)
    by_processor = Rounds(f"{name}, by the processor's time", "updates/s", lambda rate: f"{rate:,.1f}", cpu)
    drawing = Rounds(f"{name}: drawing a batch", "share of an update", lambda share: f"{100 * share:.1f}%", shares)
    for row in shares:
        ratio = drawing.median(row)
        drawing.goals.append(Goal(f"{row}: at most {LARGEST_SHARE:.0%}", f"{ratio:.1%}", ratio <= LARGEST_SHARE))
        if "d3rlpy" in cpu:
            for rounds in (by_processor, by_clock):
                reached = rounds.ratio(row, "d3rlpy")
                target = f"{row}: at least {TARGET_RATIO:g}x d3rlpy"
                rounds.goals.append(Goal(target, f"{reached:.2f}x", reached >= TARGET_RATIO))
    for rounds in (by_processor, by_clock, drawing):
        rounds.print(console)
    return {"cpu": by_processor.figures(), "wall": by_clock.figures(), "drawing": drawing.figures()}


def write_data(folder: Path, episodes: int) -> None:
    """Write the same random numbers as a data set of ours and as arrays for d3rlpy."""
    random = np.random.default_rng(0)
    obs = random.standard_normal((episodes, EPISODE + 1, OBSERVATION)).astype(np.float32)
    actions = random.uniform(-1, 1, (episodes, EPISODE, ACTION)).astype(np.float32)
    rewards = random.standard_normal((episodes, EPISODE, 1)).astype(np.float32)
    write_dataset(
        folder / "data.npz",
        [
            Episode(obs[one], {ACT: actions[one], REW: rewards[one]}, terminated=False, truncated=True)
            for one in range(episodes)
        ],
    )
    np.savez(
        folder / "arrays.npz",
        observations=obs[:, :-1].reshape(-1, OBSERVATION),
        actions=actions.reshape(-1, ACTION),
        rewards=rewards.reshape(-1, 1),
        terminals=np.zeros(episodes * EPISODE, np.float32),
        timeouts=np.tile(np.arange(EPISODE) == EPISODE - 1, episodes).astype(np.float32),
    )


class Ours:
    """A learner of ours.

    Args:
        name: of the algorithm.
        folder: where the data is.
        storage: "memory" or "disk".
    """

    def __init__(self, name: str, folder: Path, storage: str) -> None:
        task = TASKS[name]
        factory: Any = prl.ReplayBuffer.create_factory(size=1_000_000)
        if storage == "disk":
            quarter = BYTES_OF_A_STEP * len(np.load(folder / "arrays.npz")["rewards"]) // 4
            factory = prl.PersistentEpisodicBuffer.create_factory(None, folder / "stored", memory_bytes=quarter)
        common = {"gamma": GAMMA, "mini_batch_size": BATCH, "test_every": 0} | _RATES
        scheme = prl.Scheme(
            task.ours.create_factory(**common | task.settings),
            prl.OffPolicyActor.create_factory(hidden_sizes=HIDDEN),
            prl.from_dataset(factory, folder / "data.npz"),
            test_envs_factory=prl.VecEnv.create_factory("HalfCheetah-v5"),
            seed=1,
        )
        self._learner = prl.Learner(scheme, 1_000_000, folder / f"run-{storage}")

    def run(self, updates: int) -> tuple[float, float]:
        """Seconds of so many updates, of the processor and of the clock."""
        before, (cpu, wall) = self._learner.scheme.steps, (time.process_time(), time.perf_counter())
        while self._learner.scheme.steps < before + updates:
            self._learner.step()
        return time.process_time() - cpu, time.perf_counter() - wall

    def draw(self, batches: int) -> float:
        """Return the processor seconds of sampling a number of batches alone."""
        started = time.process_time()
        for _ in self._learner.scheme.storage.generate_batches(batches, BATCH):
            pass
        return time.process_time() - started

    def close(self) -> None:
        """End the run."""
        self._learner.close()


class Peer:
    """A process of d3rlpy.

    Args:
        python: an interpreter that has it.
        name: of the algorithm.
        folder: where the data is.
    """

    def __init__(self, python: Path, name: str, folder: Path) -> None:
        settings = {"batch_size": BATCH, "gamma": GAMMA} | _THEIR_RATES | TASKS[name].theirs
        script = Path(__file__).with_name("peer_d3rlpy.py")
        command = [str(python), str(script), name, str(folder / "arrays.npz"), json.dumps(settings)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._heard()

    def run(self, updates: int) -> tuple[float, float]:
        """Seconds of so many updates, of the processor and of the clock."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{updates}\n")
        self._process.stdin.flush()
        facts = self._heard()
        return facts["cpu"], facts["wall"]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _heard(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"d3rlpy's process has ended:\n{self._process.communicate()[1]}")
        facts: dict[str, Any] = json.loads(line)
        return facts


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
