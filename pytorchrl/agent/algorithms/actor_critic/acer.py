"""ACER: an actor and a critic that learn from new and replayed segments, within a trust region."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.heads import Policy, Values
from pytorchrl.agent.actors.outputs import ActionValues, Categorical, Distribution, ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.action_spaces import ActionKind
from pytorchrl.agent.algorithms.actor_critic.parts.fresh_and_replayed import FreshAndReplayed
from pytorchrl.agent.algorithms.actor_critic.parts.paths import Paths
from pytorchrl.agent.algorithms.actor_critic.parts.retrace import retrace
from pytorchrl.agent.algorithms.actor_critic.parts.trust_region import within_trust_region
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule, Positive, UnitInterval
from storages.transition import ACTPROBS

_TINY = torch.finfo(torch.float32).tiny


class ACER(FreshAndReplayed):
    """Wang et al., "Sample Efficient Actor-Critic with Experience Replay" (arXiv 1611.01224), algorithm 2.

    The storage keeps the probabilities of all actions under the policy that acted. ``Sequences`` that go on
    ``across_episodes`` are filled up the least.

    Args:
        value_loss_coef: weight of the critic's loss.
        entropy_coef: weight of the policy's entropy, which is raised.
        truncation: the largest importance weight; what it cuts off, an expectation over actions by the critic replaces.
            None cuts off nothing.
        trust_region: how much the divergence from the average policy may grow along the gradient of each step's
            distribution; None for no limit.
        polyak: how much of the average policy stays at each update.
    """

    actions: ClassVar[ActionKind] = "discrete"

    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegativeOrSchedule = 0.01
    truncation: Positive | None = 10.0
    trust_region: Positive | None = 1.0
    polyak: UnitInterval = 0.99

    def build(self) -> None:
        """A policy, its average, and what judges actions."""
        self.make_policy(Policy())
        self.trained = self.train("policy_and_critic", self.pi, *self.make_critic(), max_grad_norm="max_grad_norm")
        self.average = self.target(self.pi)

    def make_critic(self) -> Sequence[nn.Module]:
        """A network with a value for each action."""
        self.q = self.actor.make("q", Values(huber_threshold=None), acts=True)
        return [self.q]

    def behaviour(self, policy: Categorical) -> Tensor:
        """(E, n): what the storage keeps of the distribution that acts."""
        return policy.probabilities

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Actions, and the distributions that they were drawn from."""
        if exploration.deterministic:
            return super().act(view, exploration)
        policy = self.policy(view, exploration)
        return policy.sample(exploration.generator), {ACTPROBS: self.behaviour(policy)}

    def losses(self, rows: Rows) -> Losses:
        """The policy's gradient within the trust region (equations 9 and 12), and the critic's error (section 3.1)."""
        policy: Categorical = self.pi(rows.now)
        values: ActionValues = self.q(rows.now)
        taken = values.of(rows.action)
        with torch.no_grad():
            probabilities, acted = policy.probabilities, rows[ACTPROBS]
            ratio = probabilities.gather(1, rows.action) / acted.gather(1, rows.action).clamp_min(_TINY)
            value = values.expectation(probabilities).mean
            next_value = self.q(rows.next).expectation(self.pi(rows.next).probabilities).mean
            returns = retrace(Paths(rows), rows, taken.mean, value, next_value, trace=ratio.clamp(max=1))
            merit = self.truncated(ratio) * (returns - value)
        objective = merit * policy.log_prob(rows.action)
        if self.truncation is not None:
            with torch.no_grad():
                # [1 - c / ratio]+ of equation 9 times the probability.
                beyond = (probabilities - self.truncation * acted).clamp_min(0) * (values.values - value)
            # An action that is ruled out has no log probability to multiply 0 with.
            objective = objective + (beyond * policy.log_probs.where(beyond != 0, 0)).sum(1, keepdim=True)
        target = ScalarValue(returns)
        critic_loss = rows.weighted_mean(taken.loss(target))
        return self.summed(rows, policy, objective, critic_loss, taken.error(target), value)

    def truncated(self, ratio: Tensor) -> Tensor:
        """Importance weights up to the truncation."""
        return ratio if self.truncation is None else ratio.clamp(max=self.truncation)

    def summed(
        self, rows: Rows, policy: Distribution, objective: Tensor, critic_loss: Tensor, errors: Tensor, value: Tensor
    ) -> Losses:
        """The loss of all networks.

        Args:
            rows: of the batch.
            policy: distributions of the rows.
            objective: (N, 1), of which the policy climbs the gradient.
            critic_loss: (), of what judges actions.
            errors: (N, 1), of the values of actions.
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
