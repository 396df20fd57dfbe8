"""DQN: Q-learning with a deep network, a replay buffer and a target network."""

from typing import Literal

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.outputs import ActionValues, Value
from pytorchrl.agent.actors.presets import OffPolicyActor
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm, Preset
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import EpsilonGreedy, Exploration, Explorer
from pytorchrl.agent.optimizers import RMSprop
from storages.component.declared import hyper_parameters_of
from storages.component.factory import make_factory
from storages.component.hyper_parameters import (
    Count,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
    UnitIntervalOrSchedule,
)
from storages.component.schedule import LinearSchedule, PiecewiseSchedule
from storages.off_policy.replay_buffer import ReplayBuffer

_NATURE = {
    "lr": 2.5e-4,
    # The paper adds 0.01 to squares of gradients that are summed over the 32 rows of a batch; here they are means.
    "optimizer": RMSprop(alpha=0.95, eps=0.01 / 32**2, centered=True, eps_inside_root=True),
    "epsilon": PiecewiseSchedule(((0, 1.0), (1_000_000, 0.1)), positions="steps"),
    "double": False,
    "start_steps": 50_000,
    "update_every": 4,
    "mini_batch_size": 32,
    "polyak": 0.0,
    "target_update_interval": 10_000,
    "max_grad_norm": None,
}


class DQN(OffPolicyAlgorithm):
    """Mnih et al., "Human-level control through deep reinforcement learning" (Nature 518, 2015), algorithm 1.

    Args:
        double: select the next action with the online network and evaluate it with the target network (double DQN,
            van Hasselt et al., arXiv 1509.06461).
        epsilon: probability of a random action.
        huber_threshold: error beyond which the Huber loss is linear; None takes the squared loss.
        loss_reduction: "mean" takes the mean loss of a batch, "sum" the sum: PFRL's and ChainerRL's
            ``batch_accumulator="sum"``, for their settings of optimisers other than Adam.
        lr: learning rate.
        polyak: weight that the target network keeps in each of its updates; 0 copies the online network.
        target_update_interval: batches between updates of the target network.
    """

    actions = "discrete"
    unchangeable = frozenset({"huber_threshold"})

    double: bool = True
    epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2)
    huber_threshold: Positive | None = 1.0
    loss_reduction: Literal["mean", "sum"] = "mean"
    lr: NonNegativeOrSchedule = 1e-3
    max_grad_norm: Positive | None = 10.0
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    update_every: Count = 4
    mini_batch_size: Count = 128

    def build(self) -> None:
        """Make the Q-network and its target."""
        self.q = self.actor.make("q", self.head(), acts=True)
        self.trained = self.train("q", self.q)
        self.q_target: Network = self.target(self.q, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the values of the actions taken, ``Q(s, a)``, against their targets."""
        with torch.no_grad():
            target = self.target_value(rows)
        value: Value = self.q(rows.now).of(rows.action)
        loss, errors = value.weighted_loss(rows.weight, target)
        metrics = {"loss": loss.detach(), "q_value": rows.mean(value.mean.detach())}
        return Losses({self.trained: self.reduced(loss, rows)}, metrics, rows.per_row(errors))

    def reduced(self, loss: Tensor, rows: Rows) -> Tensor:
        """Return the loss () of a batch as ``loss_reduction`` says, given the mean over its rows."""
        return loss * rows.count if self.loss_reduction == "sum" else loss

    def target_value(self, rows: Rows) -> Value:
        """Return ``r + gamma * Q_target(s', argmax_a Q(s', a))``; by ``Q_target`` alone if not ``double``."""
        values: ActionValues = self.q_target(rows.next)
        chooser: ActionValues = self.q(rows.next) if self.double else values
        return values.of(chooser.greedy()).backup(rows.reward, rows.discount)

    def head(self) -> Head:
        """Return the head of the Q-network, which represents the values of all actions."""
        return Values(self.huber_threshold)

    def policy(self, view: View, exploration: Exploration) -> ActionValues:
        """Return the values of all actions."""
        values: ActionValues = self.q(view)
        return values

    def default_explorer(self) -> Explorer:
        """Return epsilon-greedy exploration."""
        return EpsilonGreedy(self.epsilon)

    @classmethod
    def nature(cls, capacity: int = 1_000_000, num_envs: int = 1) -> Preset:
        """The paper's extended data table 1, for Atari with clipped rewards and stacks of 4 frames.

        Frames in the table are those that the agent sees, one per transition; runs had 50 million. The target network
        is copied every 10,000 updates, as the table says, where the authors' code copies it every 10,000 transitions. A
        variant of DQN without one of these hyper-parameters takes the others.

        Args:
            capacity: transitions that the storage keeps.
            num_envs: of the training environments.
        """
        known = hyper_parameters_of(cls)
        return Preset(
            algo_factory=make_factory(cls, (), {name: value for name, value in _NATURE.items() if name in known}),
            actor_factory=OffPolicyActor.create_factory(feature_extractor="nature_cnn", hidden_sizes=()),
            storage_factory=ReplayBuffer.create_factory(capacity // num_envs),
        )
