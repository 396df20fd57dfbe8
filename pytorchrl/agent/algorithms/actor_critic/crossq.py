"""CrossQ: SAC with batch-normalised critics and without target networks."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch

from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.actors.per_network import values_of_setting
from pytorchrl.agent.actors.stacked_memory import described_memory
from pytorchrl.agent.actors.view import JoinedViews
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.optimizers import Adam, Optimizer
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule


class CrossQ(SAC):
    """Bhatt et al., "CrossQ: Batch Normalization in Deep RL for Greater Sample Efficiency" (arXiv 1902.05605).

    All layers of critics and policy use batch renormalisation. Running statistics are used when acting, for next
    actions, and by the critics in the policy's loss. The betas of ``Adam`` are of the networks; as in the authors'
    code, the temperature has the usual ones.

    Args:
        renorm_warmup: batches normalised by their own statistics alone, before running statistics correct these.

    Raises:
        ValueError: the actor has a memory, or ``late_action``, with which present and next state-action pairs cannot
            form one batch.
    """

    unchangeable = frozenset({"renorm_warmup"})
    unused: ClassVar[Mapping[str, str]] = {"target_value": "override losses"}

    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_alpha: NonNegativeOrSchedule = 1e-3
    policy_delay: Count = 3
    renorm_warmup: CountOrZero = 100_000
    optimizer: Optimizer = Adam(betas=(0.5, 0.999))
    # There are no target networks.
    polyak: ClassVar[float] = 0.0  # type: ignore[misc]
    target_update_interval: ClassVar[int] = 1  # type: ignore[misc]

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that a batch has a variance."""
        super().check_hyper_parameters(hyper_parameters)
        if hyper_parameters["mini_batch_size"] < 2:
            raise ValueError(
                f"{cls.__name__} normalises by the statistics of each batch; mini_batch_size must be at least 2, got "
                f"{hyper_parameters['mini_batch_size']}"
            )

    def build(self) -> None:
        """Make policy, critics and log-temperature."""
        self._check_actor()
        self.pi = self.actor.make("policy", self.distribution, acts=True, layers=self._layers())
        self.critics = self.make_critics()
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        of_networks = self.optimizer
        optimizer = replace(of_networks, betas=Adam.betas) if isinstance(of_networks, Adam) else of_networks
        self.train_alpha = self.variable("log_alpha", math.log(self.initial_alpha), "lr_alpha", optimizer)

    def make_critics(self) -> Ensemble:
        """Make critics with batch renormalisation."""
        head, number = self.critic_head(), self.num_critics
        return self.actor.make_ensemble("critics", head, number, codec=self.codec, layers=self._layers())

    def _layers(self) -> Layers:
        return {"batch_renorm_warmup": self.renorm_warmup}

    def losses(self, rows: Rows) -> Losses:
        """Return the critics' loss; present and next pairs are evaluated in one pass, targets detached (figure 2)."""
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            next_action, log_prob = self.pi(rows.next).sample_with_log_prob(self.generator)
        both = self.critics(JoinedViews(rows.now, rows.next), torch.cat([rows.action, next_action]))
        now, following = zip(*(value.mean.chunk(2) for value in both), strict=True)
        next_value = self.value_for_target([ScalarValue(value.detach()) for value in following])
        target = next_value.backup(rows.reward - alpha * rows.discount * log_prob, rows.discount)
        values = [ScalarValue(value, huber_threshold=None) for value in now]
        loss, errors = loss_of_critics(values, target, rows)
        return Losses({self.train_critics: loss}, {"critic_loss": loss.detach(), "alpha": alpha[0]}, errors)

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
