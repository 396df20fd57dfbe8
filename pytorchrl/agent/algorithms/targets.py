"""Target networks: copies that follow the trained networks slowly, or at intervals."""

from collections.abc import Mapping

import torch
from torch import nn

from pytorchrl.agent.actors.network import make_target
from pytorchrl.agent.optimizers import FlatParameters


class Target:
    """A target network and its update rule.

    Args:
        network: the online network.
        weights: of exactly this network in one vector, if there is one; averaging it is faster.
        polyak: name of the algorithm's hyper-parameter: weight of the target network in each of its updates.
        every: name of the algorithm's hyper-parameter: updates between target updates; None for 1.
        every_steps: name of the algorithm's hyper-parameter that replaces ``every``: environment transitions between
            target updates; None for none.
    """

    def __init__(
        self,
        network: nn.Module,
        weights: FlatParameters | None,
        polyak: str,
        every: str | None,
        every_steps: str | None = None,
    ) -> None:
        self.network = make_target(network)
        self.polyak, self.every, self.every_steps = polyak, every, every_steps
        self.names = (polyak, every, every_steps)
        # Keep the parameters and not their data, whose memory moves when a group is made of them, or when copied.
        self.flat, self._theirs = FlatParameters(self.network.parameters()), list(network.parameters())
        self._weights = weights
        buffers = zip(self.network.buffers(), network.buffers(), strict=True)
        self._buffers = [(our, their) for our, their in buffers if our is not their]

    def is_due(self, algorithm: object, counters: Mapping[str, int], steps: int) -> bool:
        """Return whether the target network is to be updated now.

        Args:
            algorithm: has the hyper-parameters.
            counters: "updates" so far, this one included, and "steps" at the previous one.
            steps: environment transitions so far.
        """
        if self.every_steps is not None:
            every: int = getattr(algorithm, self.every_steps)
            return steps // every > counters["steps"] // every
        interval: int = 1 if self.every is None else getattr(algorithm, self.every)
        return counters["updates"] % interval == 0

    @torch.no_grad()
    def follow(self, polyak: float) -> None:
        """``target = polyak * target + (1 - polyak) * network``; 0 copies.

        Lillicrap et al., "Continuous control with deep reinforcement learning" (arXiv 1509.02971), section 3.
        """
        if self._weights is not None:
            self.flat.vector.lerp_(self._weights.vector, 1 - polyak)
        else:
            for parameter, followed in zip(self.flat.parameters, self._theirs, strict=True):
                parameter.lerp_(followed, 1 - polyak)
        for our, their in self._buffers:
            our.copy_(their)
