"""Return types of acting and of updates."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor

from pytorchrl.agent.algorithms.parameter_group import ParameterGroup
from storages.transition import ERRORS, RHS

Metrics: TypeAlias = dict[str, Any]
"""Metrics to log: floats, or 0-dimensional tensors, which avoid synchronising with the device."""


class ActingStep(NamedTuple):
    """Output of an algorithm for one step of the environments; tensors on its device."""

    action: Tensor
    """(E, 1) or (E, *action): the action to store as ACT."""
    env_action: Tensor
    """As ``action``, for the environments; differs where a sampled action is outside their bounds."""
    rhs: Any
    """Recurrent hidden state before the next observation; None without a memory."""
    fields: Mapping[str, Tensor]
    """Further fields for the storage, such as values and log-probabilities."""


@dataclass
class Losses:
    """Losses of a batch."""

    of: Mapping[ParameterGroup, Tensor]
    """Loss of each parameter group to update. A loss must have gradients in its own group only."""
    metrics: Metrics = field(default_factory=dict)
    errors: Tensor | None = None
    """Error of each row, in the shape of the batch's rewards, for replay priorities; None for no errors."""
    stop: bool = False
    """Skip this update and the rest of the update phase."""
    recurrent_states: Tensor | None = None
    """(T, B, hidden), or (N, hidden) of packed episodes: states before the steps of a batch, which replace those
    stored; None keeps these."""

    def backward(self) -> None:
        """Replace the gradients of the groups by those of the sum of their losses."""
        total = None
        for group, loss in self.of.items():
            group.stepper.zero_grad()
            if loss.requires_grad:
                total = loss if total is None else total + loss
            elif not group.is_frozen:
                # A loss without a graph is a mistake, for which torch raises an error.
                loss.backward()  # type: ignore[no-untyped-call]
        if total is not None:
            total.backward()  # type: ignore[no-untyped-call]

    def copied_gradients(self) -> dict[str, Tensor]:
        """Return copies of the existing gradients of the groups, by name."""
        return {name: gradient for group in self.of for name, gradient in group.gradients().items()}


@dataclass
class Result:
    """Result of an update."""

    metrics: Metrics
    errors: Tensor | None = None
    """As in :class:`Losses`."""
    stop: bool = False
    """Skip the rest of the update phase."""
    recurrent_states: Tensor | None = None
    """As in :class:`Losses`."""

    @property
    def info(self) -> dict[str, Any]:
        """Metrics, with errors under ``ERRORS`` and recurrent states under ``RHS``, as storages expect them."""
        info = self.metrics if self.errors is None else {**self.metrics, ERRORS: self.errors}
        return info if self.recurrent_states is None else {**info, RHS: self.recurrent_states}
