"""DroQ: REDQ with two dropout Q-functions in place of a large ensemble."""

from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.algorithms.actor_critic.redq import REDQ
from storages.component.hyper_parameters import Count, HalfOpenUnitInterval


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
