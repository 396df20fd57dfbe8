"""PCL: path consistency learning of policy and value function, on-policy and with replay."""

from collections.abc import Mapping

from torch import Tensor

from pytorchrl.agent.actors.heads import Policy, StateValue
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.parts.path_consistency import PathConsistency
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule


class PCL(PathConsistency):
    """Nachum et al., "Bridging the Gap Between Value and Policy Based RL" (arXiv 1702.08892), section 5.

    Args:
        lr_value: learning rate of the value function; unused with ``together``.
        together: train policy and value function by one optimiser on the weighted sum of their losses; required with a
            shared body.
        value_loss_coef: with ``together``, weight of the value function's loss.
    """

    unchangeable = frozenset({"together"})

    lr_value: NonNegativeOrSchedule = 1e-3
    together: bool = False
    value_loss_coef: NonNegative = 0.5

    def build(self) -> None:
        """Make policy and value function, with one optimiser or two."""
        self.make_policy(Policy())
        self.value = self.actor.make("value", StateValue(), acts=True)
        if self.together:
            self.trained = self.train("policy_and_value", self.pi, self.value, max_grad_norm="max_grad_norm")
        else:
            self.train_pi = self.train("policy", self.pi, max_grad_norm="max_grad_norm")
            self.train_value = self.train("value", self.value, lr="lr_value", max_grad_norm="max_grad_norm")

    def policy_and_value(self, view: View) -> tuple[Distribution, Tensor]:
        """Return the outputs of the policy and of the value network."""
        return self.pi(view), self.value(view)

    def losses_of(self, policy_loss: Tensor, value_loss: Tensor) -> Mapping[Trained, Tensor]:
        """Return the loss of each network, or their weighted sum."""
        if self.together:
            return {self.trained: policy_loss + self.value_loss_coef * value_loss}
        return {self.train_pi: policy_loss, self.train_value: value_loss}
