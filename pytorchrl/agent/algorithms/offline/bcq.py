"""BCQ: Q-learning from data among actions like those of the data."""

from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, DeterministicPolicy, LatentGaussian
from pytorchrl.agent.actors.outputs import DiagonalGaussian, ScalarValue
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.critics import judge_critics
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
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
    """Fujimoto et al., "Off-Policy Deep Reinforcement Learning without Exploration" (arXiv 1812.02900).

    A variational autoencoder proposes actions like those of the data, a perturbation moves each within a small range,
    and the critics choose among them. Actions are scaled to [-1, 1].

    Args:
        lr_vae: learning rate of the autoencoder.
        lr_pi: learning rate of the perturbation.
        lr_q: learning rate of the critics.
        polyak: how much of the targets stays at each update.
        phi: the largest perturbation of an action.
        kl_weight: weight of the divergence of the autoencoder's latent numbers from standard normals; less of it lets
            proposals differ more.
        latent_clip: bound of the latent numbers that actions are decoded from.
        minimum_weight: weight of the smaller critic in a target, the larger one has the rest (equation 13).
        num_target_actions: actions proposed in each next state.
        num_actions: actions proposed when acting.
    """

    actions = "bounded"
    unchangeable = OffPolicyAlgorithm.unchangeable | {"phi"}

    lr_vae: NonNegativeOrSchedule = 1e-3
    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    phi: Positive = 0.05
    kl_weight: NonNegative = 0.5
    latent_clip: Positive = 0.5
    minimum_weight: UnitInterval = 0.75
    num_target_actions: Count = 10
    num_actions: Count = 100
    mini_batch_size: Count = 100
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """The autoencoder, the perturbation and two critics, the latter two with targets."""
        self._latent = 2 * self.codec.size
        make, codec = self.actor.make, self.codec
        self.encoder = make("encoder", LatentGaussian(self._latent), codec=codec)
        self.decoder = make("decoder", DeterministicPolicy(), beside=self._latent, acts=True)
        self.perturbation = make("perturbation", DeterministicPolicy(self.phi), codec=codec, acts=True)
        self.critics = self.actor.make_ensemble("critics", ActionValue(), 2, codec=codec, acts=True)
        self.train_vae = self.train("vae", self.encoder, self.decoder, lr="lr_vae")
        self.train_pi = self.train("perturbation", self.perturbation, lr="lr_pi")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_perturbation = self.target(self.perturbation)
        self.target_critics = self.target(self.critics)

    def default_explorer(self) -> Explorer:
        """The best of the proposed actions."""
        return Greedy()

    def policy(self, view: View, exploration: Exploration) -> Tensor:
        """Of several proposed actions, the one that the first critic values most."""
        several = Repeated(view, self.num_actions)
        proposed = self._decoded(several, exploration.generator, exploration.num_envs * self.num_actions)
        action = self._perturbed(self.perturbation, several, proposed)
        values: Tensor = self.critics[0](several, action).mean.view(-1, self.num_actions)
        best = values.argmax(1)[:, None, None].expand(-1, 1, self.codec.size)
        return action.view(-1, self.num_actions, self.codec.size).gather(1, best)[:, 0]

    def losses(self, rows: Rows) -> Losses:
        """The autoencoder's, the critics' and the perturbation's losses (algorithm 1), all at the same weights."""
        latent: DiagonalGaussian = self.encoder(rows.now, rows.action)
        decoded = self.decoder(rows.now, latent.rsample(self.generator))
        reconstruction = rows.mean((decoded - rows.action).square().mean(1, keepdim=True))
        # The authors' code takes the mean over the latent numbers.
        divergence = rows.mean(latent.kl(_standard_normal(latent))) / self._latent
        vae_loss = reconstruction + self.kl_weight * divergence

        target = self._target(rows)
        values = self.critics(rows.now, rows.action)
        critic_loss, errors = judge_critics(values, target, rows)

        with torch.no_grad():
            proposed = self._decoded(rows.now, self.generator, len(rows))
        with self.critics.frozen():
            perturbed = self._perturbed(self.perturbation, rows.now, proposed)
            policy_loss = -rows.mean(self.critics[0](rows.now, perturbed).mean)

        metrics = {"vae_loss": vae_loss, "critic_loss": critic_loss, "policy_loss": policy_loss}
        return Losses(
            {self.train_vae: vae_loss, self.train_critics: critic_loss, self.train_pi: policy_loss},
            {name: loss.detach() for name, loss in metrics.items()},
            errors,
        )

    @torch.no_grad()
    def _target(self, rows: Rows) -> ScalarValue:
        """The best of several proposed actions, the smaller critic counting more (equation 13)."""
        number = self.num_target_actions
        several = Repeated(rows.next, number)
        proposed = self._decoded(several, self.generator, len(rows) * number)
        action = self._perturbed(self.target_perturbation, several, proposed)
        one, other = (value.mean for value in self.target_critics(several, action))
        share = self.minimum_weight
        mixed = share * torch.minimum(one, other) + (1 - share) * torch.maximum(one, other)
        best = mixed.view(-1, number).max(1, keepdim=True).values
        return ScalarValue(best).backup(rows.reward, rows.discount)

    def _decoded(self, view: View, generator: torch.Generator, rows: int) -> Tensor:
        """(N, A): actions like those of the data."""
        latent = torch.empty((rows, self._latent), device=self.device).normal_(generator=generator)
        action: Tensor = self.decoder(view, latent.clamp(-self.latent_clip, self.latent_clip))
        return action

    @staticmethod
    def _perturbed(perturbation: Any, view: View, action: Tensor) -> Tensor:
        perturbed: Tensor = (action + perturbation(view, action)).clamp(-1, 1)
        return perturbed


def _standard_normal(like: DiagonalGaussian) -> DiagonalGaussian:
    return DiagonalGaussian(torch.zeros_like(like.mean), torch.zeros_like(like.log_std))
