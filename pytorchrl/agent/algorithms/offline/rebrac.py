"""ReBRAC: TD3 with separate penalties for leaving the data, in the policy's loss and in the critics' targets."""

from collections.abc import Mapping
from typing import ClassVar

import torch

from pytorchrl.agent.actors.heads import ActionValue
from pytorchrl.agent.actors.layers.mlp import Layers
from pytorchrl.agent.actors.network import Ensemble
from pytorchrl.agent.actors.outputs import ScalarValue
from pytorchrl.agent.algorithms.actor_critic.critics import loss_of_critics, smallest
from pytorchrl.agent.algorithms.actor_critic.td3 import TD3
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule


class ReBRAC(TD3):
    """Tarasov et al., "Revisiting the Minimalist Approach to Offline Reinforcement Learning" (arXiv 2305.09836).

    Critics have layer normalisation; the paper's networks have three hidden layers of 256 units, which is the actor's
    ``hidden_sizes``. The penalties are as in the authors' code: squared distances, summed over the components of
    actions in [-1, 1].

    Args:
        policy_penalty: weight of the squared distance between the policy's actions and those of the data, in the
            policy's loss (beta_1).
        critic_penalty: weight, in reward, of the squared distance between next actions and those of the data, which is
            subtracted from the next value (beta_2). There is none where the data's next action is not known.
        normalize_q_loss: divide values by their mean magnitude in the policy's loss.
        critic_layer_norm: layer normalisation in the critics; False leaves it to the actor.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", next_actions=True)}
    constrained_to_data: ClassVar[bool] = True
    unchangeable = frozenset({"critic_layer_norm"})

    policy_penalty: NonNegativeOrSchedule = 0.01
    critic_penalty: NonNegativeOrSchedule = 0.01
    normalize_q_loss: bool = True
    critic_layer_norm: bool = True
    mini_batch_size: Count = 1024

    def make_critics(self) -> Ensemble:
        """Make critics with layer normalisation."""
        layers: Layers | None = {"layer_norm": True} if self.critic_layer_norm else None
        return self.actor.make_ensemble("critics", ActionValue(), self.num_critics, codec=self.codec, layers=layers)

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the critics against the smallest value of a smoothed next action, less its penalty."""
        with torch.no_grad():
            next_action = self.smoothed_next_action(rows)
            distance = (next_action - rows.next_action).square().sum(1, keepdim=True)
            penalty = self.current(self.critic_penalty) * rows.next_action_taken * distance
            next_value = smallest(self.target_critics(rows.next, next_action)).mean - penalty
            target = ScalarValue(next_value).backup(rows.reward, rows.discount)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"q_value": rows.mean(values[0].mean.detach()), "critic_penalty": rows.mean(penalty)}
        return Losses({self.train_critics: loss}, {"critic_loss": loss.detach(), **metrics}, errors)

    def losses_after_step(self, rows: Rows) -> Losses | None:
        """Return the penalty of the policy's actions less their smallest value."""
        if (self.updates + 1) % self.policy_delay:
            return None
        action = self.pi(rows.now)
        with self.critics.frozen():
            value = smallest(self.critics(rows.now, action)).mean
        if self.normalize_q_loss:
            value = value / rows.mean(value.detach().abs()).clamp(min=_TINY)
        distance = (action - rows.action).square().sum(1, keepdim=True)
        loss = rows.mean(self.current(self.policy_penalty) * distance - value)
        return Losses({self.train_pi: loss}, {"policy_loss": loss.detach(), "distance": rows.mean(distance.detach())})


_TINY = 1e-8
"""Avoids division by 0 where all values are 0."""
