"""Base classes of adversarial imitation: a learnt reward for any on-policy algorithm."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.lagging_discriminator import LaggingDiscriminator
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule
from storages.on_policy import VanillaOnPolicyBuffer
from storages.storage import Storage
from storages.transition import DONE, MASK, REW, RHS, SKIPPED, WINDOW, Batch

_RENAMED = {
    "pay": "replace_rewards",
    "discriminate": "update_discriminator",
    "train_to_discriminate": "step_discriminator",
    "reward_to_keep": "exported_reward",
}


class AdversarialReward(Algorithm):
    """Rewards by a discriminator that is trained to distinguish an expert's steps from the policy's.

    It is combined with an on-policy algorithm as the second base: ``class ImitatingPPO(GAILReward, PPO)``.

    Args:
        lr_discriminator: learning rate of the discriminator.
        discriminator_epochs: optimiser steps of the discriminator per update phase.
        discriminator_batch_size: expert transitions, or sequences, per step of the discriminator, next to the whole
            rollout.
    """

    expert: ClassVar[Needs] = Needs("any", collected=False)
    """Requirements on the source "expert"."""

    lr_discriminator: NonNegativeOrSchedule = 1e-3
    discriminator_epochs: Count = 20
    discriminator_batch_size: Count = 256

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        learner: type[Algorithm] = next(
            base for base in cls.__mro__ if issubclass(base, Algorithm) and not issubclass(base, AdversarialReward)
        )
        cls.sources = {**learner.sources, "expert": cls.expert}
        for old, new in _RENAMED.items():
            if old in vars(cls) and new not in vars(cls):
                warnings.warn(f"{cls.__name__}.{old} is now named {new}", DeprecationWarning, stacklevel=2)
                setattr(cls, new, vars(cls)[old])

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return a method by its name of the version before."""
            if name not in _RENAMED:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)
            warnings.warn(
                f"{type(self).__name__}.{name} is now named {_RENAMED[name]}", DeprecationWarning, stacklevel=2
            )
            return getattr(self, _RENAMED[name])

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that the second base is an on-policy algorithm."""
        super().check_hyper_parameters(hyper_parameters)
        if cls.sources["main"].kind != "rollout":
            raise ValueError(
                f"{cls.__name__}: a learnt reward needs rollouts of the current policy; let its second base be "
                f"an on-policy algorithm, such as PPO or TRPO"
            )

    def build(self) -> None:
        """Make the networks of the algorithm and of the discriminator."""
        super().build()  # type: ignore[safe-super]
        networks = self.make_discriminator()
        self.train_discriminator = self.train("discriminator", *networks, lr="lr_discriminator", max_grad_norm=None)
        self.lag = LaggingDiscriminator(type(self).__name__)

    @abstractmethod
    def make_discriminator(self) -> tuple[Network, ...]:
        """Make the networks of discriminator and reward."""

    @abstractmethod
    def reward(self, rows: Rows) -> Tensor:
        """Return the rewards (N, 1) of the policy's steps."""

    @abstractmethod
    def discriminator_loss(self, policy: Rows, expert: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the discriminator's loss (), and its scores (N, 1) of the policy's and of the expert's steps.

        A step with a positive score counts as the expert's.
        """

    @staticmethod
    def all_of(rollout: Storage) -> Batch:
        """Return all steps of a rollout as one batch, skipped ones masked; as whole sequences with a memory."""
        assert isinstance(rollout, VanillaOnPolicyBuffer)
        batch = rollout.in_order()
        if RHS in batch:
            batch[WINDOW] = torch.ones_like(batch[DONE], dtype=torch.int64)
        if SKIPPED in batch:
            batch[MASK] = 1.0 - batch[SKIPPED].float()
        return batch

    def replace_rewards(self, rollout: Storage, batch: Batch) -> Tensor:
        """Replace the rewards of a rollout, given as ``batch``; returns the mean of the new ones."""
        rows = self.read(batch)
        with torch.no_grad():
            reward = self.reward(rows)
        rollout.insert_single_tensor_slice(REW, rows.per_row(reward))
        return rows.mean(reward)

    def update_discriminator(self, rollout: Batch, expert: Storage) -> Iterator[Metrics]:
        """Take the discriminator's optimiser steps of an update phase."""
        batches = expert.generate_batches(self.discriminator_epochs, self.discriminator_batch_size)
        steps = (self.step_discriminator(rollout, batch) for batch in batches)
        return self.lag.watched(steps, rollout[REW].numel())

    def step_discriminator(self, policy: Batch, expert: Batch) -> Metrics:
        """Take one optimiser step of the discriminator."""
        metrics: Metrics = {}

        def loss() -> Tensor:
            of_policy, of_expert = self.read(policy), self.read(expert)
            total, by_policy, by_expert = self.discriminator_loss(of_policy, of_expert)
            right = of_policy.mean((by_policy < 0).float()) + of_expert.mean((by_expert > 0).float())
            metrics["discriminator_accuracy"] = right / 2
            return total

        metrics["discriminator_loss"] = self.train_discriminator.minimise(self, loss)
        return metrics


class AdversarialClassifier(AdversarialReward):
    """Rewards by the probability that a step is the expert's, which other policies can be trained on.

    Args:
        discriminator_entropy_coef: weight of the entropy bonus on the discriminator's output.
    """

    discriminator_entropy_coef: NonNegative = 0.001

    @abstractmethod
    def logits(self, rows: Rows) -> Tensor:
        """Return the logits (N, 1) of the probability that a step is the expert's."""

    @abstractmethod
    def exported_reward(self, view: View, action: Tensor) -> Tensor:
        """Return the reward (N, 1) for training other policies, of actions (N, *action) as networks see them."""

    def discriminator_loss(self, policy: Rows, expert: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the binary cross-entropy with label 1 for expert steps, minus the entropy bonus, and the logits."""
        of_policy, of_expert = self.logits(policy), self.logits(expert)
        loss = policy.mean(F.softplus(of_policy)) + expert.mean(F.softplus(-of_expert))
        for rows, logits in ((policy, of_policy), (expert, of_expert)):
            # The cross-entropy of a distribution with itself is its entropy.
            entropy = F.binary_cross_entropy_with_logits(logits, logits.sigmoid(), reduction="none")
            loss = loss - self.discriminator_entropy_coef * rows.mean(entropy)
        return loss, of_policy, of_expert
