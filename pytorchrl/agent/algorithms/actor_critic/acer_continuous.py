"""ACER for continuous actions, with a stochastic dueling network as critic."""

from collections.abc import Mapping

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, Policy, StateValue
from pytorchrl.agent.actors.outputs import DiagonalGaussian, ScalarValue
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.acer import ACER
from pytorchrl.agent.algorithms.actor_critic.paths import Paths, retrace
from pytorchrl.agent.algorithms.compiling import not_compiled
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count
from storages.transition import ACTPROBS


class ACERContinuous(ACER):
    """Wang et al., "Sample Efficient Actor-Critic with Experience Replay" (arXiv 1611.01224), algorithm 3.

    The storage keeps the behaviour policy's mean and log standard deviation.

    Args:
        num_advantage_samples: actions sampled from the policy for the mean advantage, which is subtracted (n of
            equation 14).
    """

    actions = "box"

    num_advantage_samples: Count = 5

    def build(self) -> None:
        """Make a policy, its average policy, and networks of the state value and of advantages."""
        self.pi = self.actor.make("policy", Policy(), acts=True)
        self.value = self.actor.make("value", StateValue(), acts=True)
        self.advantage = self.actor.make("advantage", ActionValue(), codec=self.codec)
        networks = self.pi, self.value, self.advantage
        self.trained = self.train("policy_and_critic", *networks)
        self.average = self.target(self.pi)

    @not_compiled("its trust region differentiates by the policy's output, a result of what would be compiled")
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
        policy_loss, metrics = self.policy_loss(rows, policy, objective)
        squares = (returns - taken).square() + (value_target - value).square()
        critic_loss = 0.5 * rows.weighted_mean(squares)
        metrics |= {"critic_loss": critic_loss.detach(), "value": rows.mean(value.detach())}
        loss = policy_loss + self.value_loss_coef * critic_loss
        return Losses({self.trained: loss}, metrics, rows.per_row((returns - taken.detach()).abs()))

    def _advantages(self, rows: Rows, actions: Tensor) -> Tensor:
        """Return the advantages (N, n) of several actions (n, N, *action) in each row."""
        repeated = Repeated(rows.now, len(actions))
        advantage: ScalarValue = self.advantage(repeated, actions.transpose(0, 1).flatten(0, 1))
        return advantage.mean.view(-1, len(actions))

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and mean and log_std (E, 2 * A) of the distributions that they were sampled from."""
        if exploration.deterministic:
            return super().act(view, exploration)
        policy: DiagonalGaussian = self.policy(view, exploration)
        parameters = torch.cat([parameter.flatten(1) for parameter in policy.parameters], dim=1)
        return policy.sample(exploration.generator), {ACTPROBS: parameters}
