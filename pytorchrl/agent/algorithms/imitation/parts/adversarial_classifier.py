"""Base class of adversarial imitation by a classifier of steps, which is trained by cross-entropy."""

from abc import abstractmethod

import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.imitation.parts.adversarial import AdversarialReward
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import NonNegative


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
    def reward_to_keep(self, view: View, action: Tensor) -> Tensor:
        """Return the reward (N, 1) for training other policies, of actions (N, *action) as networks see them."""

    def discriminator_loss(self, played: Rows, shown: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the binary cross-entropy with label 1 for expert steps, minus the entropy bonus, and the logits."""
        of_policy, of_expert = self.logits(played), self.logits(shown)
        surprise = played.mean(F.softplus(of_policy)) + shown.mean(F.softplus(-of_expert))
        entropy = played.mean(_entropy(of_policy)) + shown.mean(_entropy(of_expert))
        return surprise - self.discriminator_entropy_coef * entropy, of_policy, of_expert


def _entropy(logits: Tensor) -> Tensor:
    """Return the entropy of Bernoulli distributions with these logits, in nats."""
    return F.softplus(-logits) + (1 - logits.sigmoid()) * logits
