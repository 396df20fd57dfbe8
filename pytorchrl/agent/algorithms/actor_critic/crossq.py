"""CrossQ: SAC with batch-normalised critics and without target networks."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, DistributionHead, SquashedGaussianPolicy, check_bounded
from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.outputs import Distribution, ScalarValue
from pytorchrl.agent.actors.per_network import values_of_setting
from pytorchrl.agent.actors.stacked_memory import described_memory
from pytorchrl.agent.actors.view import Joined, View
from pytorchrl.agent.algorithms.action_spaces import ActionKind
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, explorer_for
from pytorchrl.agent.optimizers import Adam, Optimizer
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive


class CrossQ(OffPolicyAlgorithm):
    """Bhatt et al., "CrossQ: Batch Normalization in Deep RL for Greater Sample Efficiency" (arXiv 1902.05605).

    All layers of critics and policy use batch renormalisation. Running statistics are used when acting, for next
    actions, and by the critics in the policy's loss. The betas of ``Adam`` are of the networks; as in the authors'
    code, the temperature has the usual ones. Entropies are those of actions scaled to (-1, 1), as in SAC.

    Args:
        distribution: of the policy's actions, within their bounds and reparameterised.
        lr_pi: learning rate of the policy.
        lr_q: learning rate of the critics.
        lr_alpha: learning rate of the temperature.
        num_critics: number of critics, with separate weights.
        policy_delay: critic updates per update of the policy and of the temperature.
        initial_alpha: initial temperature, in reward per nat of entropy.
        learn_alpha: tune the temperature to a target entropy; False keeps the initial one.
        target_entropy: entropy that the temperature is tuned to, in nats; None takes minus the action's dimension.
        renorm_warmup: batches normalised by their own statistics alone, before running statistics correct these.

    Raises:
        ValueError: the actor has a memory, or ``late_action``, with which present and next state-action pairs cannot
            form one batch.
    """

    actions: ClassVar[ActionKind] = "bounded"
    unchangeable = frozenset({"distribution", "num_critics", "initial_alpha", "renorm_warmup"})

    distribution: DistributionHead = SquashedGaussianPolicy()
    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    lr_alpha: NonNegativeOrSchedule = 1e-3
    num_critics: Count = 2
    policy_delay: Count = 3
    initial_alpha: Positive = 1.0
    learn_alpha: bool = True
    target_entropy: float | None = None
    renorm_warmup: CountOrZero = 100_000
    optimizer: Optimizer = Adam(betas=(0.5, 0.999))
    test_every: CountOrZero = 5_000

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the distribution is over bounded actions, and that a batch has a variance."""
        super().check_hyper_parameters(hyper_parameters)
        check_bounded(hyper_parameters["distribution"], cls.__name__)
        if hyper_parameters["mini_batch_size"] < 2:
            raise ValueError(
                f"{cls.__name__} normalises by the statistics of each batch; mini_batch_size must be at least 2, got "
                f"{hyper_parameters['mini_batch_size']}"
            )

    def build(self) -> None:
        """Make policy, critics and log-temperature."""
        self._check_actor()
        layers: Layers = {"batch_renorm_warmup": self.renorm_warmup}
        self.pi = self.actor.make("policy", self.distribution, acts=True, layers=layers)
        critics = self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec, layers=layers)
        self.critics = critics
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        of_networks = self.optimizer
        optimizer = replace(of_networks, betas=Adam.betas) if isinstance(of_networks, Adam) else of_networks
        self.train_alpha = self.variable("log_alpha", math.log(self.initial_alpha), "lr_alpha", optimizer)

    def losses(self, rows: Rows) -> Losses:
        """Return the critics' loss; present and next pairs are evaluated in one pass, targets detached (figure 2)."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, log_prob = self.pi(rows.next).sample_with_log_prob(self.generator)
        both = self.critics(Joined(rows.now, rows.next), torch.cat([rows.action, next_action]))
        now, following = zip(*(value.mean.chunk(2) for value in both), strict=True)
        next_value = smallest([ScalarValue(value.detach()) for value in following])
        target = next_value.backup(rows.reward - alpha * rows.discount * log_prob, rows.discount)
        values = [ScalarValue(value, huber_threshold=None) for value in now]
        loss, errors = loss_of_critics(values, target, rows)
        return Losses({self.train_critics: loss}, {"critic_loss": loss.detach(), "alpha": alpha[0]}, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return SAC's losses of policy and temperature, with the updated critics and their running statistics."""
        if (self.updates + 1) % self.policy_delay:
            return None
        alpha = self.log_alpha.detach().exp()
        action, log_prob = self.pi(rows.now).sample_with_log_prob(self.generator)
        with self.critics.frozen():
            value = smallest(self.critics(rows.now, action)).mean
        policy_loss, entropy = rows.mean(alpha * log_prob - value), -rows.mean(log_prob.detach())
        losses = {self.train_pi: policy_loss}
        if self.learn_alpha:
            target = -float(self.codec.size) if self.target_entropy is None else self.target_entropy
            losses[self.train_alpha] = (self.log_alpha * (entropy - target)).sum()
        metrics = {"policy_loss": policy_loss.detach(), "q_value": rows.mean(value.detach()), "entropy": entropy}
        return Losses(losses, metrics)

    def policy(self, view: View, exploration: Exploration) -> Distribution:
        """Return the distribution of actions."""
        policy: Distribution = self.pi(view)
        return policy

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)

    @property
    def log_alpha(self) -> Tensor:
        """(1,): log-temperature."""
        return self.training.variables["log_alpha"]

    @property
    def alpha(self) -> float:
        """The temperature, in reward per nat of entropy."""
        return self.log_alpha.exp().item()

    def _check_actor(self) -> None:
        actor, name = self.actor, type(self).__name__
        if actor.memory is not None:
            raise ValueError(
                f"{name} normalises transitions as one batch, but {type(actor).__name__} has a memory "
                f"({described_memory(actor.memory)}); give it memory=None, or choose SAC, REDQ, DroQ or TQC"
            )
        if late := max(values_of_setting(actor, "late_action")):
            raise ValueError(
                f"{name} normalises observations and actions as one batch; give {type(actor).__name__} late_action=0, "
                f"got {late}"
            )
