"""BEAR: a policy that stays within the support of the data's actions, by their mean discrepancy."""

import math

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import SquashedGaussianPolicy
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import SquashedGaussian, Value
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import elementwise_minimum
from pytorchrl.agent.algorithms.offline.parts.actions_like_the_data import ActionsLikeTheData
from pytorchrl.agent.algorithms.offline.parts.maximum_mean_discrepancy import Kernel, maximum_mean_discrepancy
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive

_SMALLEST_LOG_MULTIPLIER, _LARGEST_LOG_MULTIPLIER = -5.0, 10.0


class BEAR(ActionsLikeTheData):
    """Kumar et al., "Stabilizing Off-Policy Q-Learning via Bootstrapping Error Reduction" (arXiv 1906.00949).

    A squashed normal policy proposes actions. It raises the smallest critic's value while its discrepancy to an
    autoencoder of the data's actions stays below a threshold (equation 1). The discrepancy is that of actions before
    the tanh, so that its gradient remains where actions lie at their bounds.

    Args:
        lr_multiplier: learning rate of the multiplier's logarithm.
        initial_multiplier: at first, what a unit of discrepancy costs the policy.
        threshold: the discrepancy that the multiplier aims at.
        kernel: of the discrepancy.
        sigma: width of the kernel.
        num_kernel_actions: actions of the policy, and of the autoencoder, that are compared in each state.
        noise_clip: bound of the policy's noise in actions that are compared, in standard deviations.
        warmup_updates: first updates, in which the policy learns from the discrepancy alone.
    """

    unchangeable = ActionsLikeTheData.unchangeable | {"initial_multiplier"}

    lr_vae: NonNegativeOrSchedule = 3e-4
    lr_pi: NonNegativeOrSchedule = 1e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    lr_multiplier: NonNegativeOrSchedule = 1e-3
    initial_multiplier: Positive = 1.0
    threshold: Positive = 0.05
    kernel: Kernel = "gaussian"
    sigma: Positive = 20.0
    num_kernel_actions: Count = 5
    noise_clip: Positive = 0.5
    warmup_updates: CountOrZero = 20_000

    def build_proposals(self) -> None:
        """The policy and its target, and the logarithm of the multiplier."""
        self.pi = self.actor.make("policy", SquashedGaussianPolicy(), acts=True)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.target_pi: Network = self.target(self.pi)
        self.train_multiplier = self.variable("log_multiplier", math.log(self.initial_multiplier), lr="lr_multiplier")

    @property
    def log_multiplier(self) -> Tensor:
        """(1,): logarithm of what a unit of discrepancy costs the policy."""
        return self.training.variables["log_multiplier"]

    def proposed(self, view: View, rows: int, number: int, generator: torch.Generator, *, by_target: bool) -> Tensor:
        """(N * number, A): drawn from the policy."""
        policy: SquashedGaussian = (self.target_pi if by_target else self.pi)(view)
        return policy.sample(generator, number).transpose(0, 1).flatten(0, 1)

    def losses_of_proposals(self, rows: Rows) -> tuple[dict[Trained, Tensor], Metrics]:
        """Of the policy, and of the multiplier, which rises where the discrepancy is above the threshold."""
        number = self.num_kernel_actions
        with torch.no_grad():
            decoded = self.vae.unsquashed(
                Repeated(rows.now, number), len(rows) * number, self.latent_clip, self.generator
            ).view(len(rows), number, -1)
        unsquashed = self._unsquashed(rows.now)
        discrepancy = rows.mean(maximum_mean_discrepancy(decoded, unsquashed, self.kernel, self.sigma))
        multiplier = self.log_multiplier.exp()
        policy_loss = multiplier.detach()[0] * discrepancy
        if self.updates >= self.warmup_updates:
            policy_loss = policy_loss - rows.mean(self._value(rows, torch.tanh(unsquashed)))
        dual_loss = (multiplier * (self.threshold - discrepancy.detach())).sum()
        metrics = {"policy_loss": policy_loss, "discrepancy": discrepancy, "multiplier": multiplier[0]}
        losses = {self.train_pi: policy_loss, self.train_multiplier: dual_loss}
        return losses, {name: metric.detach() for name, metric in metrics.items()}

    def end_update(self) -> None:
        """Keep the multiplier within its bounds, too."""
        with torch.no_grad():
            self.log_multiplier.clamp_(_SMALLEST_LOG_MULTIPLIER, _LARGEST_LOG_MULTIPLIER)
        super().end_update()

    def _unsquashed(self, view: View) -> Tensor:
        """(N, n, A): actions of the policy before the tanh, of clipped noise, with gradients."""
        policy: SquashedGaussian = self.pi(view)
        mean, std = policy.normal_mean.unsqueeze(1), policy.log_std.exp().unsqueeze(1)
        noise = torch.empty_like(mean.expand(-1, self.num_kernel_actions, -1)).normal_(generator=self.generator)
        return mean + std * noise.clamp(-self.noise_clip, self.noise_clip)

    def _value(self, rows: Rows, action: Tensor) -> Tensor:
        """(N, 1): the smallest critic's mean value of actions (N, n, A)."""
        with self.critics.frozen():
            values: list[Value] = self.critics(Repeated(rows.now, action.shape[1]), action.flatten(0, 1))
        return elementwise_minimum([value.mean.view(len(rows), -1).mean(1, keepdim=True) for value in values])
