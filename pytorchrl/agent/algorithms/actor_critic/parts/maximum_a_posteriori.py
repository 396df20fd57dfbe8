"""Base class of MPO for all action spaces."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import Distribution, ScalarValue, Value
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import critic_loss_of
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval


class Candidates(NamedTuple):
    """Actions of the target policy, M for each of N rows."""

    policy: Distribution
    """The target policy."""
    log_prior: Tensor
    """(N, M) or (N, 1): log-weight of each action in expectations over the target policy."""
    values: Tensor
    """(N, M): Q-values by the target critics."""
    log_prob: Callable[[Distribution], Tensor]
    """Computes log-probabilities (N, M) of the actions under a distribution."""

    @property
    def mean(self) -> Tensor:
        """(N, 1): expected value of the target policy."""
        return (self.log_prior.exp() * self.values).sum(1, keepdim=True)


class MaximumAPosteriori(OffPolicyAlgorithm):
    """Fits a policy to actions of the target policy weighted by ``exp(Q / eta)``, within KL trust regions.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_dual: learning rate of the log-temperature and of the logarithms of the multipliers.
        polyak: weight that target networks keep in each of their updates; 0 copies the online networks.
        target_update_interval: batches between updates of the target networks.
        num_critics: number of critics, of which the minimum is taken.
        epsilon: bound of the KL divergence of the weighted actions from the target policy in the E-step, in nats, which
            determines the temperature.
        initial_eta: initial temperature, in return per nat.
        initial_multiplier: initial Lagrange multiplier of the trust regions.
    """

    unchangeable = frozenset({"num_critics", "initial_eta", "initial_multiplier"})

    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    lr_dual: NonNegativeOrSchedule = 1e-2
    polyak: UnitInterval = 0.0
    target_update_interval: Count = 50
    num_critics: Count = 2
    epsilon: Positive = 0.1
    initial_eta: Positive = 1.0
    initial_multiplier: Positive = 1.0
    test_every: CountOrZero = 5_000

    @abstractmethod
    def policy_head(self) -> Head:
        """Return the head of the policy."""

    @abstractmethod
    def make_critics(self) -> Ensemble:
        """Make the Q-networks."""

    @abstractmethod
    def trust_regions(self) -> Mapping[str, float]:
        """Return the bounds of the KL divergence from the target policy by part of the policy, in nats."""

    @abstractmethod
    def parts(self, policy: Any, before: Any) -> Mapping[str, Distribution]:
        """Return, by part, the target policy ``before`` with that part replaced by the new policy's."""

    @abstractmethod
    def candidates(self, view: View) -> Candidates:
        """Return actions of the target policy, with their Q-values by the target critics."""

    @abstractmethod
    def values_taken(self, rows: Rows) -> Sequence[Value]:
        """Return the critics' values of the actions taken."""

    def build(self) -> None:
        """Make policy, critics, target networks, log-temperature and log-multipliers."""
        self.pi = self.actor.make("policy", self.policy_head(), acts=True)
        self.critics = self.make_critics()
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_pi = self.target(self.pi, every="target_update_interval")
        self.target_critics = self.target(self.critics, every="target_update_interval")
        self.train_eta = self.variable("log_eta", math.log(self.initial_eta), lr="lr_dual")
        self.train_multipliers = {
            part: self.variable(f"log_alpha_{part}", math.log(self.initial_multiplier), lr="lr_dual")
            for part in self.trust_regions()
        }

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return Sample()

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """Return the distribution of actions."""
        policy: Distribution = self.pi(view)
        return policy

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of critics, policy and dual variables."""
        with torch.no_grad():
            target = ScalarValue(self.candidates(rows.next).mean).backup(rows.reward, rows.discount)
            now = self.candidates(rows.now)
        critic_loss, errors = critic_loss_of(self.values_taken(rows), target, rows)
        losses, metrics = self.policy_losses(rows, now)
        losses[self.train_critics] = critic_loss
        metrics |= {"critic_loss": critic_loss.detach(), "q_value": rows.mean(now.mean)}
        return Losses(losses, metrics, errors)

    def policy_losses(self, rows: Rows, now: Candidates) -> tuple[dict[Trained, Tensor], Metrics]:
        """Return the losses of policy and dual variables.

        Abdolmaleki et al., "Relative Entropy Regularized Policy Iteration" (arXiv 1812.02256), equations 4 to 6 and 8.
        """
        eta = self.training.variables["log_eta"].exp()
        scores = now.log_prior + now.values / eta
        dual = (eta * (self.epsilon + rows.mean(scores.logsumexp(1, keepdim=True)))).sum()
        weights = torch.softmax(scores.detach(), dim=1)
        policy: Distribution = self.pi(rows.now)
        losses = {self.train_eta: dual}
        metrics = {"eta": eta.detach()[0], "entropy": rows.mean(policy.entropy().detach())}
        policy_loss = torch.zeros_like(dual)
        for name, part in self.parts(policy, now.policy).items():
            alpha = self.training.variables[f"log_alpha_{name}"].exp()
            kl = rows.mean(now.policy.kl(part))
            likelihood = rows.mean((weights * now.log_prob(part)).sum(1, keepdim=True))
            policy_loss = policy_loss - likelihood + alpha.detach()[0] * kl
            losses[self.train_multipliers[name]] = (alpha * (self.trust_regions()[name] - kl.detach())).sum()
            metrics |= {f"kl_{name}": kl.detach(), f"alpha_{name}": alpha.detach()[0]}
        losses[self.train_pi] = policy_loss
        return losses, metrics | {"policy_loss": policy_loss.detach()}
