"""ACER: actor-critic with experience replay, Retrace, truncated importance weights and a trust region."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import Policy, Values
from pytorchrl.agent.actors.outputs import ActionValues, Categorical, Distribution, ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.on_and_off_policy import OnAndOffPolicy
from pytorchrl.agent.algorithms.actor_critic.paths import Paths, retrace
from pytorchrl.agent.algorithms.checks import ActionKind
from pytorchrl.agent.algorithms.compiling import not_compiled
from pytorchrl.agent.algorithms.results import Losses, Metrics
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

    explorer: ClassVar[None] = None  # type: ignore[misc]  # the stored probabilities are those of the policy
    value_loss_coef: NonNegative = 0.5
    entropy_coef: NonNegativeOrSchedule = 0.01
    truncation: Positive | None = 10.0
    trust_region: Positive | None = 1.0
    polyak: UnitInterval = 0.99

    def build(self) -> None:
        """Make a policy, its average policy, and a Q-network with a value for each action."""
        self.pi = self.actor.make("policy", Policy(), acts=True)
        self.q = self.actor.make("q", Values(huber_threshold=None), acts=True)
        self.trained = self.train("policy_and_critic", self.pi, self.q)
        self.average = self.target(self.pi)

    @not_compiled("its trust region differentiates by the policy's output, a result of what would be compiled")
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
        policy_loss, metrics = self.policy_loss(rows, policy, objective)
        critic_loss, errors = taken.weighted_loss(rows.weight, ScalarValue(returns))
        metrics |= {"critic_loss": critic_loss.detach(), "value": rows.mean(value)}
        loss = policy_loss + self.value_loss_coef * critic_loss
        return Losses({self.trained: loss}, metrics, rows.per_row(errors))

    def truncated(self, ratio: Tensor) -> Tensor:
        """Return importance weights clipped to ``truncation``."""
        return ratio if self.truncation is None else ratio.clamp(max=self.truncation)

    def policy_loss(self, rows: Rows, policy: Distribution, objective: Tensor) -> tuple[Tensor, Metrics]:
        """Return the loss of a policy that maximises an objective (N, 1) and entropy, within the trust region."""
        with torch.no_grad():
            average: Distribution = self.average(rows.now)
        entropy, divergence = policy.entropy(), average.kl(policy)
        objective = objective + self.current(self.entropy_coef) * entropy
        parameters = [parameter for parameter in policy.parameters if parameter.requires_grad]
        if self.trust_region is not None and parameters:
            gradients = torch.autograd.grad(objective.sum(), parameters, retain_graph=True)
            slopes = torch.autograd.grad(divergence.sum(), parameters, retain_graph=True)
            objective = objective - trust_region_multiplier(gradients, slopes, self.trust_region) * divergence
        metrics = {"entropy": rows.mean(entropy.detach()), "kl": rows.mean(divergence.detach())}
        return -rows.weighted_mean(objective), metrics

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions, and the probabilities (E, n) of the distributions that they were sampled from."""
        if exploration.deterministic:
            return super().act(view, exploration)
        policy: Categorical = self.policy(view, exploration)
        return policy.sample(exploration.generator), {ACTPROBS: policy.probabilities}


def trust_region_multiplier(gradients: Sequence[Tensor], slopes: Sequence[Tensor], limit: float) -> Tensor:
    """Return the multipliers (B, 1) of a divergence that bound its growth along the gradients, to first order.

    ``max(0, (k * g - limit) / (k * k))`` of equation 12, for gradients g and k of the objective and of the divergence;
    0 where the divergence has no gradient.

    Args:
        gradients: (B, ...) each, of the objective with respect to the parameters of each row's distribution.
        slopes: of the same shapes, of the divergence.
        limit: bound of the scalar product in each row.
    """
    product = _of_rows([one * other for one, other in zip(gradients, slopes, strict=True)])
    squared = _of_rows([slope.square() for slope in slopes])
    # The clamp avoids 0 / 0 where the divergence has no gradient.
    return (product - limit).clamp_min(0) / squared.clamp_min(torch.finfo(squared.dtype).tiny)


def _of_rows(parts: Sequence[Tensor]) -> Tensor:
    """Return the sums (B, 1) over all elements of each row."""
    return torch.stack([part.flatten(1).sum(1, keepdim=True) for part in parts]).sum(0)
