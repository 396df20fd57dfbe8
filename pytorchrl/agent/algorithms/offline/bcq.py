"""BCQ: batch-constrained Q-learning over actions proposed by a generative model of the data."""

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import DeterministicPolicy
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.offline.parts.batch_constrained import BatchConstrained
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import Positive


class BCQ(BatchConstrained):
    """Fujimoto et al., "Off-Policy Deep Reinforcement Learning without Exploration" (arXiv 1812.02900), algorithm 1.

    A conditional variational autoencoder proposes actions of the data's distribution, a perturbation network adjusts
    each within a small range, and the action with the largest Q-value is selected.

    Args:
        phi: the largest perturbation of an action.
    """

    unchangeable = frozenset({"phi"})

    phi: Positive = 0.05

    def build_proposals(self) -> None:
        """Make the perturbation network and its target."""
        self.perturbation = self.actor.make("perturbation", DeterministicPolicy(self.phi), codec=self.codec, acts=True)
        self.train_pi = self.train("perturbation", self.perturbation, lr="lr_pi")
        self.target_perturbation = self.target(self.perturbation)

    def proposed(self, view: View, rows: int, number: int, generator: torch.Generator, *, by_target: bool) -> Tensor:
        """Return decoded and perturbed actions (N * number, A)."""
        several = Repeated(view, number)
        decoded = torch.tanh(self.vae.unsquashed(several, rows * number, self.latent_clip, generator))
        return self._perturbed(self.target_perturbation if by_target else self.perturbation, several, decoded)

    def losses_of_proposals(self, rows: Rows) -> tuple[dict[Trained, Tensor], Metrics]:
        """Return the perturbation network's loss: the negative Q-value by the first critic."""
        with torch.no_grad():
            decoded = torch.tanh(self.vae.unsquashed(rows.now, len(rows), self.latent_clip, self.generator))
        with self.critics.frozen():
            perturbed = self._perturbed(self.perturbation, rows.now, decoded)
            loss = -rows.mean(self.critics[0](rows.now, perturbed).mean)
        return {self.train_pi: loss}, {"policy_loss": loss.detach()}

    @staticmethod
    def _perturbed(perturbation: Network, view: View, action: Tensor) -> Tensor:
        perturbed: Tensor = (action + perturbation(view, action)).clamp(-1, 1)
        return perturbed
