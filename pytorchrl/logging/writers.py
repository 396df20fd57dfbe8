"""Optional writers of metrics, beside the run folder's own file."""

import difflib
import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from pytorchrl.logging.wandb_writer import WandbWriter
from storages.persistent.log.files import refuse_link


class MetricsWriter(Protocol):
    """Writes metrics, histograms and videos of a run."""

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Write the values measured after ``steps`` environment transitions."""

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Write a histogram of each array after ``steps`` environment transitions."""

    def write_video(self, steps: int, name: str, path: Path) -> None:
        """Write a video recorded after ``steps`` environment transitions, where videos are supported."""

    def close(self) -> None:
        """Finish; nothing is written afterwards."""


class TensorBoardWriter:
    """Writes TensorBoard's event files into ``tensorboard`` of the run folder.

    Args:
        log_dir: the run folder.
        resumed_at: environment transitions at which a resumed run continues; TensorBoard hides earlier records of
            later steps. None where the run is new.
    """

    def __init__(self, log_dir: Path, resumed_at: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and seldom needed

        refuse_link(log_dir / "tensorboard")
        purge_step = None if resumed_at is None else resumed_at + 1
        self._writer = SummaryWriter(str(log_dir / "tensorboard"), purge_step=purge_step)

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Add a scalar for each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, steps)
        self._writer.flush()

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Add a histogram for each array."""
        for name, array in values.items():
            self._writer.add_histogram(name, array, steps)
        self._writer.flush()

    def write_video(self, steps: int, name: str, path: Path) -> None:
        """Do nothing: TensorBoard shows no video files."""

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def make_writers(
    names: Sequence[str], log_dir: Path, config: Mapping[str, object], *, resumed_at: int | None = None
) -> list[MetricsWriter]:
    """Make the writers of some names.

    Args:
        names: "wandb", "tensorboard".
        log_dir: the run folder, made where there is none.
        config: the composition of the run, which is logged with it.
        resumed_at: environment transitions at which a resumed run continues; None where the run is new.

    Raises:
        ValueError: a name is not known.
        ModuleNotFoundError: a package is not installed; the message says how to get it.
    """
    for name in names:
        if name not in _INSTALLED_BY:
            near = difflib.get_close_matches(name, _INSTALLED_BY, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"log_to: unknown destination {name!r}{hint} (choose from {', '.join(_INSTALLED_BY)})")
        if not _is_installed(name):
            raise ModuleNotFoundError(f"log_to={name!r} needs a package: {_INSTALLED_BY[name]}")
    log_dir.mkdir(parents=True, exist_ok=True)
    with ExitStack() as made:
        writers: list[MetricsWriter] = []
        for name in dict.fromkeys(names):
            writer = WandbWriter(log_dir, config) if name == "wandb" else TensorBoardWriter(log_dir, resumed_at)
            made.callback(writer.close)
            writers.append(writer)
        made.pop_all()  # all are made: they are the caller's to close
    return writers


_INSTALLED_BY = {"wandb": "pip install wandb", "tensorboard": "pip install tensorboard"}


def _is_installed(package: str) -> bool:
    # A folder of that name, such as wandb leaves behind, is found as well, but has no origin.
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
