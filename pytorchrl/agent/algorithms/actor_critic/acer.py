"""ACER: actor-critic with experience replay, Retrace, truncated importance weights and a trust region."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.heads import Policy, Values
from pytorchrl.agent.actors.outputs import ActionValues, Categorical, Distribution, ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.action_spaces import ActionKind
from pytorchrl.agent.algorithms.actor_critic.parts.on_and_off_policy import OnAndOffPolicy
from pytorchrl.agent.algorithms.actor_critic.parts.paths import Paths
from pytorchrl.agent.algorithms.actor_critic.parts.retrace import retrace
from pytorchrl.agent.algorithms.actor_critic.parts.trust_region import within_trust_region
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule, Positive, UnitInterval
from storages.transition import ACTPROBS

_TINY = torch.finfo(torch.float32).tiny


class ACER(OnAndOffPolicy):
    """Wang et al., "Sample Efficient Actor-Critic with Experience Replay" (arXiv 1611.01224), algorithm 2.

    The storage keeps the behaviour policy's probabilities of all actions. ``Sequences`` with ``across_episodes`` need
    the least padding.

    Args:
        value_loss_coef: weight of the critic's loss.
        entropy_coef: weight of the entropy bonus.
        truncation: the largest importance weight (c); the truncated part is replaced by an expectation over actions
            with the critic's values. None does not truncate.
        trust_region: bound on the growth of the KL divergence from the average policy along the gradient of each step's
            distribution (delta); None for no bound.
        polyak: weight that the average policy keeps in each of its updates.
    """

    actions: ClassVar[ActionKind] = "discrete"

    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegativeOrSchedule = 0.01
    truncation: Positive | None = 10.0
    trust_region: Positive | None = 1.0
    polyak: UnitInterval = 0.99

    def build(self) -> None:
        """Make a policy, its average policy, and the critic."""
        self.make_policy(Policy())
        self.trained = self.train("policy_and_critic", self.pi, *self.make_critic(), max_grad_norm="max_grad_norm")
        self.average = self.target(self.pi)

    def make_critic(self) -> Sequence[nn.Module]:
        """Make the critic: a Q-network with a value for each action."""
        self.q = self.actor.make("q", Values(huber_threshold=None), acts=True)
        return [self.q]

    def behaviour(self, policy: Categorical) -> Tensor:
        """Return the parameters of the behaviour policy to store: probabilities (E, n)."""
        return policy.probabilities

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and the distributions that they were sampled from."""
        if exploration.deterministic:
            return super().act(view, exploration)
        policy = self.policy(view, exploration)
        return policy.sample(exploration.generator), {ACTPROBS: self.behaviour(policy)}

    def losses(self, rows: Rows) -> Losses:
        """Return the policy's loss (equations 9 and 12) plus the critic's (section 3.1)."""
        policy: Categorical = self.pi(rows.now)
        values: ActionValues = self.q(rows.now)
        taken = values.of(rows.action)
        with torch.no_grad():
            probabilities, acted = policy.probabilities, rows[ACTPROBS]
            ratio = probabilities.gather(1, rows.action) / acted.gather(1, rows.action).clamp_min(_TINY)
            value = values.expectation(probabilities).mean
            next_value = self.q(rows.next).expectation(self.pi(rows.next).probabilities).mean
            returns = retrace(Paths(rows), rows, taken.mean, value, next_value, trace=ratio.clamp(max=1))
            advantage = self.truncated(ratio) * (returns - value)
        objective = advantage * policy.log_prob(rows.action)
        if self.truncation is not None:
            with torch.no_grad():
                # [1 - c / ratio]+ of equation 9, times the probability.
                beyond = (probabilities - self.truncation * acted).clamp_min(0) * (values.values - value)
            # Masked, because 0 times the log-probability -inf of an impossible action is nan.
            objective = objective + (beyond * policy.log_probs.where(beyond != 0, 0)).sum(1, keepdim=True)
        target = ScalarValue(returns)
        critic_loss = rows.weighted_mean(taken.loss(target))
        return self.summed(rows, policy, objective, critic_loss, taken.error(target), value)

    def truncated(self, ratio: Tensor) -> Tensor:
        """Return importance weights clipped to ``truncation``."""
        return ratio if self.truncation is None else ratio.clamp(max=self.truncation)

    def summed(
        self, rows: Rows, policy: Distribution, objective: Tensor, critic_loss: Tensor, errors: Tensor, value: Tensor
    ) -> Losses:
        """Return the joint loss of policy and critic.

        Args:
            rows: of the batch.
            policy: distributions of the rows.
            objective: (N, 1), maximised by the policy.
            critic_loss: ().
            errors: (N, 1), of the Q-values of the actions taken.
            value: (N, 1), V of OBS.
        """
        entropy = policy.entropy()
        objective = objective + self.current(self.entropy_coef) * entropy
        parameters = [parameter for parameter in policy.parameters if parameter.requires_grad]
        gradients: Sequence[Tensor] = torch.autograd.grad(objective.sum(), parameters, retain_graph=True)
        with torch.no_grad():
            average: Distribution = self.average(rows.now)
        divergence = average.kl(policy)
        if self.trust_region is not None:
            slopes = torch.autograd.grad(divergence.sum(), parameters, retain_graph=True)
            gradients = within_trust_region(gradients, slopes, self.trust_region)
        policy_loss = -torch.stack(
            [
                (rows.weight * (gradient * parameter).flatten(1)).sum()
                for gradient, parameter in zip(gradients, parameters, strict=True)
            ]
        ).sum()
        metrics = {
            "critic_loss": critic_loss.detach(),
            "value": rows.mean(value),
            "entropy": rows.mean(entropy.detach()),
            "kl": rows.mean(divergence.detach()),
        }
        loss = policy_loss + self.value_loss_coef * critic_loss
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))
