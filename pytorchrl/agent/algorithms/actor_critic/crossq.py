"""CrossQ: SAC with batch-normalised critics and without target networks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.outputs import ScalarValue, Value
from pytorchrl.agent.actors.view import Joined
from pytorchrl.agent.algorithms.actor_critic.parts.critics import Expected
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
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

    polyak: ClassVar[float] = 0.0  # type: ignore[misc]  # there are no target networks
    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_alpha: NonNegativeOrSchedule = 1e-3
    policy_delay: Count = 3
    optimizer: Optimizer = Adam(betas=(0.5, 0.999))
    renorm_warmup: CountOrZero = 100_000

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
        """Make SAC's networks, without target networks."""
        actor, name = self.actor, type(self).__name__
        if actor.memory is not None:
            raise ValueError(
                f"{name} normalises transitions as one batch, but {type(actor).__name__} has a memory "
                f"({actor.memory}); give it memory=None, or choose SAC, REDQ, DroQ or TQC"
            )
        if actor.late_action:
            raise ValueError(
                f"{name} normalises observations and actions as one batch; give {type(actor).__name__} late_action=0, "
                f"got {actor.late_action}"
            )
        super().build()

    def build_targets(self) -> None:
        """Make none: the critics bootstrap on themselves."""

    def optimizer_of_alpha(self) -> Optimizer:
        """Return the optimiser of the networks, but with the usual betas if it is Adam."""
        return replace(self.optimizer, betas=Adam.betas) if isinstance(self.optimizer, Adam) else self.optimizer

    def policy_layers(self) -> Layers:
        """Return batch renormalisation."""
        return {"batch_renorm_warmup": self.renorm_warmup}

    def critic_layers(self) -> Layers:
        """Return batch renormalisation."""
        return self.policy_layers()

    def evaluate_with_target(self, rows: Rows, alpha: Tensor) -> tuple[Sequence[Any], Value]:
        """Evaluate present and next state-action pairs in one pass; targets have no gradient (figure 2)."""
        with torch.no_grad():
            next_action, log_prob = self.pi(rows.next).sample_with_log_prob(self.generator)
        both = self.critics(Joined(rows.now, rows.next), torch.cat([rows.action, next_action]))
        now, following = zip(*(value.mean.chunk(2) for value in both), strict=True)
        with torch.no_grad():
            value = self.value_for_target([ScalarValue(each) for each in following])
            target = self.backed_up(rows, Expected(value, -log_prob), alpha)
        return [ScalarValue(each, huber_threshold=None) for each in now], target
