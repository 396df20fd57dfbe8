"""Commands that need a run's weights or its state take no memory for the transitions in its checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments.finished_runs import has_finished
from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.composition import load_agent
from pytorchrl.experiments.runs.run_folder import RunFolder

BYTES = 48 << 20
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def composition() -> prl.Scheme:
    return prl.compose("DQN", "CartPole-v1", seed=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose checkpoint is as large as one with many transitions."""
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    scheme = composition()
    with prl.Learner(scheme, 4, folder.path) as learner:
        learner.run(progress=False)
    state = checkpoint.load(folder.checkpoint_file)
    del state["format"]
    state["scheme"]["storage"]["transitions"] = torch.ones(BYTES, dtype=torch.uint8)
    checkpoint.save(folder.checkpoint_file, state)
    return folder.path


def largest_bytes() -> int:
    """Return the largest memory of this process since the last reset."""
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def is_finished(run: Path) -> None:
    config = RunFolder(run).read_config()
    assert has_finished(RunFolder(run), config, 4)


def begin_with_its_weights(run: Path) -> None:
    with composition() as scheme:
        prl.start_from(scheme, run)


def added_bytes(use: Callable[[Path], Any], run: Path) -> int:
    """Return how much more memory a use takes while it runs; what the first one loads is not counted."""
    if not RESET.exists():
        pytest.skip("the operating system does not tell the largest memory of a process")
    use(run)
    RESET.write_text("5")
    before = largest_bytes()
    use(run)
    return largest_bytes() - before


@pytest.mark.parametrize("use", [prl.load_policy, load_agent, is_finished, begin_with_its_weights])
def test_transitions_of_a_checkpoint_take_no_memory_where_they_are_not_used(
    use: Callable[[Path], Any], run: Path
) -> None:
    assert added_bytes(use, run) < BYTES // 4


def test_the_memory_of_a_checkpoint_that_is_read_whole_is_measured(run: Path) -> None:
    assert added_bytes(lambda run: checkpoint.load(RunFolder(run).checkpoint_file), run) > BYTES // 2


def test_a_damaged_tensor_that_is_not_used_is_found(run: Path, tmp_path: Path) -> None:
    content = bytearray((run / "checkpoint.pt").read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "checkpoint.pt"
    damaged.write_bytes(content)
    with pytest.raises(prl.CheckpointError, match="does not match its checksum"):
        prl.load_policy(damaged)
