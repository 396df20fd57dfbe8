"""Classical variants of Q-learning's target, on DQN.

SARSA: DQN that bootstraps on the next action taken instead of the greedy one.
ResidualDQN: gradients also through the bootstrapped target, without a target network.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValues, ScalarValue, Value
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.algorithms.value_based.dqn import DQN
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import UnitInterval


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
    constrained_to_data: ClassVar[bool] = True

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


class ResidualDQN(DQN):
    """Baird, "Residual Algorithms: Reinforcement Learning with Function Approximation" (ICML 1995).

    Targets are computed by the online network, and gradients also pass through the next value. There is no target
    network, and so no ``double``, ``polyak`` or ``target_update_interval``.

    Args:
        grad_scale: factor of the gradient through the next value: 1 for the residual gradient, 0 for the semi-gradient
            of Q-learning, in between for a residual algorithm (phi in the paper).
    """

    double: ClassVar[bool] = False  # type: ignore[misc]
    polyak: ClassVar[float] = 0.0  # type: ignore[misc]
    target_update_interval: ClassVar[int] = 1  # type: ignore[misc]
    grad_scale: UnitInterval = 1.0

    def build(self) -> None:
        """Make the Q-network, which is its own target."""
        self.q = self.actor.make("q", self.head(), acts=True)
        self.trained = self.train("q", self.q)
        self.q_target: Network = self.q

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the actions' values against targets, with gradients in both."""
        target = self.target_value(rows)
        value: Value = self.q(rows.now).of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: self.reduced(loss, rows)}, metrics, rows.per_row(errors))

    def target_value(self, rows: Rows) -> Value:
        """Return ``r + gamma * max_a Q(s', a)``, with the gradient of the maximum scaled by ``grad_scale``."""
        values: ActionValues = self.q(rows.next)
        value = values.of(values.greedy()).mean
        scaled = value.detach().lerp(value, self.grad_scale)
        return ScalarValue(scaled).backup(rows.reward, rows.discount)
