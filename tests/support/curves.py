"""A substitute for plotting the learning curve at the end of a run, which takes longer than most tests train.

The substitute reads and groups the metrics like the plot, and writes a picture of one pixel. Tests of the curve use the
fixture ``drawn_curves``. Commands in separate processes, and all tests in the profile ``nightly``, plot the curve.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

import pytorchrl.learner
from pytorchrl.logging import plot_runs
from pytorchrl.logging.groups import grouped
from pytorchrl.logging.run_search import read_runs
from storages.files import replacing
from tests.support.profiles import is_nightly

_ONE_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c63f80f0001010100b138f6140000000049454e44ae426082"
)


def write_one_pixel(paths: Sequence[Path], output: Path) -> Path:
    """Read the runs as for a plot, and write one pixel."""
    runs, _ = read_runs(paths, None)
    assert grouped(runs)
    with replacing(output) as file:
        file.write(_ONE_PIXEL)
    return output


def stand_in() -> None:
    """Replace the plots of runs in this process."""
    if not is_nightly():
        pytorchrl.learner.plot_runs = write_one_pixel  # type: ignore[assignment]


@pytest.fixture
def drawn_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a test end with a real plot of their curve."""
    monkeypatch.setattr(pytorchrl.learner, "plot_runs", plot_runs)
