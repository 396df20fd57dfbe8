"""GAIL: a policy that a discriminator cannot tell from an expert."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.trpo import TRPO
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule
from storages.storage import Storage
from storages.transition import REW, Batch


class GAIL(TRPO):
    """Ho and Ermon, "Generative Adversarial Imitation Learning" (arXiv 1606.03476), on TRPO.

    The environments' rewards are not used: the discriminator pays for what looks like the expert. Its rewards are never
    negative, so that an episode that ends early loses some: give it environments that end where the expert fails.

    Args:
        lr_discriminator: its learning rate.
        discriminator_epochs: its steps in an update phase.
        discriminator_batch_size: the expert's transitions, or sequences, in each of its steps, beside all of a rollout.
        discriminator_entropy_coef: weight of the entropy of its answers, which is raised.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout"), "expert": Needs("any", collected=False)}

    lr_discriminator: NonNegativeOrSchedule = 1e-3
    discriminator_epochs: Count = 5
    discriminator_batch_size: Count = 256
    discriminator_entropy_coef: NonNegative = 0.001

    def build(self) -> None:
        """TRPO's networks, and the discriminator."""
        super().build()
        self.discriminator = self.actor.make("discriminator", StateValue(gain=None), codec=self.codec)
        self.train_discriminator = self.train("discriminator", self.discriminator, lr="lr_discriminator")

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Pay for what looks like the expert, improve the policy, and then the discriminator."""
        rollout, expert = sources["main"], sources["expert"]
        batch = rollout.get_all_buffer_data()
        played = self.read(batch)
        with torch.no_grad():
            reward = self.reward(played)
        rollout.insert_single_tensor_slice(REW, played.per_row(reward))
        yield from super().update_phase(sources)
        for expert_batch in expert.generate_batches(self.discriminator_epochs, self.discriminator_batch_size):
            yield self.train_to_discriminate(batch, expert_batch) | {"imitation_reward": reward.mean()}

    def reward(self, rows: Rows) -> Tensor:
        """(N, 1): ``-log(1 - D)``, where D is the discriminator's probability that a step is the expert's."""
        return F.softplus(self._logits(rows))

    def train_to_discriminate(self, played: Batch, shown: Batch) -> Metrics:
        """One step of the discriminator."""
        metrics: Metrics = {}

        def loss() -> Tensor:
            total, metrics["discriminator_accuracy"] = self.discriminator_loss(self.read(played), self.read(shown))
            return total

        metrics["discriminator_loss"] = self.train_discriminator.stepper.minimise(loss)
        return metrics

    def discriminator_loss(self, played: Rows, shown: Rows) -> tuple[Tensor, Tensor]:
        """The cross-entropy with 1 for what the expert has shown and 0 for what the policy has played.

        Returns:
            The loss, less the weighted entropy of the answers, and the share of answers that are right.
        """
        of_policy, of_expert = self._logits(played), self._logits(shown)
        surprise = played.mean(F.softplus(of_policy)) + shown.mean(F.softplus(-of_expert))
        entropy = played.mean(_entropy(of_policy)) + shown.mean(_entropy(of_expert))
        right = played.mean((of_policy < 0).float()) + shown.mean((of_expert > 0).float())
        return surprise - self.discriminator_entropy_coef * entropy, right / 2

    def _logits(self, rows: Rows) -> Tensor:
        """(N, 1): of what the environments made of actions."""
        logits: Tensor = self.discriminator(rows.now, self.codec.clip(rows.action))
        return logits


def _entropy(logits: Tensor) -> Tensor:
    """Of the probabilities of yes and no, in nats."""
    return F.softplus(-logits) + (1 - logits.sigmoid()) * logits
