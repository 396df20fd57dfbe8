"""SACWithValue: soft actor-critic with a state-value network to bootstrap from, and a fixed temperature."""

from typing import ClassVar

from torch import Tensor

from pytorchrl.agent.actors.heads import StateValue
from pytorchrl.agent.actors.outputs import ScalarValue, Value
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.training import Trained
from storages.component.hyper_parameters import NonNegativeOrSchedule, Positive


class SACWithValue(SAC):
    """Haarnoja et al., "Soft Actor-Critic: Off-Policy Maximum Entropy Deep RL" (arXiv 1801.01290), equations 5 to 13.

    A nat of entropy is worth as much as a reward of 1; how much that is, the scale of rewards says.

    Args:
        lr_value: learning rate of the state values.
        reward_scale: what rewards are multiplied by when learning; what is stored stays.
    """

    initial_alpha: ClassVar[float] = 1.0  # type: ignore[misc]  # the scale of rewards takes the temperature's place
    learn_alpha: ClassVar[bool] = False  # type: ignore[misc]
    lr_alpha: ClassVar[float] = 0.0  # type: ignore[misc]
    target_entropy: ClassVar[None] = None  # type: ignore[misc]
    lr_q: NonNegativeOrSchedule = 3e-4
    lr_value: NonNegativeOrSchedule = 3e-4
    reward_scale: Positive = 5.0

    def build_targets(self) -> None:
        """State values, and a copy that follows them."""
        self.value = self.actor.make("value", StateValue())
        self.train_value = self.train("value", self.value, lr="lr_value")
        self.target_state_value = self.target(self.value)

    def target_value(self, rows: Rows, alpha: Tensor) -> Value:
        """Scaled rewards and the discounted values of the next states (equation 8)."""
        following = ScalarValue(self.target_state_value(rows.next))
        return following.backup(self.reward_scale * rows.reward, rows.discount)

    def losses_beside(self, rows: Rows, soft_value: Tensor, entropy: Tensor) -> dict[Trained, Tensor]:
        """The loss of the state values, which learn the policy's soft value (equation 5)."""
        value = ScalarValue(self.value(rows.now), huber_threshold=None)
        return {self.train_value: value.weighted_loss(rows.weight, ScalarValue(soft_value))[0]}
