"""Callbacks that log norms of weights and gradients, and the time of parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pytorchrl.experiments.callbacks.callback import Callback, TrainingRun, is_due
from storages.component.hyper_parameters import Count


@dataclass(eq=False)
class LogWeights(Callback):
    """Logs the norms of weights and gradients, and their histograms to the loggers that support them.

    "weights/GROUP" and "gradients/GROUP" are Euclidean norms over all parameters of one optimiser; TensorBoard and
    wandb also get a histogram of each parameter.

    Args:
        every: updates between records.
    """

    every: Count = 1_000

    def on_update(self, learner: TrainingRun, metrics: Mapping[str, Any]) -> None:
        """Log, if it is due."""
        training = learner.scheme.algorithm.training
        if training.counters["updates"] % self.every:
            return
        norms: dict[str, float] = {}
        histograms: dict[str, np.ndarray[Any, Any]] = {}
        for name, group in training.groups.items():
            weights = {f"{name}.{key}": parameter.detach() for key, parameter in group.parameters.items()}
            for kind, tensors in (("weights", weights), ("gradients", group.gradients())):
                if tensors:
                    norms[f"{kind}/{name}"] = float(torch.stack([tensor.norm() for tensor in tensors.values()]).norm())
                    histograms |= {f"{kind}/{key}": tensor.cpu().numpy() for key, tensor in tensors.items()}
        learner.log(norms)
        learner.log_histograms(histograms)


@dataclass(eq=False)
class TimeParts(Callback):
    """Logs the share of time that parts of the run take: "time/collect", "time/update", "time/evaluate", "time/save".

    Args:
        every: steps of the run between records.
    """

    every: Count = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._logged_at = 0
        self._before: dict[str, float] = {}

    def on_step(self, learner: TrainingRun) -> None:
        """Log, if it is due."""
        if not is_due(self.every, self._logged_at, learner.scheme.steps):
            return
        self._logged_at = learner.scheme.steps
        seconds = learner.seconds_of_parts
        spent = {part: value - self._before.get(part, 0.0) for part, value in seconds.items()}
        self._before = seconds
        total = sum(spent.values())
        learner.log({f"time/{part}": value / total for part, value in spent.items()})

    def state_dict(self) -> dict[str, Any]:
        """Return the steps at the last record."""
        return {"logged_at": self._logged_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._logged_at = state["logged_at"]
