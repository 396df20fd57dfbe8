"""SAC with many updates per step, by an ensemble of critics or by dropout.

REDQ: SAC with an ensemble of critics, random subsets of it in targets, and many updates per step.
DroQ: REDQ with two dropout Q-functions in place of a large ensemble.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import Value
from pytorchrl.agent.algorithms.actor_critic.critics import average
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, HalfOpenUnitInterval


class REDQ(SAC):
    """Chen et al., "Randomized Ensembled Double Q-Learning" (arXiv 2101.05982), algorithm 1.

    The policy maximises the mean of all critics. By default it is updated once per step, after all critic updates.

    Args:
        num_target_critics: critics drawn for the targets of a batch, of which the minimum is taken (M).

    Raises:
        ValueError: ``num_target_critics`` exceeds ``num_critics``.
    """

    unchangeable = frozenset({"num_target_critics"})

    num_critics: Count = 10
    num_target_critics: Count = 2
    num_mini_batch: Count = 20
    policy_delay: Count = 20

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that there are enough critics to draw from."""
        super().check_hyper_parameters(hyper_parameters)
        number, drawn = hyper_parameters["num_critics"], hyper_parameters["num_target_critics"]
        if drawn > number:
            raise ValueError(f"{cls.__name__}: num_target_critics must be at most num_critics={number}, got {drawn}")

    def build(self) -> None:
        """Make SAC's networks, and a generator for drawing critics."""
        super().build()
        # On the CPU, as drawing on the device would require a synchronisation.
        self.subset_generator = torch.Generator()

    def target_value(self, rows: Rows, alpha: Tensor) -> Value:
        """Return rewards plus discounted soft values by a few target critics, drawn without replacement."""
        next_action, log_prob = self.pi(rows.next).sample_with_log_prob(self.generator)
        drawn = torch.randperm(self.num_critics, generator=self.subset_generator)[: self.num_target_critics]
        value = self.value_for_target([self.target_critics[n](rows.next, next_action) for n in drawn.tolist()])
        return value.backup(rows.reward - alpha * rows.discount * log_prob, rows.discount)

    def value_for_policy(self, values: Sequence[Value]) -> Value:
        """Return the mean of all critics' values."""
        return average(values)

    def _generators(self) -> tuple[torch.Generator, ...]:
        return *super()._generators(), self.subset_generator


class DroQ(REDQ):
    """Hiraoka et al., "Dropout Q-Functions for Doubly Efficient RL" (arXiv 2110.02034), algorithm 2.

    Each forward pass of a critic or target critic draws new dropout masks, also in the policy's loss. Layer
    normalisation follows dropout.

    Args:
        dropout: dropout rate of the critics' layers, below 1.
    """

    unchangeable = frozenset({"dropout"})

    num_critics: Count = 2
    dropout: HalfOpenUnitInterval = 0.01

    def make_critics(self) -> Ensemble:
        """Make critics with dropout and layer normalisation."""
        layers: Layers = {"dropout": self.dropout, "layer_norm": True}
        head = self.critic_head()
        return self.actor.make_ensemble("critics", head, self.num_critics, codec=self.codec, layers=layers)
