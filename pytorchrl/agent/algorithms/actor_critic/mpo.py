"""MPO: a policy fitted to sampled actions weighted by exponentiated Q-values, within KL trust regions."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, DistributionHead, GaussianPolicy, SquashedGaussianPolicy
from pytorchrl.agent.actors.outputs import DiagonalGaussian, Distribution, ScalarValue, SquashedGaussian
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval


class MPO(OffPolicyAlgorithm):
    """Abdolmaleki et al., "Maximum a Posteriori Policy Optimisation" (arXiv 1806.06920).

    Mean and covariance have separate trust regions around the target policy (Abdolmaleki et al., "Relative Entropy
    Regularized Policy Iteration", arXiv 1812.02256), so that the covariance does not collapse. Targets use the
    storage's one-step or n-step returns instead of Retrace.

    Args:
        distribution: of the policy's actions: a ``GaussianPolicy`` with a bounded mean, whose actions are clipped for
            critics and environments, or a ``SquashedGaussianPolicy``.
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_dual: learning rate of the log-temperature and of the logarithms of the multipliers.
        polyak: weight that target networks keep in each of their updates; 0 copies the online networks.
        target_update_interval: batches between updates of the target networks.
        num_critics: number of critics, of which the minimum is taken.
        num_samples: actions sampled from the target policy in each state.
        epsilon: bound of the KL divergence of the weighted actions from the target policy in the E-step, in nats, which
            determines the temperature.
        epsilon_mean: bound of the KL divergence from the target policy by the mean, in nats.
        epsilon_covariance: bound of the KL divergence from the target policy by the covariance, in nats.
        initial_eta: initial temperature, in return per nat.
        initial_multiplier: initial Lagrange multiplier of the trust regions.
    """

    actions = "bounded"
    unchangeable = frozenset({"distribution", "num_critics", "initial_eta", "initial_multiplier"})

    distribution: DistributionHead = GaussianPolicy("state-dependent", bounded_mean=True, initial_log_std=-0.5)
    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    lr_dual: NonNegativeOrSchedule = 1e-2
    polyak: UnitInterval = 0.0
    target_update_interval: Count = 50
    num_critics: Count = 2
    num_samples: Count = 20
    epsilon: Positive = 0.1
    epsilon_mean: Positive = 0.1
    epsilon_covariance: Positive = 5e-4
    initial_eta: Positive = 1.0
    initial_multiplier: Positive = 1.0
    test_every: CountOrZero = 5_000

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is Gaussian, over scaled actions."""
        super().check_hyper_parameters(hyper_parameters)
        head = hyper_parameters["distribution"]
        if not (head.is_scaled and isinstance(head, GaussianPolicy | SquashedGaussianPolicy)):
            raise ValueError(
                f"{cls.__name__}: distribution must be a GaussianPolicy(bounded_mean=True) or a "
                f"SquashedGaussianPolicy(), whose mean and covariance are constrained separately, got {head!r}"
            )

    def build(self) -> None:
        """Make policy, critics, target networks, log-temperature and log-multipliers."""
        self.pi = self.actor.make("policy", self.distribution, acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_pi = self.target(self.pi, every="target_update_interval")
        self.target_critics = self.target(self.critics, every="target_update_interval")
        self.train_eta = self.variable("log_eta", math.log(self.initial_eta), lr="lr_dual")
        self.train_multipliers = {
            part: self.variable(f"log_alpha_{part}", math.log(self.initial_multiplier), lr="lr_dual")
            for part in ("mean", "covariance")
        }

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of critics, policy and dual variables (equations 4 to 6 and 8 of arXiv 1812.02256)."""
        with torch.no_grad():
            _, _, next_values = self.sampled(rows.next)
            target = ScalarValue(next_values.mean(1, keepdim=True)).backup(rows.reward, rows.discount)
            before, action, values = self.sampled(rows.now)
        critic_loss, errors = loss_of_critics(self.critics(rows.now, rows.action), target, rows)
        eta = self.training.variables["log_eta"].exp()
        # The logarithm of a mean over the sampled actions.
        log_mean = torch.logsumexp(values / eta - math.log(self.num_samples), 1, keepdim=True)
        dual = (eta * (self.epsilon + rows.mean(log_mean))).sum()
        weights = torch.softmax(values / eta.detach(), dim=1)
        policy: DiagonalGaussian | SquashedGaussian = self.pi(rows.now)
        (mean, log_std), (mean_before, log_std_before) = policy.parameters, before.parameters
        kind = type(policy)
        parts = {
            "mean": (kind(mean, log_std_before), self.epsilon_mean),
            "covariance": (kind(mean_before, log_std), self.epsilon_covariance),
        }
        policy_loss, losses = torch.zeros_like(dual), {self.train_critics: critic_loss, self.train_eta: dual}
        metrics = {"eta": eta.detach()[0], "entropy": rows.mean(policy.entropy().detach())}
        for name, (part, epsilon) in parts.items():
            alpha = self.training.variables[f"log_alpha_{name}"].exp()
            kl = rows.mean(before.kl(part))
            likelihood = rows.mean((weights * part.log_prob(action)[..., 0].T).sum(1, keepdim=True))
            policy_loss = policy_loss - likelihood + alpha.detach()[0] * kl
            losses[self.train_multipliers[name]] = (alpha * (epsilon - kl.detach())).sum()
            metrics |= {f"kl_{name}": kl.detach(), f"alpha_{name}": alpha.detach()[0]}
        metrics |= {"policy_loss": policy_loss.detach(), "critic_loss": critic_loss.detach()}
        metrics["q_value"] = rows.mean(values.mean(1, keepdim=True))
        return Losses({**losses, self.train_pi: policy_loss}, metrics, errors)

    def sampled(self, view: View) -> tuple[Distribution, Tensor, Tensor]:
        """Return the target policy, M actions (M, N, *action) of it, and their values (N, M) by the target critics."""
        number = self.num_samples
        policy: Distribution = self.target_pi(view)
        action = policy.sample(self.generator, number)
        rows = self.codec.clip(action).transpose(0, 1).flatten(0, 1)
        values = smallest(self.target_critics(Repeated(view, number), rows)).mean.view(-1, number)
        return policy, action, values

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return Sample()
