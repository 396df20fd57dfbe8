"""BEAR: off-policy actor-critic constrained to the data's support by maximum mean discrepancy."""

import math

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import SquashedGaussianPolicy
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import SquashedGaussian, Value
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import elementwise_minimum
from pytorchrl.agent.algorithms.offline.maximum_mean_discrepancy import Kernel, maximum_mean_discrepancy
from pytorchrl.agent.algorithms.offline.parts.batch_constrained import BatchConstrained
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive

_SMALLEST_LOG_MULTIPLIER, _LARGEST_LOG_MULTIPLIER = -5.0, 10.0


class BEAR(BatchConstrained):
    """Kumar et al., "Stabilizing Off-Policy Q-Learning via Bootstrapping Error Reduction" (arXiv 1906.00949).

    A squashed Gaussian policy maximises the minimum of the critics, subject to a bound on its maximum mean discrepancy
    (MMD) to an autoencoder of the data's actions (equation 1). The MMD is computed before the tanh, so that its
    gradient does not vanish at the bounds of actions.

    Args:
        lr_multiplier: learning rate of the multiplier's logarithm.
        initial_multiplier: initial Lagrange multiplier of the MMD.
        threshold: bound of the MMD.
        kernel: of the MMD.
        sigma: width of the kernel.
        num_kernel_actions: actions per state of the policy, and of the autoencoder, in the MMD.
        noise_clip: bound of the policy's noise in those actions, in standard deviations.
        warmup_updates: initial updates in which the policy minimises only the MMD.
    """

    unchangeable = frozenset({"initial_multiplier"})

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
        """Make the policy, its target, and the logarithm of the multiplier."""
        self.pi = self.actor.make("policy", SquashedGaussianPolicy(), acts=True)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.target_pi: Network = self.target(self.pi)
        self.train_multiplier = self.variable("log_multiplier", math.log(self.initial_multiplier), lr="lr_multiplier")

    @property
    def log_multiplier(self) -> Tensor:
        """(1,): logarithm of the Lagrange multiplier."""
        return self.training.variables["log_multiplier"]

    def proposed(self, view: View, rows: int, number: int, generator: torch.Generator, *, by_target: bool) -> Tensor:
        """Return actions (N * number, A) sampled from the policy."""
        policy: SquashedGaussian = (self.target_pi if by_target else self.pi)(view)
        return policy.sample(generator, number).transpose(0, 1).flatten(0, 1)

    def losses_of_proposals(self, rows: Rows) -> tuple[dict[Trained, Tensor], Metrics]:
        """Return the losses of policy and multiplier, which rises while the MMD exceeds the threshold."""
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
        """Clip the multiplier, then end the update."""
        with torch.no_grad():
            self.log_multiplier.clamp_(_SMALLEST_LOG_MULTIPLIER, _LARGEST_LOG_MULTIPLIER)
        super().end_update()

    def _unsquashed(self, view: View) -> Tensor:
        """Return reparameterised actions (N, n, A) before the tanh, with clipped noise."""
        policy: SquashedGaussian = self.pi(view)
        mean, std = policy.normal_mean.unsqueeze(1), policy.log_std.exp().unsqueeze(1)
        noise = torch.empty_like(mean.expand(-1, self.num_kernel_actions, -1)).normal_(generator=self.generator)
        return mean + std * noise.clamp(-self.noise_clip, self.noise_clip)

    def _value(self, rows: Rows, action: Tensor) -> Tensor:
        """Return the minimum over critics of the mean Q-value (N, 1) of actions (N, n, A)."""
        with self.critics.frozen():
            values: list[Value] = self.critics(Repeated(rows.now, action.shape[1]), action.flatten(0, 1))
        return elementwise_minimum([value.mean.view(len(rows), -1).mean(1, keepdim=True) for value in values])
