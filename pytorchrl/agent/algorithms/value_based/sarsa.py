"""SARSA: DQN that bootstraps on the next action taken instead of the greedy one."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs import ActionValues, Value
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.explorers import Exploration


class SARSA(DQN):
    """Rummery and Niranjan, "On-line Q-learning using connectionist systems" (CUED/F-INFENG/TR 166, 1994).

    Bootstraps on the target network's value of the next action taken. Where none is known (the episode was truncated,
    or its next step is not stored yet), the explorer selects one by the values of the online network if ``double``,
    else of the target network.

    Args:
        next_action: "taken" bootstraps on the next action taken, where it is known; "policy" lets the explorer select
            every next action again, so that it is the current policy's and not the behaviour policy's.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", next_actions=True)}

    next_action: Literal["taken", "policy"] = "taken"

    def build(self) -> None:
        """Make DQN's networks, and the random generators for next actions."""
        super().build()
        self._exploration = Exploration(self.codec, 0, self.device, seed=0)

    def target_value(self, rows: Rows) -> Value:
        """Return ``r + gamma * Q_target(s', a')``, where a' is the next action."""
        values: ActionValues = self.q_target(rows.next)
        chooser: ActionValues = self.q(rows.next) if self.double else values
        return values.of(self.chosen_next(rows, chooser)).backup(rows.reward, rows.discount)

    def chosen_next(self, rows: Rows, values: ActionValues) -> Tensor:
        """Return the next actions (N, 1): those taken where known, else the explorer's."""
        exploration = self._exploration.of_rows(len(rows), self.steps, self.target_steps)
        exploration.allowed = None if self.actor.mask is None else partial(self.actor.mask.of, rows.next)
        chosen = self.explorer_of_policy.act(lambda: values, exploration)
        if self.next_action == "policy":
            return chosen
        return torch.where(rows.next_action_taken > 0, rows.next_action, chosen)

    def seed(self, seed: int | np.random.SeedSequence) -> None:
        """Seed the random generators of updates, of next actions and of networks."""
        super().seed(seed)
        sequence = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        *_, number = sequence.generate_state(3, np.uint64)
        self._exploration.seed(int(number))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next update depends on, as tensors and plain data."""
        return super().state_dict() | {"exploration": self._exploration.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        super().load_state_dict(state)
        self._exploration.load_state_dict(state["exploration"])
