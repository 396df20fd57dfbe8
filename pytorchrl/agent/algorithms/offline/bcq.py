"""BCQ: batch-constrained Q-learning over actions proposed by a generative model of the data."""

from typing import ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, DeterministicPolicy
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.offline.action_autoencoder import ActionAutoencoder, best_proposed, largest_mixed_target
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
)


class BCQ(OffPolicyAlgorithm):
    """Fujimoto et al., "Off-Policy Deep Reinforcement Learning without Exploration" (arXiv 1812.02900), algorithm 1.

    A conditional variational autoencoder proposes actions of the data's distribution, a perturbation network adjusts
    each within a small range, and the action with the largest Q-value is selected. Actions are scaled to [-1, 1].

    Args:
        lr_vae: learning rate of the autoencoder.
        lr_pi: learning rate of the perturbation network.
        lr_q: learning rate of the critics.
        polyak: weight that target networks keep in each of their updates.
        target_update_interval: updates between updates of the target networks.
        num_critics: number of critics, with separate weights.
        kl_weight: weight of the KL divergence of the autoencoder's latents from the prior; a smaller one makes decoded
            actions more diverse.
        latent_clip: bound of the latents that actions are decoded from.
        minimum_weight: weight of the critics' minimum in a target; their maximum has the rest (lambda).
        num_target_actions: actions proposed in each next state.
        num_actions: actions proposed when acting.
        phi: the largest perturbation of an action.
    """

    constrained_to_data: ClassVar[bool] = True
    actions = "bounded"
    unchangeable = frozenset({"num_critics", "phi"})

    lr_vae: NonNegativeOrSchedule = 1e-3
    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    num_critics: Count = 2
    kl_weight: NonNegative = 0.5
    latent_clip: Positive = 0.5
    minimum_weight: UnitInterval = 0.75
    num_target_actions: Count = 10
    num_actions: Count = 100
    phi: Positive = 0.05
    mini_batch_size: Count = 100
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """Make autoencoder, perturbation network, critics and target networks."""
        self.vae = ActionAutoencoder(self.actor, self.codec)
        self.train_vae = self.train("vae", self.vae.encoder, self.vae.decoder, lr="lr_vae")
        self.perturbation = self.actor.make("perturbation", DeterministicPolicy(self.phi), codec=self.codec, acts=True)
        self.train_pi = self.train("perturbation", self.perturbation, lr="lr_pi")
        self.target_perturbation: Network = self.target(self.perturbation, every="target_update_interval")
        make = self.actor.make_ensemble
        self.critics = make("critics", ActionValue(), self.num_critics, codec=self.codec, acts=True)
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of autoencoder and critics."""
        vae_loss = self.vae.loss(rows, self.kl_weight, self.generator)
        values = self.critics(rows.now, rows.action)
        critic_loss, errors = loss_of_critics(values, self.target_value(rows), rows)
        metrics = {"vae_loss": vae_loss.detach(), "critic_loss": critic_loss.detach()}
        return Losses({self.train_vae: vae_loss, self.train_critics: critic_loss}, metrics, errors)

    @torch.no_grad()
    def target_value(self, rows: Rows) -> ScalarValue:
        """Return the TD target: the best next action by a weighted minimum and maximum of the critics (equation 13)."""
        number = self.num_target_actions
        action = self._proposed(rows.next, len(rows), number, self.target_perturbation, self.generator)
        return largest_mixed_target(self.target_critics, rows, action, number, self.minimum_weight)

    def losses_after_step(self, rows: Rows) -> Losses:
        """Return the perturbation network's loss: the negative value by the first critic (algorithm 1)."""
        with torch.no_grad():
            decoded = torch.tanh(self.vae.sample_unsquashed(rows.now, len(rows), self.latent_clip, self.generator))
        with self.critics[0].frozen():
            loss = -rows.mean(self.critics[0](rows.now, self._perturbed(self.perturbation, rows.now, decoded)).mean)
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach()})

    def policy(self, view: View, exploration: Exploration) -> Tensor:
        """Return the proposed action with the largest value by the first critic."""
        number = self.num_actions
        action = self._proposed(view, exploration.num_envs, number, self.perturbation, exploration.generator)
        return best_proposed(self.critics[0], view, action, number)

    def default_explorer(self) -> Explorer:
        """Return the best proposed action, without noise."""
        return Greedy()

    def _proposed(
        self, view: View, rows: int, number: int, perturbation: Network, generator: torch.Generator
    ) -> Tensor:
        """Return decoded and perturbed actions (N * number, A) of N rows, those of a row consecutively."""
        several = Repeated(view, number)
        decoded = torch.tanh(self.vae.sample_unsquashed(several, rows * number, self.latent_clip, generator))
        return self._perturbed(perturbation, several, decoded)

    @staticmethod
    def _perturbed(perturbation: Network, view: View, action: Tensor) -> Tensor:
        perturbed: Tensor = (action + perturbation(view, action)).clamp(-1, 1)
        return perturbed
