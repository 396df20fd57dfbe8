"""What a run measures, and where it writes it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pytorchrl.experiments.training_metrics import TrainingMetrics
from pytorchrl.logging import MetricsFile, MetricsWriter


class Measurements:
    """Writes numbers to a run's file and to other places, and keeps the latest of each.

    Args:
        file: in the run folder.
        writers: other places.
    """

    def __init__(self, file: MetricsFile, writers: Sequence[MetricsWriter]) -> None:
        self._file = file
        self._writers = writers
        self.training = TrainingMetrics()
        """Gathers what training says between two records."""
        self.latest: dict[str, float] = {}
        """The latest value of everything measured, and "steps" and "seconds"."""
        self._logged = (0, 0.0)
        """Steps and seconds at the last record of training."""

    def begin(self) -> None:
        """Make the file fit to go on with; see :meth:`MetricsFile.begin`."""
        self._file.begin()

    def write(self, steps: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Write what was measured after so many steps and seconds."""
        record = {"steps": steps, "seconds": seconds, **metrics}
        self.latest |= record
        self._file.write(record)
        for writer in self._writers:
            writer.write(steps, metrics)

    def write_training(self, steps: int, seconds: float) -> None:
        """Write what training said since the last such record, and how fast it was."""
        steps_before, seconds_before = self._logged
        record = self.training.collect()
        if seconds > seconds_before:
            record["speed/steps_per_second"] = (steps - steps_before) / (seconds - seconds_before)
        self._logged = (steps, seconds)
        self.write(steps, seconds, record)

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Show how values are distributed, in the places that show it."""
        for writer in self._writers:
            writer.write_histograms(steps, values)

    def write_video(self, steps: int, name: str, path: Path) -> None:
        """Show a video, in the places that show it."""
        for writer in self._writers:
            writer.write_video(steps, name, path)

    def close(self) -> None:
        """Finish; nothing is written afterwards."""
        for writer in self._writers:
            writer.close()

    def state_dict(self) -> dict[str, Any]:
        """The latest values, and what was gathered since the last record, as plain data."""
        return {"logged": self._logged, "metrics": self.latest, "training": self.training.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._logged = tuple(state["logged"])
        self.latest = dict(state["metrics"])
        self.training.load_state_dict(state["training"])
