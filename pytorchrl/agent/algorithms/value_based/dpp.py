"""Dynamic policy programming: preferences of actions, which grow by their advantages."""

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
    Preferences of actions that are not the best fall without bound, and their differences are no differences of
    returns. With n steps, ``r + gamma * M P(s')`` is the n-step return, and ``P(s, a) - M P(s)``, which is about the
    first action alone, is added once. Each update of the target network is an iteration, so that by default it is a
    copy that stays for 100 batches; where it follows in every batch, preferences fall faster than they are learnt.

    Args:
        operator: M: the mean by the "softmax" of preferences, their "logsumexp", divided by eta, or the "maximum",
            which both tend to as eta grows.
        eta: inverse temperature of the first two.
    """

    double: ClassVar[bool] = False  # type: ignore[misc]  # no action is chosen
    polyak: UnitInterval = 0.0
    target_update_interval: Count = 100
    operator: Literal["softmax", "logsumexp", "maximum"] = "softmax"
    eta: Positive = 1.0

    def target_value(self, rows: Rows) -> Value:
        """As of DQN, for the reward plus how much the action is preferred to the average one."""
        preferences: ActionValues = self.q_target(rows.now)
        preferred = preferences.of(rows.action).mean - self._average(preferences.values)
        return self.next_value(rows).backup(rows.reward + preferred, rows.discount)

    def next_value(self, rows: Rows) -> Value:
        """The average of the target network's next preferences."""
        return ScalarValue(self._average(self.q_target(rows.next).values))

    def _average(self, preferences: Tensor) -> Tensor:
        """(N, n) to (N, 1)."""
        if self.operator == "maximum":
            return preferences.max(1, keepdim=True).values
        if self.operator == "logsumexp":
            return (self.eta * preferences).logsumexp(1, keepdim=True) / self.eta
        return (torch.softmax(self.eta * preferences, 1) * preferences).sum(1, keepdim=True)
