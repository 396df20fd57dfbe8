"""Logging of a run's metrics, to its file and to other loggers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pytorchrl.experiments.training_metrics import TrainingMetrics
from pytorchrl.logging import MetricsFile, MetricsWriter
from storages.closing import close_all


class Measurements:
    """Writes metrics to the run's file and to other loggers, and keeps the latest value of each.

    Args:
        file: in the run folder.
        writers: other loggers.
    """

    def __init__(self, file: MetricsFile, writers: Sequence[MetricsWriter]) -> None:
        self._file = file
        self._writers = writers
        self.training = TrainingMetrics()
        """Metrics of training since the last record."""
        self.latest: dict[str, float] = {}
        """Latest value of each metric, and "steps" and "seconds"."""
        self._logged = (0, 0.0)
        """Steps and seconds at the last record of training metrics."""

    def begin(self) -> None:
        """Prepare the file for appending; see :meth:`MetricsFile.begin`."""
        self._file.begin()

    def write(self, steps: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Write metrics of a number of steps and seconds."""
        record = {"steps": steps, "seconds": seconds, **metrics}
        self.latest |= record
        self._file.write(record)
        for writer in self._writers:
            writer.write(steps, metrics)

    def write_training(self, steps: int, seconds: float) -> None:
        """Write the metrics of training since the last such record, and the steps per second."""
        steps_before, seconds_before = self._logged
        record = self.training.collect()
        if seconds > seconds_before:
            record["speed/steps_per_second"] = (steps - steps_before) / (seconds - seconds_before)
        self._logged = (steps, seconds)
        self.write(steps, seconds, record)

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Write histograms to the loggers that support them."""
        for writer in self._writers:
            writer.write_histograms(steps, values)

    def write_video(self, steps: int, name: str, path: Path) -> None:
        """Write a video to the loggers that support it."""
        for writer in self._writers:
            writer.write_video(steps, name, path)

    def close(self) -> None:
        """Close the loggers; nothing is written afterwards."""
        close_all(self._writers)

    def state_dict(self) -> dict[str, Any]:
        """Return the latest values, and the training metrics since the last record, as plain data."""
        return {
            "logged": self._logged,
            "metrics": self.latest,
            "training": self.training.state_dict(),
            "records": self._file.records,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._logged = tuple(state["logged"])
        # Earlier versions saved no number.
        self._file.records = state.get("records")
        self.latest = dict(state["metrics"])
        self.training.load_state_dict(state["training"])
