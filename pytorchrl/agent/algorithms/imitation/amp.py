"""AMP: PPO that is also rewarded for state transitions which resemble those of demonstrations."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.algorithms.imitation.adversarial_reward import AdversarialReward
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegative
from storages.storage import Storage


class AMPReward(AdversarialReward):
    """AMP's discriminator and reward, to combine with any on-policy algorithm.

    Args:
        task_coef: weight of the environment's reward (w^G).
        style_coef: weight of the style reward (w^S), which lies in [0, 1].
        gradient_penalty_coef: weight of the discriminator's gradient penalty (w^gp).
    """

    expert: ClassVar[Needs] = Needs("replay", collected=False, single_steps=True)

    task_coef: NonNegative = 0.5
    style_coef: NonNegative = 0.5
    gradient_penalty_coef: NonNegative = 10.0

    def make_discriminator(self) -> tuple[Network, ...]:
        """Make the discriminator, a network of successive observations."""
        self.discriminator = self.actor.make_of_pairs("discriminator", StateValue(gain=None))
        return (self.discriminator,)

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Replace the rollout's rewards, train the discriminator, then the policy (algorithm 1)."""
        batch = self.all_of(sources["main"])
        paid = self.replace_rewards(sources["main"], batch)
        yield from self.update_discriminator(batch, sources["expert"])
        for metrics in super().update_phase(sources):
            yield metrics | {"imitation_reward": paid}

    def reward(self, rows: Rows) -> Tensor:
        """Return the weighted sum (N, 1) of the environment's reward and the style reward (equation 4)."""
        return self.task_coef * rows.reward + self.style_coef * self.style_reward(rows)

    def style_reward(self, rows: Rows) -> Tensor:
        """Return ``max(0, 1 - (D - 1)^2 / 4)`` (N, 1) (equation 7)."""
        score: Tensor = self.discriminator(rows.now, rows.next.features(self.discriminator.body))
        return (1 - 0.25 * (score - 1).square()).clamp(min=0)

    def discriminator_loss(self, policy: Rows, expert: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the squared errors to -1 for the policy and 1 for the expert, with the gradient penalty (equation 8).

        The penalty is half the squared norm of the score's gradient by the features of both observations.
        """
        network = self.discriminator
        by_policy: Tensor = network(policy.now, policy.next.features(network.body))
        assert network.joint is not None
        pairs = network.inputs(expert.now, expert.next.features(network.body)).requires_grad_()
        by_expert: Tensor = network.head(network.joint(pairs))
        (slopes,) = torch.autograd.grad(by_expert.sum(), pairs, create_graph=True)
        penalty = expert.mean(slopes.square().sum(1, keepdim=True))
        errors = policy.mean((by_policy + 1).square()) + expert.mean((by_expert - 1).square())
        return errors + 0.5 * self.gradient_penalty_coef * penalty, by_policy, by_expert


class AMP(AMPReward, PPO):
    """Peng et al., "AMP: Adversarial Motion Priors for Stylized Physics-Based Character Control" (arXiv 2104.02180).

    The style reward depends on successive observations alone, so that demonstrations may be of another body or task;
    their actions and rewards are not used. ``class StylizedA2C(AMPReward, A2C)`` is AMP on another on-policy algorithm.
    """
