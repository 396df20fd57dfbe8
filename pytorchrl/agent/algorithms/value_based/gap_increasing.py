"""Operators that increase the action gap, on DQN.

AL: DQN that lowers the values of suboptimal actions, which increases the action gap.
PAL: AL that favours repeating an action.
DoublePAL: PAL with double Q-learning.
DPP: DQN with action preferences in place of Q-values.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import ActionValues, ScalarValue, Value
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Count, Positive, UnitInterval
from storages.transition import DONE2


class AL(DQN):
    """Bellemare et al., "Increasing the Action Gap: New Operators for RL" (arXiv 1512.04860), advantage learning.

    A fraction of the advantage of the action taken, which is at most 0, is added to the target (section 3.2).
    Advantages are those of the target network; with n-step returns, that of the first action.

    Each update of the target network applies the operator once. A Polyak update in every batch would increase the gaps
    faster than the network can fit them, so by default the network is copied at long intervals.

    Args:
        alpha: fraction of the advantage that is added.
    """

    double: bool = False
    polyak: UnitInterval = 0.0
    target_update_interval: Count = 150
    alpha: UnitInterval = 0.9

    def target_value(self, rows: Rows) -> Value:
        """Return DQN's target with the weighted advantage added to the reward."""
        reward = torch.add(rows.reward, self.advantage(rows), alpha=self.alpha)
        values: ActionValues = self.q_target(rows.next)
        chooser: ActionValues = self.q(rows.next) if self.double else values
        return values.of(chooser.greedy()).backup(reward, rows.discount)

    def advantage(self, rows: Rows) -> Tensor:
        """Return the advantages (N, 1) of the actions, ``Q_target(s, a) - max_b Q_target(s, b)``."""
        values: ActionValues = self.q_target(rows.now)
        return values.advantage(rows.action)


class PAL(AL):
    """Persistent advantage learning of the same paper, which favours repeating an action.

    It takes the larger of the action's advantages in the present and in the next state (with n-step returns, the state
    after n steps). At a terminal step, only the first exists.
    """

    def advantage(self, rows: Rows) -> Tensor:
        """Return the larger of the action's advantages (N, 1) in the present and the next state."""
        now = super().advantage(rows)
        next_values: ActionValues = self.q_target(rows.next)
        return torch.where(rows[DONE2] == 0, now.maximum(next_values.advantage(rows.action)), now)


class DoublePAL(PAL):
    """PAL with double Q-learning; advantages remain those of the target network."""

    double: bool = True


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
