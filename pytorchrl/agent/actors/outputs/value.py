"""The interfaces of values: of one action, of all actions, and of all discrete actions."""

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor


class Value(ABC):
    """Expected return, or distribution of returns, of each of ``B`` rows."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Expected return, (B, 1)."""

    @abstractmethod
    def backup(self, reward: Tensor, discount: Tensor) -> Self:
        """Value of ``reward + discount * return``, of (B, 1) each; ``discount`` is 0 after a terminal step.

        Gradients pass through it; a target is computed under ``torch.no_grad()``.
        """

    @abstractmethod
    def loss(self, target: Self) -> Tensor:
        """Loss of each row, (B, 1)."""

    def error(self, target: Self) -> Tensor:
        """Magnitude of the error of each row, (B, 1), without a gradient, as for priorities."""
        with torch.no_grad():
            return self.loss(target)

    def weighted_loss(self, weight: Tensor, target: Self) -> tuple[Tensor, Tensor]:
        """Sum over rows of weight (B, 1) times loss, a scalar, and the errors of :meth:`error`, (B, 1)."""
        loss = self.loss(target)
        is_error = type(self).error is Value.error
        return (weight * loss).sum(), loss.detach() if is_error else self.error(target)

    @abstractmethod
    def detach(self) -> Self:
        """Copy without gradients."""


class ActionValueFunction(ABC):
    """Values of the actions, discrete or continuous, of each of ``B`` rows."""

    @abstractmethod
    def greedy(self) -> Tensor:
        """Actions of the highest expected return, (B, *action)."""

    @abstractmethod
    def of(self, action: Tensor) -> Value:
        """Values of actions (B, *action)."""

    def best(self) -> Value:
        """Values of the greedy actions."""
        return self.of(self.greedy())

    def advantage(self, action: Tensor) -> Tensor:
        """Expected returns of actions (B, *action) less those of the greedy ones, (B, 1)."""
        return self.of(action).mean - self.best().mean


class ActionValues(ActionValueFunction):
    """Values of ``n`` discrete actions of each of ``B`` rows; actions are (B, 1) int64."""

    @property
    @abstractmethod
    def values(self) -> Tensor:
        """Expected returns, (B, n)."""

    def greedy(self) -> Tensor:
        """Actions of the highest expected return, (B, 1) int64."""
        return self.values.argmax(1, keepdim=True)

    @abstractmethod
    def expectation(self, probabilities: Tensor) -> Value:
        """Values of a policy with action probabilities (B, n)."""

    def advantage(self, action: Tensor) -> Tensor:
        """Expected returns of actions (B, 1) int64 less those of the greedy ones, (B, 1)."""
        values = self.values
        return values.gather(1, action) - values.max(1, keepdim=True).values

    def allowing(self, allowed: Tensor) -> "ActionValues":
        """Return the values such that only actions of those allowed, (B, n) bool, are ever the best."""
        return AllowedValues(self, allowed)


RULED_OUT_VALUE = -1e15
"""Value of an action that is not allowed: below all others, and finite, so that a probability of 0 times it is 0."""


class AllowedValues(ActionValues):
    """Values of actions some of which are not allowed.

    Args:
        inner: the values of all.
        allowed: (B, n) bool.
    """

    def __init__(self, inner: ActionValues, allowed: Tensor) -> None:
        self._inner, self._allowed = inner, allowed

    @property
    def values(self) -> Tensor:
        """Expected returns, (B, n); :data:`RULED_OUT_VALUE` of actions that are not allowed."""
        return self._inner.values.masked_fill(~self._allowed, RULED_OUT_VALUE)

    def of(self, action: Tensor) -> Value:
        """Values of actions (B, 1) int64."""
        return self._inner.of(action)

    def expectation(self, probabilities: Tensor) -> Value:
        """Values of a policy with action probabilities (B, n)."""
        return self._inner.expectation(probabilities)
