"""Dynamic policy programming: DQN with action preferences in place of Q-values."""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import ActionValues, ScalarValue, Value
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Count, Positive, UnitInterval


class DPP(DQN):
    """Azar et al., "Dynamic Policy Programming" (JMLR 13, 2012; arXiv 1004.2027), with a target network.

    The target of a preference P(s, a) is ``P(s, a) + r + gamma * M P(s') - M P(s)``, where M averages over actions.
    Preferences of suboptimal actions decrease without bound, so their differences are not differences of returns. With
    n-step returns, ``r + gamma * M P(s')`` is the n-step return, and ``P(s, a) - M P(s)`` of the first action is added
    once. Each update of the target network is one iteration, so by default the network is copied every 100 batches;
    with a Polyak update in every batch, preferences would decrease faster than the network can fit them.

    Args:
        operator: M: "softmax" for the mean weighted by the softmax of preferences, "logsumexp" for their log-sum-exp
            divided by eta, or "maximum", the limit of both for large eta.
        eta: inverse temperature of "softmax" and "logsumexp".
    """

    double: ClassVar[bool] = False  # type: ignore[misc]  # no action is selected
    polyak: UnitInterval = 0.0
    target_update_interval: Count = 100
    operator: Literal["softmax", "logsumexp", "maximum"] = "softmax"
    eta: Positive = 1.0

    def target_value(self, rows: Rows) -> Value:
        """Return ``P(s, a) + r + gamma * M P(s') - M P(s)``, by the target network."""
        now: ActionValues = self.q_target(rows.now)
        after: ActionValues = self.q_target(rows.next)
        preferred = now.of(rows.action).mean - self._average(now.values)
        return ScalarValue(self._average(after.values)).backup(rows.reward + preferred, rows.discount)

    def _average(self, preferences: Tensor) -> Tensor:
        """Apply M to preferences (N, n), giving (N, 1)."""
        if self.operator == "maximum":
            return preferences.max(1, keepdim=True).values
        if self.operator == "logsumexp":
            return (self.eta * preferences).logsumexp(1, keepdim=True) / self.eta
        return (torch.softmax(self.eta * preferences, 1) * preferences).sum(1, keepdim=True)
