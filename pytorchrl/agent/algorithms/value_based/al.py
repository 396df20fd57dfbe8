"""Advantage learning: values of actions that are not the best are learnt lower, which widens the gap between them."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import ActionValueFunction, Value
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from storages.component.hyper_parameters import Count, UnitInterval


class AL(DQN):
    """Bellemare et al., "Increasing the Action Gap: New Operators for RL" (arXiv 1512.04860), advantage learning.

    A share of the advantage of the action taken, which is at most 0, is added to the target (section 3.2). Advantages
    are those of the target network. Of an n-step window, it is the advantage of the first action.

    Each update of the target network applies the operator once more. One that follows in every batch widens gaps faster
    than they are learnt, so that by default it is a copy that stays for many batches.

    Args:
        alpha: share of the advantage that is added.
    """

    double: bool = False
    polyak: UnitInterval = 0.0
    target_update_interval: Count = 150
    alpha: UnitInterval = 0.9

    def target_value(self, rows: Rows) -> Value:
        """As of DQN, for the reward plus the share of the advantage."""
        reward = torch.add(rows.reward, self.advantage(rows), alpha=self.alpha)
        return self.next_value(rows).backup(reward, rows.discount)

    def advantage(self, rows: Rows) -> Tensor:
        """(N, 1): by how much the action is worse than the best."""
        values: ActionValueFunction = self.q_target(rows.now)
        return values.advantage(rows.action)


class PAL(AL):
    """The same paper's persistent advantage learning, which makes it likelier that an action is taken again.

    The advantage that counts is the larger one of the action now and of the same action in the next state, or at the
    end of an n-step window. After a terminal step there is only the first.
    """

    def advantage(self, rows: Rows) -> Tensor:
        """(N, 1): by how much the action is worse than the best, now or next."""
        now = super().advantage(rows)
        next_values: ActionValueFunction = self.q_target(rows.next)
        return torch.where(rows.discount > 0, now.maximum(next_values.advantage(rows.action)), now)


class DoublePAL(PAL):
    """PAL whose next action is chosen by the online network; advantages remain those of the target network."""

    double: bool = True
