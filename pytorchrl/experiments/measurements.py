"""Logging of a run's metrics, to its file and to other loggers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from pytorchrl.logging import MetricsFile, MetricsWriter
from pytorchrl.logging.tensorboard_writer import TensorBoardWriter
from pytorchrl.logging.wandb_writer import WandbWriter
from pytorchrl.logging.writers import HistogramWriter, VideoWriter
from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.evaluation import means_of_reports
from pytorchrl.terminal import tell
from storages.transition import OF_ROWS

if TYPE_CHECKING:
    import wandb

_TOOLKIT_WRITERS = (TensorBoardWriter, WandbWriter)


class Measurements:
    """Writes metrics to the run's file and to other loggers, and keeps the latest value of each.

    Args:
        file: in the run folder.
        writers: other loggers.
        check: called before each record; raises where the run folder belongs to another learner by now.
    """

    def __init__(self, file: MetricsFile, writers: Sequence[MetricsWriter], check: Callable[[], None]) -> None:
        self._file, self._writers, self._check = file, writers, check
        self._failed = set[int]()
        """Loggers that failed, by ``id``."""
        self.training = TrainingMetrics()
        """Metrics of training since the last record."""
        self.latest: dict[str, float] = {}
        """Latest value of each metric, and "steps" and "seconds"."""
        self._nan = set[str]()
        """Metrics of a user's that were NaN, of which a warning was printed."""
        self._logged = (0, 0.0)
        """Steps and seconds at the last record of training metrics."""

    @property
    def wandb_run(self) -> "wandb.Run | None":
        """The wandb run that is logged to; None without one."""
        return next((writer.run for writer in self._writers if isinstance(writer, WandbWriter)), None)

    @property
    def _for_others(self) -> str:
        """How values are logged that are no numbers; "" where only numbers are logged."""
        return "" if self.wandb_run is None else "; wandb takes others by learner.wandb_run.log({...})"

    def begin(self) -> None:
        """Prepare the file for appending; see :meth:`MetricsFile.begin`."""
        self._file.begin()

    def write(self, steps: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Write metrics of a number of steps and seconds."""
        self._check()
        record = {"steps": steps, "seconds": seconds, **metrics}
        self.latest |= record
        self._file.write(record)
        for writer in self._working():
            with self._failing_alone(writer):
                writer.write(steps, metrics)

    def write_of_user(self, steps: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Write metrics of a user's.

        Raises:
            ValueError: a value is not a number, or a name is reserved ("steps", "seconds").
        """
        for name, value in metrics.items():
            if name in ("steps", "seconds"):
                raise ValueError(f"Learner.log: the run itself logs {name!r}; choose another name")
            if not isinstance(value, int | float | np.number):
                raise ValueError(f"Learner.log: {name!r} must be a number, got {value!r}{self._for_others}")
            if np.isnan(value) and name not in self._nan:
                self._nan.add(name)
                tell(
                    f"Warning: {name!r} was logged as NaN at {steps:,} steps, as the mean of no values is. A callback "
                    f"finds a rollout in the storage in on_rollout, before the updates, and none in on_step."
                )
        self.write(steps, seconds, metrics)

    def write_training(self, steps: int, seconds: float) -> None:
        """Write the metrics of training since the last such record, and the steps per second."""
        # Before the metrics are taken, which would be lost.
        self._check()
        steps_before, seconds_before = self._logged
        record = self.training.collect()
        if seconds > seconds_before:
            record["speed/steps_per_second"] = (steps - steps_before) / (seconds - seconds_before)
        self._logged = (steps, seconds)
        self.write(steps, seconds, record)

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Write histograms to the loggers that support them."""
        for writer in self._working():
            if isinstance(writer, HistogramWriter):
                with self._failing_alone(writer):
                    writer.write_histograms(steps, values)

    def write_video(self, steps: int, name: str, path: Path) -> None:
        """Write a video to the loggers that support it."""
        for writer in self._working():
            if isinstance(writer, VideoWriter):
                with self._failing_alone(writer):
                    writer.write_video(steps, name, path)

    def close(self) -> None:
        """Close the loggers, and say which ones fail; nothing is written afterwards."""
        for writer in self._writers:
            # The run is saved, and the file has all of its metrics.
            with self._failing_alone(writer, closing=True):
                writer.close()

    def _working(self) -> list[MetricsWriter]:
        return [writer for writer in self._writers if id(writer) not in self._failed]

    @contextmanager
    def _failing_alone(self, writer: MetricsWriter, *, closing: bool = False) -> Iterator[None]:
        """Say once that a logger failed, and write no more to it; while training, a user's own still ends the run."""
        try:
            yield
        except Exception as error:
            if not closing and not isinstance(writer, _TOOLKIT_WRITERS):
                raise
            if id(writer) not in self._failed:
                self._failed.add(id(writer))
                name = type(writer).__name__
                what = "could not be closed" if closing else "failed, and gets no more metrics"
                tell(
                    f"The logger {name} {what}: {type(error).__name__}: {error}. The run's metrics.jsonl has them all.",
                    is_error=True,
                )

    def state_dict(self) -> dict[str, Any]:
        """Return the latest values, and the training metrics since the last record, as plain data."""
        return {
            "logged": self._logged,
            "metrics": self.latest,
            "training": self.training.state_dict(),
            "records": self._file.records,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`.

        Raises:
            ValueError: a metric is no number.
        """
        for name, value in state["metrics"].items():
            if not isinstance(value, Real):
                raise ValueError(f"the state has {value!r} as the metric {name!r}, which is a number")
        self._logged = tuple(state["logged"])
        # Earlier versions saved no number.
        self._file.records = state.get("records")
        self.latest = dict(state["metrics"])
        self.training.load_state_dict(state["training"])


class TrainingMetrics:
    """Collects episodes and metrics of updates, and averages them.

    Values are kept as they are, including tensors, so that the device is synchronised only when they are averaged.
    """

    def __init__(self) -> None:
        self._episodes: list[Episode] = []
        self._shaped_returns: list[float] = []
        self._updates: dict[str, list[Any]] = {}

    def add_episodes(self, episodes: Iterable[Episode], shaped_returns: Iterable[float] = ()) -> None:
        """Add episodes that ended, and returns in stored rewards where these differ from the environments' own."""
        self._episodes.extend(episodes)
        self._shaped_returns.extend(shaped_returns)

    def add_update(self, info: Mapping[str, Any]) -> None:
        """Add the metrics of an update, without what it holds for each row."""
        for name, value in info.items():
            if name not in OF_ROWS:
                self._updates.setdefault(name, []).append(value)

    def collect(self) -> dict[str, float]:
        """Return the means since the last call, by the names that they are logged with."""
        record: dict[str, float] = {}
        if self._episodes:
            record["train/return"] = float(np.mean([episode.episode_return for episode in self._episodes]))
            record["train/episode_length"] = float(np.mean([episode.length for episode in self._episodes]))
            record["train/episodes"] = len(self._episodes)
            record |= means_of_reports("train", [episode.reported for episode in self._episodes])
        if self._shaped_returns:
            record["train/shaped_return"] = float(np.mean(self._shaped_returns))
        for name, values in self._updates.items():
            path = name if "/" in name else f"losses/{name}"
            record[path] = float(np.mean(_floats(values)))
        self._episodes, self._shaped_returns, self._updates = [], [], {}
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return what was collected since the last record, as plain data."""
        return {
            "episodes": [episode.state_dict() for episode in self._episodes],
            "shaped_returns": list(self._shaped_returns),
            "updates": {name: _floats(values) for name, values in self._updates.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._episodes = [Episode(*episode) for episode in state["episodes"]]
        self._shaped_returns = list(state["shaped_returns"])
        self._updates = {name: list(values) for name, values in state["updates"].items()}


def _floats(values: list[Any]) -> list[float]:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    if len(tensors) == len(values):
        # A variable of an algorithm, such as a temperature, has the shape (1,).
        floats: list[float] = torch.stack(tensors).double().flatten().tolist()
        return floats
    return [float(value) for value in values]
