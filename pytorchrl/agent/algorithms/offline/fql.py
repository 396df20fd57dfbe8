"""FQL: a one-step policy distilled from a flow of the data's actions, which also maximises values."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import ActionValue, DeterministicPolicy
from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.actor_critic.critics import average, loss_of_critics, smallest
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy
from storages.component.hyper_parameters import Count, CountOrZero, NonNegative, NonNegativeOrSchedule, UnitInterval


class FQL(OffPolicyAlgorithm):
    """Park et al., "Flow Q-Learning" (arXiv 2502.02538), algorithm 1.

    A velocity field learns to carry normal noise to the data's actions. The policy maps the same noise to an action in
    one step; it stays close to the end of the flow and maximises the critics. Actions are scaled from the bounds of the
    action space to [-1, 1], and distances are means over their components, as in the authors' code.

    Args:
        lr_pi: learning rate of the policy.
        lr_flow: learning rate of the velocity field.
        lr_q: learning rate of the critics.
        polyak: weight that target networks keep in each of their updates.
        target_update_interval: updates between updates of the target networks.
        num_critics: number of critics, with separate weights; the policy maximises their mean.
        value_of_targets: value of a next action in targets: the mean of the critics, or their minimum.
        alpha: weight of the squared distance between policy and flow, relative to the values; chosen for each task.
        normalize_q_loss: divide values by their mean magnitude in the policy's loss, so that ``alpha`` does not depend
            on the scale of rewards.
        flow_steps: steps of Euler's method from noise to an action.
        critic_layer_norm: layer normalisation in the critics; False leaves it to the actor.
    """

    constrained_to_data: ClassVar[bool] = True
    actions = "bounded"
    unchangeable = frozenset({"num_critics", "critic_layer_norm"})

    lr_pi: NonNegativeOrSchedule = 3e-4
    lr_flow: NonNegativeOrSchedule = 3e-4
    lr_q: NonNegativeOrSchedule = 3e-4
    polyak: UnitInterval = 0.995
    target_update_interval: Count = 1
    num_critics: Count = 2
    value_of_targets: Literal["mean", "minimum"] = "mean"
    alpha: NonNegative = 10.0
    normalize_q_loss: bool = False
    flow_steps: Count = 10
    critic_layer_norm: bool = True
    test_every: CountOrZero = 5_000

    def build(self) -> None:
        """Make policy, velocity field, critics and target critics."""
        size, head = self.codec.size, DeterministicPolicy(squash=False)
        self.pi = self.actor.make("policy", head, beside=size, acts=True)
        # The velocity at a point between noise and action, which it takes with its time beside the observation.
        self.flow = self.actor.make("flow", head, beside=size + 1)
        layers: Layers | None = {"layer_norm": True} if self.critic_layer_norm else None
        make = self.actor.make_ensemble
        self.critics = make("critics", ActionValue(), self.num_critics, codec=self.codec, layers=layers)
        self.train_pi = self.train("policy", self.pi, lr="lr_pi")
        self.train_flow = self.train("flow", self.flow, lr="lr_flow")
        self.train_critics = self.train("critics", self.critics, lr="lr_q")
        self.target_critics = self.target(self.critics, every="target_update_interval")

    def losses(self, rows: Rows) -> Losses:
        """Return the losses of critics and velocity field."""
        with torch.no_grad():
            next_action = self.one_step_action(rows.next, self.noise(len(rows), self.generator))
            next_values = self.target_critics(rows.next, next_action)
            combined = average(next_values) if self.value_of_targets == "mean" else smallest(next_values)
            target = combined.backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        critic_loss, errors = loss_of_critics(values, target, rows)
        flow_loss = self.flow_loss(rows)
        metrics = {"critic_loss": critic_loss.detach(), "flow_loss": flow_loss.detach()}
        return Losses({self.train_critics: critic_loss, self.train_flow: flow_loss}, metrics, errors)

    def flow_loss(self, rows: Rows) -> Tensor:
        """Return the squared error () of velocities on straight lines from noise to the data's actions."""
        noise = self.noise(len(rows), self.generator)
        time = torch.empty_like(noise[:, :1]).uniform_(generator=self.generator)
        velocity = self.flow(rows.now, torch.cat([noise.lerp(rows.action, time), time], dim=1))
        return rows.mean((velocity - (rows.action - noise)).square().mean(1, keepdim=True))

    def losses_after_step(self, rows: Rows) -> Losses:
        """Return the policy's weighted squared distance to the flow's actions, less the values of its own."""
        noise = self.noise(len(rows), self.generator)
        with torch.no_grad():
            flow_action = self.flow_action(rows.now, noise)
        action = self.pi(rows.now, noise)
        with self.critics.frozen():
            value = average(self.critics(rows.now, self.codec.clip(action))).mean
        q_value = rows.mean(value.detach())
        if self.normalize_q_loss:
            value = value / rows.mean(value.detach().abs()).clamp(min=_TINY)
        distance = (action - flow_action).square().mean(1, keepdim=True)
        loss = rows.mean(self.alpha * distance - value)
        metrics = {"policy_loss": loss.detach(), "distance": rows.mean(distance.detach()), "q_value": q_value}
        return Losses({self.train_pi: loss}, metrics)

    def flow_action(self, view: View, noise: Tensor) -> Tensor:
        """Return the actions (N, A) to which the flow carries noise (N, A), by Euler's method."""
        point = noise
        for step in range(self.flow_steps):
            time = torch.full_like(point[:, :1], step / self.flow_steps)
            point = point + self.flow(view, torch.cat([point, time], dim=1)) / self.flow_steps
        return self.codec.clip(point)

    def one_step_action(self, view: View, noise: Tensor) -> Tensor:
        """Return the policy's actions (N, A) of noise (N, A)."""
        return self.codec.clip(self.pi(view, noise))

    def noise(self, rows: int, generator: torch.Generator) -> Tensor:
        """Return standard normal noise (N, A)."""
        return torch.empty((rows, self.codec.size), device=self.device).normal_(generator=generator)

    def policy(self, view: View, exploration: Exploration) -> Any:
        """Return an action for each row, of drawn noise."""
        return self.one_step_action(view, self.noise(exploration.num_envs, exploration.generator))

    def default_explorer(self) -> Explorer:
        """Return the policy's actions, which are random already."""
        return Greedy()


_TINY = 1e-8
"""Avoids division by 0 where all values are 0."""
