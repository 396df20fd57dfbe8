"""SARSA: values of discrete actions under the policy that explores, learnt from replayed transitions."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import ActionValues
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.explorers import Exploration


class SARSA(DQN):
    """Rummery and Niranjan, "On-line Q-learning using connectionist systems" (CUED/F-INFENG/TR 166, 1994).

    Bootstraps on the action that was taken next, valued by the target network. Where none is known (the episode was
    cut, or its next step is not stored yet), the explorer chooses one for the last observation, by the values that
    ``double`` says.

    Args:
        next_action: "taken" bootstraps on the action that was taken, where it is known; "policy" lets the explorer
            choose every next action anew, so that it is the present policy's, and not that of the one that acted.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", next_actions=True)}

    next_action: Literal["taken", "policy"] = "taken"

    def build(self) -> None:
        """As DQN, and what the choice of next actions draws on."""
        super().build()
        self._exploration = Exploration(self.codec, 0, self.device, seed=0)

    def chosen_next(self, rows: Rows, values: ActionValues) -> Tensor:
        """(N, 1): those that were taken, and those of the explorer."""
        exploration = self._exploration.of_rows(len(rows), self.steps, self.target_steps)
        chosen = self.explorer_of_policy.act(lambda: values, exploration)
        if self.next_action == "policy":
            return chosen
        return torch.where(rows.next_action_taken > 0, rows.next_action, chosen)

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Start the random generators of updates, of the choice of next actions and of networks anew."""
        super().seed(seed)
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        *_, number = sequence.generate_state(3, np.uint64)
        self._exploration.seed(int(number))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on, as tensors and plain data."""
        return super().state_dict() | {"exploration": self._exploration.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        super().load_state_dict(state)
        self._exploration.load_state_dict(state["exploration"])
