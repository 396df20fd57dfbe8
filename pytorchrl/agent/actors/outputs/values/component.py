"""Expected returns of the components of a reward."""

from typing import Self

from torch import Tensor

from pytorchrl.agent.actors.outputs.values.value import Value


class ComponentValue(Value):
    """An expected return of each component of the reward, for each row.

    Args:
        components: (B, m).
    """

    def __init__(self, components: Tensor) -> None:
        self.components = components

    @property
    def mean(self) -> Tensor:
        """Sum of the components' expected returns, (B, 1)."""
        return self.components.sum(1, keepdim=True)

    def backup(self, reward: Tensor, discount: Tensor) -> Self:
        """Value of ``reward + discount * return`` of each component; rewards are (B, m), discounts (B, 1)."""
        return type(self)(reward.addcmul(discount, self.components))

    def loss(self, target: "ComponentValue") -> Tensor:
        """Half the squared error of each row, summed over components, (B, 1)."""
        return 0.5 * (self.components - target.components).square().sum(1, keepdim=True)

    def error(self, target: "ComponentValue") -> Tensor:
        """Euclidean norm of the components' errors of each row, (B, 1), without a gradient."""
        difference = self.components.detach() - target.components
        return difference.square_().sum(1, keepdim=True).sqrt_()

    def detach(self) -> Self:
        """Copy without gradients."""
        return type(self)(self.components.detach())
