"""Base class of Q-learning over actions proposed by a generative model of the data."""

from abc import abstractmethod

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.actors.view import Repeated, View
from pytorchrl.agent.algorithms.actor_critic.parts.critics import critic_loss_of
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.offline.parts.action_autoencoder import ActionAutoencoder
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy
from storages.component.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegative,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
)


class BatchConstrained(OffPolicyAlgorithm):
    """Acts with, and bootstraps on, the best of several proposed actions by the critics.

    Actions are scaled to [-1, 1].

    Args:
        lr_vae: learning rate of the autoencoder.
        lr_pi: learning rate of the policy or perturbation network.
        lr_q: learning rate of the critics.
        polyak: weight that target networks keep in each of their updates.
        num_critics: number of critics, with separate weights.
        kl_weight: weight of the KL divergence of the autoencoder's latents from the prior; a smaller one makes decoded
            actions more diverse.
        latent_clip: bound of the latents that actions are decoded from.
        minimum_weight: weight of the critics' minimum in a target; their maximum has the rest (lambda).
        num_target_actions: actions proposed in each next state.
        num_actions: actions proposed when acting.
    """

    actions = "bounded"
    unchangeable = frozenset({"num_critics"})

    lr_vae: NonNegativeOrSchedule = 1e-3
    lr_pi: NonNegativeOrSchedule = 1e-3
    lr_q: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.995
    num_critics: Count = 2
    kl_weight: NonNegative = 0.5
    latent_clip: Positive = 0.5
    minimum_weight: UnitInterval = 0.75
    num_target_actions: Count = 10
    num_actions: Count = 100
    mini_batch_size: Count = 100
    test_every: CountOrZero = 5_000

    @abstractmethod
    def build_proposals(self) -> None:
        """Make and register the network that proposes actions with the autoencoder, and its target."""

    @abstractmethod
    def proposed(self, view: View, rows: int, number: int, generator: torch.Generator, *, by_target: bool) -> Tensor:
        """Return proposed actions (N * number, A), those of a row consecutively.

        Args:
            view: of N rows.
            rows: N.
            number: of actions per row.
            generator: of random numbers.
            by_target: use the target network.
        """

    @abstractmethod
    def losses_of_proposals(self, rows: Rows) -> tuple[dict[Trained, Tensor], Metrics]:
        """Return the losses of the proposing network, with gradients in it only."""

    def build(self) -> None:
        """Make the autoencoder, the proposing network, critics and target networks."""
        self.vae = ActionAutoencoder(self.actor, self.codec)
        self.train_vae = self.train("vae", self.vae.encoder, self.vae.decoder, lr="lr_vae")
        self.build_proposals()
        make = self.actor.make_ensemble
        self.critics = make("critics", ActionValue(), self.num_critics, codec=self.codec, acts=True)
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics)

    def default_explorer(self) -> Explorer:
        """Return the best proposed action, without noise."""
        return Greedy()

    def policy(self, view: View, exploration: Exploration) -> Tensor:
        """Return the proposed action with the largest value by the first critic."""
        number = self.num_actions
        action = self.proposed(view, exploration.num_envs, number, exploration.generator, by_target=False)
        values: Tensor = self.critics[0](Repeated(view, number), action).mean.view(-1, number)
        best = values.argmax(1)[:, None, None].expand(-1, 1, self.codec.size)
        return action.view(-1, number, self.codec.size).gather(1, best)[:, 0]

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of autoencoder and critics."""
        vae_loss = self.vae.loss(rows, self.kl_weight, self.generator)
        critic_loss, errors = critic_loss_of(self.critics(rows.now, rows.action), self._target(rows), rows)
        losses = {self.train_vae: vae_loss, self.train_critics: critic_loss}
        metrics = {"vae_loss": vae_loss.detach(), "critic_loss": critic_loss.detach()}
        return Losses(losses, metrics, errors)

    def losses_after_step(self, rows: Rows) -> Losses:
        """Return the losses of the proposing network, with the critics updated before."""
        return Losses(*self.losses_of_proposals(rows))

    @torch.no_grad()
    def _target(self, rows: Rows) -> ScalarValue:
        """Return the TD target: the best proposed action by a weighted minimum and maximum of the critics.

        Fujimoto et al., "Off-Policy Deep Reinforcement Learning without Exploration" (arXiv 1812.02900), equation 13.
        """
        number = self.num_target_actions
        action = self.proposed(rows.next, len(rows), number, self.generator, by_target=True)
        values = torch.stack([value.mean for value in self.target_critics(Repeated(rows.next, number), action)])
        mixed = torch.lerp(values.amax(0), values.amin(0), self.minimum_weight)
        best = mixed.view(-1, number).max(1, keepdim=True).values
        return ScalarValue(best).backup(rows.reward, rows.discount)
