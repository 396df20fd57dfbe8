"""Temperature of maximum-entropy reinforcement learning, fixed or learnt."""

import math
from abc import abstractmethod

from torch import Tensor

from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from pytorchrl.agent.optimizers import Optimizer
from storages.component.hyper_parameters import NonNegativeOrSchedule, Positive


class MaximumEntropy(OffPolicyAlgorithm):
    """Base class of algorithms with an entropy bonus and a temperature.

    Args:
        lr_alpha: learning rate of the temperature.
        initial_alpha: initial temperature, in reward per nat of entropy.
        learn_alpha: tune the temperature to a target entropy; False keeps the initial one.
    """

    unchangeable = frozenset({"initial_alpha"})

    lr_alpha: NonNegativeOrSchedule = 3e-4
    initial_alpha: Positive = 1.0
    learn_alpha: bool = True

    @abstractmethod
    def entropy_aimed_at(self, rows: Rows) -> float | Tensor:
        """Return the target of the policy's mean entropy in the observations of a batch, in nats; a Tensor is ()."""

    def build(self) -> None:
        """Make the log-temperature."""
        initial = math.log(self.initial_alpha)
        self.train_alpha = self.variable("log_alpha", initial, lr="lr_alpha", optimizer=self.optimizer_of_alpha())

    def optimizer_of_alpha(self) -> Optimizer:
        """Return the optimiser of the log-temperature: that of the networks."""
        return self.optimizer

    @property
    def log_alpha(self) -> Tensor:
        """(1,): log-temperature."""
        return self.training.variables["log_alpha"]

    @property
    def alpha(self) -> float:
        """The temperature, in reward per nat of entropy."""
        return self.log_alpha.exp().item()

    def temperature_loss(self, entropy: Tensor, rows: Rows) -> dict[Trained, Tensor]:
        """Return the temperature's loss, given the policy's mean entropy () in a batch; empty if it is not learnt.

        Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905), equation 18, with the
        log-temperature in place of the temperature.
        """
        if not self.learn_alpha:
            return {}
        return {self.train_alpha: (self.log_alpha * (entropy - self.entropy_aimed_at(rows))).sum()}
