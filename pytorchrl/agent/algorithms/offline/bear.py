"""BEAR: off-policy actor-critic constrained to the data's support by maximum mean discrepancy."""

import math
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, SquashedGaussianPolicy
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue, SquashedGaussian, Value
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.critics import elementwise_minimum, loss_of_critics
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.offline.action_autoencoder import ActionAutoencoder, best_proposed, largest_mixed_target
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
)

Kernel: TypeAlias = Literal["gaussian", "laplacian"]
_SMALLEST_LOG_MULTIPLIER, _LARGEST_LOG_MULTIPLIER = -5.0, 10.0


class BEAR(OffPolicyAlgorithm):
    """Kumar et al., "Stabilizing Off-Policy Q-Learning via Bootstrapping Error Reduction" (arXiv 1906.00949).

    A squashed Gaussian policy maximises the minimum of the critics, subject to a bound on its maximum mean discrepancy
    (MMD) to an autoencoder of the data's actions (equation 1). The MMD is computed before the tanh, so that its
    gradient does not vanish at the bounds of actions. Actions are scaled to [-1, 1].

    Args:
        lr_vae: learning rate of the autoencoder.
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_multiplier: learning rate of the multiplier's logarithm.
        polyak: weight that target networks keep in each of their updates.
        target_update_interval: updates between updates of the target networks.
        num_critics: number of critics, with separate weights.
        kl_weight: weight of the KL divergence of the autoencoder's latents from the prior; a smaller one makes decoded
            actions more diverse.
        latent_clip: bound of the latents that actions are decoded from.
        minimum_weight: weight of the critics' minimum in a target; their maximum has the rest (lambda).
        num_target_actions: actions sampled in each next state.
        num_actions: actions sampled when acting.
        initial_multiplier: initial Lagrange multiplier of the MMD.
        threshold: bound of the MMD.
        kernel: of the MMD.
        sigma: width of the kernel.
        num_kernel_actions: actions per state of the policy, and of the autoencoder, in the MMD.
        noise_clip: bound of the policy's noise in those actions, in standard deviations.
        warmup_updates: initial updates in which the policy minimises only the MMD.
    """

    constrained_to_data: ClassVar[bool] = True
    actions = "bounded"
    unchangeable = frozenset({"num_critics", "initial_multiplier"})

    lr_vae: NonNegativeOrSchedule = 3e-4
    lr_pi: NonNegativeOrSchedule = 1e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    lr_multiplier: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    num_critics: Count = 2
    kl_weight: NonNegative = 0.5
    latent_clip: Positive = 0.5
    minimum_weight: UnitInterval = 0.75
    num_target_actions: Count = 10
    num_actions: Count = 100
    initial_multiplier: Positive = 1.0
    threshold: Positive = 0.05
    kernel: Kernel = "gaussian"
    sigma: Positive = 20.0
    num_kernel_actions: Count = 5
    noise_clip: Positive = 0.5
    warmup_updates: CountOrZero = 20_000
    mini_batch_size: Count = 100
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """Make autoencoder, policy, critics, target networks and the logarithm of the multiplier."""
        self.vae = ActionAutoencoder(self.actor, self.codec)
        self.train_vae = self.train("vae", self.vae.encoder, self.vae.decoder, lr="lr_vae")
        self.pi = self.actor.make("policy", SquashedGaussianPolicy(), acts=True)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.target_pi: Network = self.target(self.pi, every="target_update_interval")
        self.train_multiplier = self.variable("log_multiplier", math.log(self.initial_multiplier), lr="lr_multiplier")
        make = self.actor.make_ensemble
        self.critics = make("critics", ActionValue(), self.num_critics, codec=self.codec, acts=True)
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of autoencoder and critics."""
        vae_loss = self.vae.loss(rows, self.kl_weight, self.generator)
        values = self.critics(rows.now, rows.action)
        critic_loss, errors = loss_of_critics(values, self.target_value(rows), rows)
        metrics = {"vae_loss": vae_loss.detach(), "critic_loss": critic_loss.detach()}
        return Losses({self.train_vae: vae_loss, self.train_critics: critic_loss}, metrics, errors)

    @torch.no_grad()
    def target_value(self, rows: Rows) -> ScalarValue:
        """Return the TD target: the best next action by a weighted minimum and maximum of the critics (algorithm 1)."""
        number = self.num_target_actions
        action = self._sampled(self.target_pi(rows.next), number, self.generator)
        return largest_mixed_target(self.target_critics, rows, action, number, self.minimum_weight)

    def losses_after_step(self, rows: Rows) -> Losses:
        """Return the losses of policy and multiplier (equation 1), which rises while the MMD exceeds the threshold."""
        number = self.num_kernel_actions
        several = Repeated(rows.now, number)
        with torch.no_grad():
            decoded = self.vae.sample_unsquashed(several, len(rows) * number, self.latent_clip, self.generator)
        unsquashed = self._unsquashed(self.pi(rows.now))
        mmd = maximum_mean_discrepancy(decoded.view(len(rows), number, -1), unsquashed, self.kernel, self.sigma)
        discrepancy, multiplier = rows.mean(mmd), self.log_multiplier.exp()
        policy_loss = multiplier.detach()[0] * discrepancy
        if self.updates >= self.warmup_updates:
            with self.critics.frozen():
                values: list[Value] = self.critics(several, torch.tanh(unsquashed).flatten(0, 1))
            means = [value.mean.view(len(rows), -1).mean(1, keepdim=True) for value in values]
            policy_loss = policy_loss - rows.mean(elementwise_minimum(means))
        dual_loss = (multiplier * (self.threshold - discrepancy.detach())).sum()
        metrics = {"policy_loss": policy_loss, "discrepancy": discrepancy, "multiplier": multiplier[0]}
        losses = {self.train_pi: policy_loss, self.train_multiplier: dual_loss}
        return Losses(losses, {name: metric.detach() for name, metric in metrics.items()})

    def end_update(self) -> None:
        """Clip the multiplier, then end the update."""
        with torch.no_grad():
            self.log_multiplier.clamp_(_SMALLEST_LOG_MULTIPLIER, _LARGEST_LOG_MULTIPLIER)
        super().end_update()

    def policy(self, view: View, exploration: Exploration) -> Tensor:
        """Return the sampled action with the largest value by the first critic."""
        number = self.num_actions
        action = self._sampled(self.pi(view), number, exploration.generator)
        return best_proposed(self.critics[0], view, action, number)

    def default_explorer(self) -> Explorer:
        """Return the best sampled action, without noise."""
        return Greedy()

    @property
    def log_multiplier(self) -> Tensor:
        """(1,): logarithm of the Lagrange multiplier."""
        return self.training.variables["log_multiplier"]

    @staticmethod
    def _sampled(policy: SquashedGaussian, number: int, generator: torch.Generator) -> Tensor:
        """Return actions (N * number, A) of N rows, those of a row consecutively."""
        return policy.sample(generator, number).transpose(0, 1).flatten(0, 1)

    def _unsquashed(self, policy: SquashedGaussian) -> Tensor:
        """Return reparameterised actions (N, n, A) before the tanh, with clipped noise."""
        mean, std = policy.normal_mean.unsqueeze(1), policy.log_std.exp().unsqueeze(1)
        noise = torch.empty_like(mean.expand(-1, self.num_kernel_actions, -1)).normal_(generator=self.generator)
        return mean + std * noise.clamp(-self.noise_clip, self.noise_clip)


_TINY = 1e-6
"""Keeps the gradient of the square root finite where two sets are equal."""


def maximum_mean_discrepancy(some: Tensor, others: Tensor, kernel: Kernel, sigma: float) -> Tensor:
    """Return the maximum mean discrepancy (N, 1) of two sets of actions in each row.

    Gretton et al., "A Kernel Two-Sample Test" (JMLR 13, 2012), over all pairs including those of an action with itself,
    as in Kumar et al. (arXiv 1906.00949), equation 4 and appendix.

    Args:
        some: (N, n, A).
        others: (N, m, A).
        kernel: ``exp(-d / (2 * sigma))`` of squared distances d ("gaussian") or L1 distances ("laplacian").
        sigma: width of the kernel, not squared in either.
    """
    within = _mean_similarity(some, some, kernel, sigma) + _mean_similarity(others, others, kernel, sigma)
    return (within - 2 * _mean_similarity(some, others, kernel, sigma) + _TINY).sqrt()


def _mean_similarity(some: Tensor, others: Tensor, kernel: Kernel, sigma: float) -> Tensor:
    """Return the mean kernel value (N, 1) over all pairs."""
    difference = some.unsqueeze(2) - others.unsqueeze(1)
    distance = (difference.square() if kernel == "gaussian" else difference.abs()).sum(3)
    return (-distance / (2 * sigma)).exp().mean((1, 2)).unsqueeze(1)
