"""The largest action value as a value function, from which rollouts bootstrap."""

from torch import Tensor, nn

from pytorchrl.agent.actors.outputs import ActionValues
from pytorchrl.agent.actors.view import View


class LargestValue(nn.Module):
    """``max_a Q(s, a)``, (N, 1): the module ``actor.value`` that storages of rollouts ask for.

    Args:
        q: network of the values of all actions.
    """

    def __init__(self, q: nn.Module) -> None:
        super().__init__()
        self.q = q

    def forward(self, view: View) -> Tensor:
        """Return the largest values (N, 1) of a view."""
        values: ActionValues = self.q(view)
        return values.best().mean
