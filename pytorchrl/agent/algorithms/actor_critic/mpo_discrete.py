"""MPO for discrete actions, with exact expectations over them."""

import math
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import Policy, Values
from pytorchrl.agent.actors.outputs import ActionValues, Categorical, ScalarValue
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import elementwise_minimum, loss_of_critics
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Sample
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval


class MPODiscrete(OffPolicyAlgorithm):
    """Abdolmaleki et al., "Maximum a Posteriori Policy Optimisation" (arXiv 1806.06920), over all actions of a state.

    Args:
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_dual: learning rate of the log-temperature and of the logarithm of the multiplier.
        polyak: weight that target networks keep in each of their updates; 0 copies the online networks.
        target_update_interval: batches between updates of the target networks.
        num_critics: number of critics, of which the minimum is taken.
        epsilon: bound of the KL divergence of the weighted actions from the target policy in the E-step, in nats, which
            determines the temperature.
        epsilon_policy: bound of the KL divergence from the target policy, in nats.
        initial_eta: initial temperature, in return per nat.
        initial_multiplier: initial Lagrange multiplier of the trust region.
    """

    actions = "discrete"
    unchangeable = frozenset({"num_critics", "initial_eta", "initial_multiplier"})

    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    lr_dual: NonNegativeOrSchedule = 1e-2
    polyak: UnitInterval = 0.0
    target_update_interval: Count = 50
    num_critics: Count = 2
    epsilon: Positive = 0.1
    epsilon_policy: Positive = 0.1
    initial_eta: Positive = 1.0
    initial_multiplier: Positive = 1.0
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """Make policy, critics, target networks, log-temperature and log-multiplier."""
        self.pi = self.actor.make("policy", Policy(), acts=True)
        self.critics = self.actor.make_ensemble("critics", Values(huber_threshold=None), self.num_critics)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_pi = self.target(self.pi, every="target_update_interval")
        self.target_critics = self.target(self.critics, every="target_update_interval")
        self.train_eta = self.variable("log_eta", math.log(self.initial_eta), lr="lr_dual")
        self.train_alpha = self.variable("log_alpha_policy", math.log(self.initial_multiplier), lr="lr_dual")

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of critics, policy and dual variables (equations 4 to 6 and 8 of arXiv 1812.02256)."""
        with torch.no_grad():
            next_policy, next_values = self.evaluated(rows.next)
            target = ScalarValue(_expectation(next_policy, next_values)).backup(rows.reward, rows.discount)
            before, values = self.evaluated(rows.now)
        critics: list[ActionValues] = self.critics(rows.now)
        critic_loss, errors = loss_of_critics([critic.of(rows.action) for critic in critics], target, rows)
        eta, alpha = (self.training.variables[name].exp() for name in ("log_eta", "log_alpha_policy"))
        scores = before.log_probs + values / eta
        dual = (eta * (self.epsilon + rows.mean(scores.logsumexp(1, keepdim=True)))).sum()
        weights = torch.softmax(scores.detach(), dim=1)
        policy: Categorical = self.pi(rows.now)
        kl = rows.mean(before.kl(policy))
        likelihood = rows.mean((weights * policy.log_probs).sum(1, keepdim=True))
        policy_loss = alpha.detach()[0] * kl - likelihood
        losses = {
            self.train_critics: critic_loss,
            self.train_pi: policy_loss,
            self.train_eta: dual,
            self.train_alpha: (alpha * (self.epsilon_policy - kl.detach())).sum(),
        }
        metrics = {
            "critic_loss": critic_loss.detach(),
            "q_value": rows.mean(_expectation(before, values)),
            "policy_loss": policy_loss.detach(),
            "entropy": rows.mean(policy.entropy().detach()),
            "eta": eta.detach()[0],
            "kl_policy": kl.detach(),
            "alpha_policy": alpha.detach()[0],
        }
        return Losses(losses, metrics, errors)

    def evaluated(self, view: View) -> tuple[Categorical, Tensor]:
        """Return the target policy, and the values (N, n) of all actions by the target critics."""
        policy: Categorical = self.target_pi(view)
        return policy, elementwise_minimum([critic.values for critic in self.target_critics(view)])

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return the distribution of actions."""
        return self.pi(view)

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return Sample()


def _expectation(policy: Categorical, values: Tensor) -> Tensor:
    """Return the expected value (N, 1) of a policy."""
    return (policy.probabilities * values).sum(1, keepdim=True)
