"""What a policy's entropy is worth, a number that may be learnt."""

import math
from abc import abstractmethod

from torch import Tensor

from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import NonNegativeOrSchedule, Positive


class MaximumEntropy(OffPolicyAlgorithm):
    """Rewards a policy for its entropy, by a temperature.

    Args:
        lr_alpha: learning rate of the temperature.
        initial_alpha: the temperature at first: what a nat of entropy is worth in reward.
        learn_alpha: let the temperature follow the entropy; False keeps the initial one.
    """

    unchangeable = OffPolicyAlgorithm.unchangeable | {"initial_alpha"}

    lr_alpha: NonNegativeOrSchedule = 3e-4
    initial_alpha: Positive = 1.0
    learn_alpha: bool = True

    @abstractmethod
    def entropy_aimed_at(self) -> float:
        """The entropy, in nats, below which the temperature rises."""

    def build(self) -> None:
        """The temperature's logarithm."""
        self.train_alpha = self.variable("log_alpha", math.log(self.initial_alpha), lr="lr_alpha")

    @property
    def log_alpha(self) -> Tensor:
        """(1,): logarithm of the temperature."""
        return self.training.variables["log_alpha"]

    @property
    def alpha(self) -> float:
        """The temperature: what a nat of entropy is worth in reward."""
        return self.log_alpha.exp().item()

    def temperature_loss(self, entropy: Tensor) -> dict[Trained, Tensor]:
        """The loss that moves the temperature, of the policy's mean entropy (); none where it is not learnt.

        Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905), equation 18, by the
        logarithm.
        """
        if not self.learn_alpha:
            return {}
        return {self.train_alpha: (self.log_alpha * (entropy - self.entropy_aimed_at())).sum()}
