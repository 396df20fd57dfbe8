"""What acting and updates return."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from pytorchrl.agent.algorithms.training import Trained
from storages.transition import ERRORS

Metrics: TypeAlias = dict[str, Any]
"""Numbers to log: floats, or tensors of no axes, so that no device is waited for."""


class ActingStep(NamedTuple):
    """What an algorithm does in one step of the environments; tensors on its device."""

    action: Tensor
    """(E, 1) or (E, *action): to be stored as ACT."""
    env_action: Tensor
    """As ``action``: to be given to the environments; differs where an action outside their bounds was drawn."""
    rhs: Any
    """Memory before the next observation; None without a memory."""
    fields: Mapping[str, Tensor]
    """What else the storage is to keep: values, log probabilities."""


@dataclass
class Losses:
    """What a batch says."""

    of: Mapping[Trained, Tensor]
    """The loss of each group of parameters that is to be stepped. Each must leave gradients in its own group alone."""
    metrics: Metrics = field(default_factory=dict)
    errors: Tensor | None = None
    """The error of each row, in the shape of the batch's rewards, which priorities follow; None for no errors."""
    stop: bool = False
    """Learn nothing from this batch, and leave out the rest of the update phase."""
    gradients: Mapping[Tensor, Tensor] = field(default_factory=dict)
    """By parameter: gradients that were computed beside the losses, to which what autograd makes of these is added."""


@dataclass
class Result:
    """What came of an update."""

    metrics: Metrics
    errors: Tensor | None = None
    """As those of :class:`Losses`."""
    stop: bool = False
    """Leave out the rest of the update phase."""

    @property
    def info(self) -> dict[str, Any]:
        """As storages get it: metrics, and errors under ``ERRORS``."""
        return self.metrics if self.errors is None else {**self.metrics, ERRORS: self.errors}
