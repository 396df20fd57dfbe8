"""A cluster of two machines, one of which is disconnected during training and reconnected."""

import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue
from tempfile import TemporaryDirectory

import pytest

from tests.pytorchrl.scheme.distributed.machines import Machines, two_machines, why_not
from tests.support.profiles import FULL

pytestmark = [pytest.mark.ray, FULL]

TRAIN = """
import sys
import pytorchrl as prl

scheme = prl.RayScheme(
    algo_factory=prl.DQN.create_factory(start_steps=100, update_every=50, mini_batch_size=16, test_every=0),
    actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
    storage_factory=prl.ReplayBuffer.create_factory(size=100_000),
    train_envs_factory=prl.VecEnv.create_factory("CartPole-v1"),
    num_collectors=2,
    communication="asynchronous",
    slice_steps=50,
    address=sys.argv[1],
)
insert = scheme.collector._insert

def watched(slices):
    if len(inserted) % 20 == 0:
        workers = sorted({one.worker for one in inserted[-20:]})
        print("collected", len(inserted), workers, scheme.workers_replaced, flush=True)
    inserted.extend(slices)
    return insert(slices)

inserted = []
scheme.collector._insert = watched
while True:
    _, due = scheme.collect(10**9)
    for _ in range(due):
        list(scheme.update())
    scheme.set_progress(scheme.steps, 10**9)
"""


class Lines:
    """The lines that a process prints, as they come."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._lines: Queue[str | None] = Queue()
        self._process = process
        self.seen: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, *words: str) -> str:
        """The next line that contains all given words."""
        while True:
            line = self._lines.get(timeout=120)
            assert line is not None, "the process ended:\n" + "".join(self.seen[-30:])
            self.seen.append(line)
            if all(word in line for word in words):
                return line


@pytest.fixture
def directory() -> "object":
    # Socket paths must be short, and paths of pytest's directories are long.
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as name:
        yield name


def settings(directory: str) -> dict[str, str]:
    """Environment variables of all processes of the cluster."""
    return {"RAY_TMPDIR": directory, "RAY_AUTH_MODE": "disabled"}


def ray_start(machines: Machines, number: int, directory: str) -> Lines:
    head = machines.addresses[0]
    where = ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={directory}"]
    process = machines.start(
        number,
        [
            str(Path(sys.executable).parent / "ray"),
            "start",
            "--block",
            "--disable-usage-stats",
            f"--node-ip-address={machines.addresses[number]}",
            "--num-cpus=1",
            "--object-store-memory=80000000",
            *(where if number == 0 else [f"--address={head}:6379"]),
        ],
        **settings(directory),
        RAY_health_check_initial_delay_ms="1000",
        RAY_health_check_period_ms="500",
        RAY_health_check_timeout_ms="1000",
        RAY_health_check_failure_threshold="4",
    )
    lines = Lines(process)
    lines.wait_for("Ray runtime started")
    return lines


def test_training_continues_without_a_disconnected_machine_and_uses_it_again_later(directory: str) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    pytest.importorskip("ray")
    with two_machines() as machines:
        ray_start(machines, 0, directory)
        ray_start(machines, 1, directory)
        script = Path(directory) / "train.py"
        script.write_text(TRAIN)
        training = Lines(
            machines.start(
                0,
                [sys.executable, str(script), f"{machines.addresses[0]}:6379"],
                PYTHONPATH=str(Path.cwd()),
                **settings(directory),
            )
        )
        training.wait_for("collected", "[0, 1] 0")
        machines.cut()
        training.wait_for("died and was replaced")
        # Each machine has one processor: the collector that replaces the lost one waits for a machine.
        training.wait_for("collected", "] 1")
        for _ in range(3):
            alone = training.wait_for("collected")
        assert "[0, 1]" not in alone, "one machine trains alone"
        machines.join()
        ray_start(machines, 1, directory)
        training.wait_for("collected", "[0, 1] 1")
