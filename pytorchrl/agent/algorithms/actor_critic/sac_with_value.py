"""SACWithValue: the original SAC, with a state-value network and a fixed temperature."""

from typing import ClassVar

from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ScalarValue, Value
from pytorchrl.agent.algorithms.actor_critic.parts.critics import Expected
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import NonNegativeOrSchedule, Positive


class SACWithValue(SAC):
    """Haarnoja et al., "Soft Actor-Critic: Off-Policy Maximum Entropy Deep RL" (arXiv 1801.01290), equations 5 to 13.

    The temperature is 1; the reward scale takes its place.

    Args:
        lr_value: learning rate of the state-value network.
        reward_scale: factor of rewards in targets; stored rewards do not change.
    """

    initial_alpha: ClassVar[float] = 1.0  # type: ignore[misc]  # the reward scale takes the temperature's place
    learn_alpha: ClassVar[bool] = False  # type: ignore[misc]
    lr_alpha: ClassVar[float] = 0.0  # type: ignore[misc]
    target_entropy: ClassVar[None] = None  # type: ignore[misc]
    lr_q: NonNegativeOrSchedule = 3e-4
    lr_value: NonNegativeOrSchedule = 3e-4
    reward_scale: Positive = 5.0

    def build_targets(self) -> None:
        """Make the state-value network and its target."""
        self.value = self.actor.make("value", StateValue())
        self.train_value = self.train("value", self.value, lr="lr_value")
        self.target_state_value = self.target(self.value)

    def target_value(self, rows: Rows, alpha: Tensor) -> Value:
        """Return scaled rewards plus discounted values of the next states (equation 8)."""
        following = ScalarValue(self.target_state_value(rows.next))
        return following.backup(self.reward_scale * rows.reward, rows.discount)

    def losses_beside(self, rows: Rows, now: Expected, entropy: Tensor) -> dict[Trained, Tensor]:
        """Return the loss of the state values (equation 5)."""
        return {self.train_value: self.value_loss(self.value, self.state_value(rows, now), rows)}

    def value_loss(self, network: Network, target: Tensor, rows: Rows) -> Tensor:
        """Return half of the mean squared difference of a state-value network from targets (N, 1)."""
        value = ScalarValue(network(rows.now), huber_threshold=None)
        return value.weighted_loss(rows.weight, ScalarValue(target.detach()))[0]

    def state_value(self, rows: Rows, now: Expected) -> Tensor:
        """Return what state values are trained on, (N, 1): the policy's soft values."""
        return now.value.mean + now.entropy
