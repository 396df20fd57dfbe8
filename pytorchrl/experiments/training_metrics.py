"""Metrics of the training episodes and updates between two log records."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.evaluation import means_of_reports
from storages.transition import ERRORS


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
        """Add the metrics of an update, without its per-row errors."""
        for name, value in info.items():
            if name != ERRORS:
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
