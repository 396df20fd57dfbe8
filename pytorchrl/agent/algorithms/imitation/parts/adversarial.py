"""A learnt reward: what adversarial imitation pays the rollouts of any on-policy algorithm with."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule
from storages.storage import Storage
from storages.transition import DONE, REW, RHS, WINDOW, Batch


class AdversarialReward(Algorithm):
    """Rewards of a discriminator, which learns to tell the steps of an expert from those of the policy.

    A class of two bases learns from them, the second of which is the on-policy algorithm:
    ``class ImitatingPPO(GAILReward, PPO)``.

    Args:
        lr_discriminator: its learning rate.
        discriminator_epochs: its steps in an update phase.
        discriminator_batch_size: the expert's transitions, or sequences, in each of its steps, beside all of a rollout.
        discriminator_entropy_coef: weight of the entropy of its answers, which is raised.
    """

    expert: ClassVar[Needs] = Needs("any", collected=False)
    """What it needs of the source "expert"."""

    lr_discriminator: NonNegativeOrSchedule = 1e-3
    discriminator_epochs: Count = 5
    discriminator_batch_size: Count = 256
    discriminator_entropy_coef: NonNegative = 0.001

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        learner: type[Algorithm] = next(
            base for base in cls.__mro__ if issubclass(base, Algorithm) and not issubclass(base, AdversarialReward)
        )
        cls.sources = {**learner.sources, "expert": cls.expert}

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse to pay an algorithm that has no rollouts."""
        super().check_hyper_parameters(hyper_parameters)
        if cls.sources["main"].kind != "rollout":
            raise ValueError(
                f"{cls.__name__}: a learnt reward is paid for rollouts of the current policy; let its second base be "
                f"an on-policy algorithm, such as PPO or TRPO"
            )

    def build(self) -> None:
        """The algorithm's networks, and those of the discriminator."""
        super().build()  # type: ignore[safe-super]
        self.train_discriminator = self.train("discriminator", *self.make_discriminator(), lr="lr_discriminator")

    @abstractmethod
    def make_discriminator(self) -> tuple[Network, ...]:
        """Make the networks that answers and rewards are made of."""

    @abstractmethod
    def logits(self, rows: Rows) -> Tensor:
        """(N, 1): of the discriminator's probability that a step is the expert's."""

    @abstractmethod
    def reward(self, rows: Rows) -> Tensor:
        """(N, 1): what the policy is paid for its steps."""

    @abstractmethod
    def reward_to_keep(self, view: View, action: Tensor) -> Tensor:
        """(N, 1): the reward that another policy can be trained on, of actions (N, *action) as networks have them."""

    @staticmethod
    def all_of(rollout: Storage) -> Batch:
        """All steps of a rollout as one batch, of whole sequences where there is a memory."""
        batch = rollout.get_all_buffer_data()
        if RHS in batch:
            batch[RHS] = batch[RHS][0]
            batch[WINDOW] = torch.ones_like(batch[DONE], dtype=torch.int64)
        return batch

    def pay(self, rollout: Storage, batch: Batch) -> Tensor:
        """Replace the environments' rewards in a rollout, all of which is in ``batch``; returns their mean."""
        rows = self.read(batch)
        with torch.no_grad():
            reward = self.reward(rows)
        rollout.insert_single_tensor_slice(REW, rows.per_row(reward))
        return reward.mean()

    def discriminate(self, played: Batch, expert: Storage) -> Iterator[Metrics]:
        """All steps of the discriminator in an update phase."""
        for shown in expert.generate_batches(self.discriminator_epochs, self.discriminator_batch_size):
            yield self.train_to_discriminate(played, shown)

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
        of_policy, of_expert = self.logits(played), self.logits(shown)
        surprise = played.mean(F.softplus(of_policy)) + shown.mean(F.softplus(-of_expert))
        entropy = played.mean(_entropy(of_policy)) + shown.mean(_entropy(of_expert))
        right = played.mean((of_policy < 0).float()) + shown.mean((of_expert > 0).float())
        return surprise - self.discriminator_entropy_coef * entropy, right / 2


def _entropy(logits: Tensor) -> Tensor:
    """Of the probabilities of yes and no, in nats."""
    return F.softplus(-logits) + (1 - logits.sigmoid()) * logits
