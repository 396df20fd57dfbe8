"""ACER for continuous actions, with a stochastic dueling network as critic."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.heads import ActionValue, StateValue
from pytorchrl.agent.actors.outputs import DiagonalGaussian, ScalarValue
from pytorchrl.agent.actors.view import Repeated
from pytorchrl.agent.algorithms.action_spaces import ActionKind
from pytorchrl.agent.algorithms.actor_critic.acer import ACER
from pytorchrl.agent.algorithms.actor_critic.parts.paths import Paths
from pytorchrl.agent.algorithms.actor_critic.parts.retrace import retrace
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count
from storages.transition import ACTPROBS


class ACERContinuous(ACER):
    """Wang et al., "Sample Efficient Actor-Critic with Experience Replay" (arXiv 1611.01224), algorithm 3.

    The storage keeps the behaviour policy's mean and log standard deviation.

    Args:
        num_advantage_samples: actions sampled from the policy for the mean advantage, which is subtracted (n of
            equation 14).
    """

    actions: ClassVar[ActionKind] = "box"

    num_advantage_samples: Count = 5

    def make_critic(self) -> Sequence[nn.Module]:
        """Make the critic: networks of the state value and of advantages."""
        self.value = self.actor.make("value", StateValue(), acts=True)
        self.advantage = self.actor.make("advantage", ActionValue(), codec=self.codec)
        return [self.value, self.advantage]

    def behaviour(self, policy: DiagonalGaussian) -> Tensor:  # type: ignore[override]
        """Return the parameters of the behaviour policy to store (E, 2 * A): mean and log_std."""
        return torch.cat([parameter.flatten(1) for parameter in policy.parameters], dim=1)

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of equations 13 to 17; one sampled action estimates the expectation over actions."""
        policy: DiagonalGaussian = self.pi(rows.now)
        acted = DiagonalGaussian(*(part.view_as(policy.mean) for part in rows[ACTPROBS].chunk(2, dim=1)))
        value: Tensor = self.value(rows.now)
        drawn = policy.sample(self.generator, self.num_advantage_samples + 1)
        advantages = self._advantages(rows, torch.cat([rows.action[None], drawn]))
        mean_advantage = advantages[:, 2:].mean(1, keepdim=True)
        taken, other = (value + advantages[:, [i]] - mean_advantage for i in range(2))
        log_prob, log_prob_of_other = policy.log_prob(rows.action), policy.log_prob(drawn[0])
        with torch.no_grad():
            paths, now = Paths(rows), (taken, value, self.value(rows.next))
            ratio = (log_prob - acted.log_prob(rows.action)).exp()
            # The root compensates for densities that shrink with the dimension of actions (section 5).
            returns = retrace(paths, rows, *now, trace=ratio.pow(1 / self.codec.size).clamp(max=1))
            corrected = retrace(paths, rows, *now, trace=torch.ones_like(ratio))
            advantage = self.truncated(ratio) * (corrected - value)
            value_target = value + ratio.clamp(max=1) * (returns - taken)
        objective = advantage * log_prob
        if self.truncation is not None:
            with torch.no_grad():
                inverse_ratio = (acted.log_prob(drawn[0]) - log_prob_of_other).exp()
                beyond = (1 - self.truncation * inverse_ratio).clamp_min(0) * (other - value)
            objective = objective + beyond * log_prob_of_other
        target, action_value = ScalarValue(returns, None), ScalarValue(taken, None)
        critic_loss = action_value.loss(target) + 0.5 * (value_target - value).square()
        return self.summed(
            rows, policy, objective, rows.weighted_mean(critic_loss), action_value.error(target), value.detach()
        )

    def _advantages(self, rows: Rows, actions: Tensor) -> Tensor:
        """Return the advantages (N, n) of several actions (n, N, *action) in each row."""
        repeated = Repeated(rows.now, len(actions))
        advantage: ScalarValue = self.advantage(repeated, actions.transpose(0, 1).flatten(0, 1))
        return advantage.mean.view(-1, len(actions))
