"""Actors with the defaults of off-policy and of on-policy algorithms."""

from collections.abc import Sequence

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.layers.linear_layers import Initialisation
from pytorchrl.agent.actors.layers.mlp import Activation
from storages.component.hyper_parameters import Count


class OffPolicyActor(Actor):
    """Actor with defaults for learning from replayed transitions; see :class:`Actor`."""


class OnPolicyActor(Actor):
    """Actor with defaults for on-policy policy gradients (Andrychowicz et al., arXiv 2006.05990)."""

    hidden_sizes: Sequence[Count] = (64, 64)
    activation: Activation = "tanh"
    initialisation: Initialisation = "orthogonal"
