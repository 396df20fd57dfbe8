"""DroQ: REDQ whose critics differ by dropout, so that two are enough."""

from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.algorithms.actor_critic.redq import REDQ
from storages.component.hyper_parameters import Count, UnitInterval


class DroQ(REDQ):
    """Hiraoka et al., "Dropout Q-Functions for Doubly Efficient RL" (arXiv 2110.02034), algorithm 2.

    Each pass of a critic or target critic drops other features, for the policy's loss too. Layer normalisation follows
    dropout.

    Args:
        dropout: share of each layer's features that critics drop, below 1.
    """

    unchangeable = REDQ.unchangeable | {"dropout"}

    num_critics: Count = 2
    dropout: UnitInterval = 0.01

    def critic_layers(self) -> Layers:
        """Dropout and layer normalisation."""
        return {"dropout": self.dropout, "layer_norm": True}
