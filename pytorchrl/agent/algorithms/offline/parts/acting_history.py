"""What was done in the last steps of running episodes, kept for each environment while acting."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.offline.parts.trajectory_network import Steps
from pytorchrl.agent.explorers import Exploration

_NAMES = ("to_go", "step", "returns", "states", "actions")


@dataclass(frozen=True)
class ActingHistory:
    """The last K steps of ``E`` environments, the present one included."""

    to_go: Tensor
    """(E, 1): the return that is still to come."""
    step: Tensor
    """(E, 1) int64: steps of the episode before the present one."""
    returns: Tensor
    """(E, K, 1), from an episode's beginning or the oldest step on; what lies behind the present step is not valid."""
    states: Tensor
    """(E, K, size)."""
    actions: Tensor
    """(E, K, A); not yet that of the present step."""

    @classmethod
    def continued(
        cls, exploration: Exploration, states: Tensor, length: int, action_size: int, target_return: float | Tensor
    ) -> "ActingHistory":
        """The history of an exploration and the step after it, or the first step of an episode.

        Args:
            exploration: whose state has the history, its starts say where episodes begin, and its rewards what the last
                actions were paid.
            states: (E, size), of the present step.
            length: K.
            action_size: A.
            target_return: of an episode that begins.
        """
        state, rows = exploration.state, len(states)
        if "to_go" in state:
            before = cls(*(state[name] for name in _NAMES))
        else:
            blank = [states.new_zeros((rows, length, size)) for size in (1, states.shape[1], action_size)]
            before = cls(states.new_zeros((rows, 1)), states.new_full((rows, 1), -1, dtype=torch.int64), *blank)
        paid = 0.0 if exploration.rewards is None else exploration.rewards
        begins = before.step < 0 if exploration.starts is None else exploration.starts > 0
        to_go = torch.where(begins, target_return, before.to_go - paid)
        step = torch.where(begins, 0, before.step + 1)
        here, is_full = _is_present(step, length), (step >= length).unsqueeze(2)

        def moved(field: Tensor) -> Tensor:
            return torch.where(is_full, field.roll(-1, dims=1), field)

        returns = torch.where(here, to_go.unsqueeze(1), moved(before.returns))
        seen = torch.where(here, states.unsqueeze(1), moved(before.states))
        return cls(to_go, step, returns, seen, moved(before.actions))

    def steps(self, return_scale: float) -> Steps:
        """As a network takes them."""
        return Steps(self.returns / return_scale, self.states, self.actions, self.step - self._position)

    def present(self, of_steps: Tensor) -> Tensor:
        """(E, size): what features (E, K, size) of all steps say of the present one."""
        return of_steps.take_along_dim(self._position.unsqueeze(2), dim=1)[:, 0]

    def with_action(self, action: Tensor) -> "ActingHistory":
        """The history in which actions (E, A) were taken in the present step."""
        here = _is_present(self.step, self.actions.shape[1])
        return replace(self, actions=torch.where(here, action.unsqueeze(1), self.actions))

    def state_dict(self) -> dict[str, Tensor]:
        """As an exploration keeps it."""
        return {name: getattr(self, name) for name in _NAMES}

    @property
    def _position(self) -> Tensor:
        """(E, 1) int64: where the present step is."""
        return self.step.clamp(max=self.returns.shape[1] - 1)


def _is_present(step: Tensor, length: int) -> Tensor:
    """(E, K, 1): where the present step is."""
    return (torch.arange(length, device=step.device) == step.clamp(max=length - 1)).unsqueeze(2)
