"""Updates per second of SAC with batches sampled on request, prefetched, or kept on the device.

The same scheme throughout; all ways take turns phase by phase, so that the machine's load affects all alike, and the
median of the ratios of neighbouring phases is shown. On a CUDA device, where there is one, an
update phase ends when the device has finished it. "elsewhere" is a learner that needs 5 ms for an update and no
processor, with batches of 256: what batches ahead are worth beside it does not depend on what else the machine does.
"""

import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import gymnasium as gym
import numpy as np
import torch
import tyro
from rich.table import Table

import pytorchrl as prl
from benchmarks.shared.rounds import wide_console

_SIZE = {"numbers": 20_000, "pixels": 2_000}
_SHAPES: dict[str, tuple[int, ...]] = {"numbers": (17,), "pixels": (3, 84, 84)}
_BATCH = {"numbers": 256, "pixels": 32}
_ELSEWHERE, _SECONDS_ELSEWHERE, _BATCH_ELSEWHERE = "elsewhere", 0.005, 256


@dataclass
class Arguments:
    """What to measure."""

    observations: tuple[Literal["numbers", "pixels"], ...] = ("numbers", "pixels")
    """17 numbers in batches of 256, 3 channels of 84 x 84 pixels in batches of 32."""
    storages: tuple[Literal["uniform", "priority"], ...] = ("uniform", "priority")
    """How transitions are sampled."""
    devices: tuple[str, ...] = field(
        default_factory=lambda: ("cpu", _ELSEWHERE, *(("cuda",) if torch.cuda.is_available() else ()))
    )
    """Devices of the algorithm."""
    updates: int = 50
    """Updates in an update phase."""
    phases: int = 21
    """Update phases of each way."""
    threads: int = 1
    """Threads of torch; prefetching needs one more processor."""


def main(arguments: Arguments) -> None:
    """Measure and print."""
    torch.set_num_threads(arguments.threads)
    console = wide_console()
    console.print(f"torch {torch.__version__}, {arguments.threads} threads, {os.cpu_count()} processors")
    table = Table(title="SAC, updates per second, and times as many as when asked for", title_justify="left")
    for heading in ("device", "observations", "rows", "when asked for"):
        table.add_column(heading)
    for way in list(_ways("cuda" if "cuda" in arguments.devices else "cpu"))[1:]:
        table.add_column(way, justify="right")
    for device in arguments.devices:
        for observations in arguments.observations:
            for rows in arguments.storages:
                table.add_row(device, observations, rows, *_measured(arguments, device, observations, rows))
    console.print(table)


def _ways(device: str) -> dict[str, dict[str, Any]]:
    ways: dict[str, dict[str, Any]] = {
        "when asked for": {},
        "1 ahead": {"prefetch": 1},
        "2 ahead": {"prefetch": 2},
    }
    if device not in ("cpu", _ELSEWHERE):
        ways |= {"on device": {"keep_on_device": True}, "both": {"prefetch": 2, "keep_on_device": True}}
    return ways


def _measured(arguments: Arguments, device: str, observations: str, rows: str) -> list[str]:
    schemes = [
        _scheme(arguments, device, observations, rows, hyper_parameters) for hyper_parameters in _ways(device).values()
    ]
    seconds_of = _seconds if device != _ELSEWHERE else partial(_seconds_elsewhere, updates=arguments.updates)
    for scheme in schemes:
        scheme.collect(_SIZE[observations])
        seconds_of(scheme)
    seconds = [[seconds_of(scheme) for scheme in schemes] for _ in range(arguments.phases)]
    for scheme in schemes:
        scheme.close()
    plain = statistics.median(phase[0] for phase in seconds)
    ratios = [statistics.median(phase[0] / phase[way] for phase in seconds) for way in range(1, len(schemes))]
    return [f"{arguments.updates / plain:,.0f}", *(f"{ratio:.3f}" for ratio in ratios)]


def _seconds(scheme: prl.Scheme) -> float:
    started = time.perf_counter()
    for _ in scheme.update():
        pass
    if scheme.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _seconds_elsewhere(scheme: prl.Scheme, updates: int) -> float:
    started = time.perf_counter()
    for _ in scheme.storage.generate_batches(updates, _BATCH_ELSEWHERE):
        time.sleep(_SECONDS_ELSEWHERE)
    return time.perf_counter() - started


def _scheme(
    arguments: Arguments, device: str, observations: str, rows: str, hyper_parameters: dict[str, Any]
) -> prl.Scheme:
    size = _SIZE[observations]
    return prl.Scheme(
        prl.SAC.create_factory(
            start_steps=size, update_every=size, num_mini_batch=arguments.updates, mini_batch_size=_BATCH[observations]
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(256, 256)),
        prl.ReplayBuffer.create_factory(size=size, **hyper_parameters)
        if rows == "uniform"
        else prl.PERBuffer.create_factory(size=size, alpha=0.6, beta=0.4, epsilon=1e-2, **hyper_parameters),
        prl.VecEnv.create_factory(_Anything, env_kwargs={"shape": _SHAPES[observations]}),
        device="cpu" if device == _ELSEWHERE else device,
    )


class _Anything(gym.Env[Any, Any]):
    """Observes random numbers or pixels, independent of the actions.

    Args:
        shape: of an observation; pixels where it has three axes.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        pixels = len(shape) == 3
        low, high, dtype = (0, 255, np.uint8) if pixels else (-1.0, 1.0, np.float32)
        self.observation_space = gym.spaces.Box(low, high, shape, dtype)  # type: ignore[arg-type]
        self.action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
        self._seen = [self.observation_space.sample() for _ in range(16)]
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of 200 steps."""
        super().reset(seed=seed)
        self._step = 0
        return self._seen[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return a random observation."""
        self._step += 1
        return self._seen[self._step % 16], float(action[0]), False, self._step == 200, {}


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
