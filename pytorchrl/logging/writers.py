"""Where metrics go beside the run folder's own file, when asked."""

import difflib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class MetricsWriter(Protocol):
    """Takes records of metrics."""

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Take the values measured after so many environment transitions."""

    def close(self) -> None:
        """Finish; nothing is written afterwards."""


class TensorBoardWriter:
    """Writes TensorBoard's event files into ``tensorboard`` of the run folder."""

    def __init__(self, log_dir: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(log_dir / "tensorboard")

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Add a scalar for each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, steps)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


def make_writers(names: Sequence[str], log_dir: Path, config: Mapping[str, Any]) -> list[MetricsWriter]:
    """The writers of some names.

    Args:
        names: "wandb", "tensorboard".
        log_dir: the run folder.
        config: what the run is made of, to be logged with it.

    Raises:
        ValueError: a name is not known.
        ModuleNotFoundError: a package is not installed; the message says how to get it.
    """
    for name in names:
        if name not in _NEEDS:
            near = difflib.get_close_matches(name, _NEEDS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"log_to: unknown place {name!r}; {hint}There are {', '.join(_NEEDS)}")
        if importlib.util.find_spec(_NEEDS[name]) is None:
            raise ModuleNotFoundError(f'log_to={name!r} needs a package: pip install "pytorchrl[{name}]"')
    log_dir.mkdir(parents=True, exist_ok=True)
    return [_made(name, log_dir, config) for name in names]


_NEEDS = {"wandb": "wandb", "tensorboard": "tensorboard"}


def _made(name: str, log_dir: Path, config: Mapping[str, Any]) -> MetricsWriter:
    if name == "tensorboard":
        return TensorBoardWriter(log_dir)
    from pytorchrl.logging.wandb_writer import WandbWriter

    return WandbWriter(log_dir, config)
