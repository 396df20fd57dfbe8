"""What MPO makes of a batch in all action spaces."""

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
from pytorchrl.agent.algorithms.actor_critic.parts.critics import judge_critics
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
    """(N, M) or (N, 1): logarithm of the share of each, by which they are an expectation over the policy."""
    values: Tensor
    """(N, M): by the target critics."""
    log_prob: Callable[[Distribution], Tensor]
    """(N, M): log probabilities of the candidates under a distribution."""

    @property
    def mean(self) -> Tensor:
        """(N, 1): the expected value of the target policy."""
        return (self.log_prior.exp() * self.values).sum(1, keepdim=True)


class MaximumAPosteriori(OffPolicyAlgorithm):
    """Fits a policy to the actions of its slow copy, weighted by ``exp(value / eta)``, within trust regions.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_dual: learning rate of the logarithms of temperature and multipliers.
        polyak: how much of the targets stays at each of their updates; 0 copies the networks.
        target_update_interval: batches between updates of the targets.
        num_critics: critics, the smallest of whose values counts.
        epsilon: how far the weighted actions may diverge from the target policy, in nats; the temperature follows.
        initial_eta: the temperature at first: what a nat of that divergence is worth in return.
        initial_multiplier: at first, what a nat beyond a trust region costs the policy.
    """

    unchangeable = OffPolicyAlgorithm.unchangeable | {"num_critics", "initial_eta", "initial_multiplier"}

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
        """The distribution of actions."""

    @abstractmethod
    def make_critics(self) -> Ensemble:
        """Networks that value actions."""

    @abstractmethod
    def trust_regions(self) -> Mapping[str, float]:
        """The largest divergence from the target policy of each part of the policy, in nats."""

    @abstractmethod
    def parts(self, policy: Any, before: Any) -> Mapping[str, Distribution]:
        """By part, the target policy with that part of the policy that is learnt."""

    @abstractmethod
    def candidates(self, view: View) -> Candidates:
        """Actions of the target policy in a view, and what the target critics say of them."""

    @abstractmethod
    def values_taken(self, rows: Rows) -> Sequence[Value]:
        """The critics' values of the actions taken."""

    def build(self) -> None:
        """A policy, critics, their targets, and the logarithms of temperature and multipliers."""
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
        """Draw actions from the policy."""
        return Sample()

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """The distribution of actions."""
        policy: Distribution = self.pi(view)
        return policy

    def losses(self, rows: Rows) -> Losses:
        """The critics' errors, the weighted likelihood within trust regions, and the dual variables' losses."""
        with torch.no_grad():
            target = ScalarValue(self.candidates(rows.next).mean).backup(rows.reward, rows.discount)
            now = self.candidates(rows.now)
        critic_loss, errors = judge_critics(self.values_taken(rows), target, rows)
        losses, metrics = self.policy_losses(rows, now)
        losses[self.train_critics] = critic_loss
        metrics |= {"critic_loss": critic_loss.detach(), "q_value": rows.mean(now.mean)}
        return Losses(losses, metrics, errors)

    def policy_losses(self, rows: Rows, now: Candidates) -> tuple[dict[Trained, Tensor], Metrics]:
        """Of policy, temperature and multipliers: Abdolmaleki et al. (arXiv 1812.02256), equations 4 to 6, 8."""
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
