"""SAC: a stochastic policy that is paid for its entropy, and critics learnt from replayed transitions."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.distributions import SquashedGaussian
from pytorchrl.agent.actors.memory import RecurrentBody, flat
from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.algorithm import ActingStep, Algorithm, Info
from pytorchrl.agent.algorithms.flat_adam import FlatAdam, FlatParameters
from pytorchrl.agent.algorithms.sequences import features_of_next, unrolled, weights_of_steps
from pytorchrl.agent.algorithms.targets import follow, make_target
from pytorchrl.agent.envs.spaces import UnsupportedSpaceError, check_real_actions
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule, Positive, UnitInterval
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, OBS, OBS2, REW, WEIGHTS, Batch


class SAC(Algorithm):
    """Haarnoja et al., "Soft Actor-Critic Algorithms and Applications" (arXiv 1812.05905), with a learnt temperature.

    Entropies are those of actions scaled to (-1, 1), whatever the bounds of the Box.

    Args:
        lr_pi: Adam's learning rate of the policy.
        lr_q: Adam's learning rate of the critics.
        lr_alpha: Adam's learning rate of the temperature's logarithm.
        gamma: discount factor of one step.
        polyak: how much of the target critics stays after each batch.
        num_critics: critics; the smallest of their values counts.
        initial_alpha: temperature at first.
        learn_alpha: let the temperature follow ``target_entropy``; else it stays.
        target_entropy: entropy that the temperature aims at, in nats; None takes minus the number of action dimensions.
        start_steps: environment transitions before the first update; actions are random until then.
        update_every: environment transitions between update phases.
        num_mini_batch: batches of an update phase.
        mini_batch_size: transitions in a batch.
        test_every: environment transitions between evaluations; 0 for none.
        num_test_episodes: episodes of an evaluation.
    """

    on_policy = False
    unchangeable = frozenset({"num_critics", "initial_alpha"})
    actor_class = OffPolicyActor
    actor: OffPolicyActor

    def __init__(
        self,
        device: torch.device | str,
        actor: OffPolicyActor,
        envs: VecEnv,
        lr_pi: NonNegativeOrSchedule = 3e-4,
        lr_q: NonNegativeOrSchedule = 1e-3,
        lr_alpha: NonNegativeOrSchedule = 3e-4,
        gamma: UnitInterval = 0.99,
        *,
        polyak: UnitInterval = 0.995,
        num_critics: Count = 2,
        initial_alpha: Positive = 1.0,
        learn_alpha: bool = True,
        target_entropy: float | None = None,
        start_steps: CountOrZero = 1_000,
        update_every: Count = 1,
        num_mini_batch: Count = 1,
        mini_batch_size: Count = 256,
        test_every: CountOrZero = 5_000,
        num_test_episodes: Count = 10,
    ) -> None:
        super().__init__(device, actor, envs, gamma, test_every, num_test_episodes)
        self.lr_pi, self.lr_q, self.lr_alpha = lr_pi, lr_q, lr_alpha
        self.polyak = polyak
        self.num_critics = num_critics
        self.learn_alpha = learn_alpha
        self.target_entropy = target_entropy
        self.start_steps = start_steps
        self.update_every = update_every
        self.num_mini_batch = num_mini_batch
        self.mini_batch_size = mini_batch_size
        assert isinstance(self.action_space, spaces.Box)
        self._action_size = math.prod(self.action_space.shape)
        actor.create_policy()
        actor.create_critics(num_critics)
        self._target_critics = make_target(actor.critics)
        self.log_alpha = nn.Parameter(torch.tensor([math.log(initial_alpha)], device=self.device))
        policy = [*actor.policy_body.parameters(), *actor.policy_head.parameters()]
        self._critic_parameters = list(actor.critics.parameters())
        self._critics_vector = FlatParameters(self._critic_parameters)
        self._target_vector = FlatParameters(self._target_critics.parameters())
        self._optimizer = FlatAdam([FlatParameters(policy), self._critics_vector, FlatParameters([self.log_alpha])])
        self._follow_schedules()

    @classmethod
    def check_spaces(cls, envs: VecEnv) -> None:
        """SAC squashes its actions into finite bounds."""
        space = envs.action_space
        if not isinstance(space, spaces.Box):
            raise UnsupportedSpaceError(
                f"{cls.__name__} needs a Box action space, the environments have {space}; DQN and PPO choose among "
                f"Discrete actions, PPO several at once"
            )
        check_real_actions(space, cls.__name__)
        if not (np.isfinite(space.low) & np.isfinite(space.high)).all():
            raise UnsupportedSpaceError(
                f"{cls.__name__} needs finite bounds of every action, the environments have {space}; "
                f"wrappers=[('BoundAction', {{'low': -1.0, 'high': 1.0}})] gives bounds, PPO does without"
            )

    def acting_step(self, obs: Any, rhs: Any, done: Tensor, deterministic: bool = False) -> ActingStep:
        """Draw actions from the policy, or take their squashed means."""
        with torch.inference_mode():
            if self.actor.memory is None:
                policy = self._policy(obs)
            else:
                features, rhs = self.actor.policy_body(obs, rhs, done)
                policy = self._policy_of(features)
            action = self.actor.scale.to_env(policy.mode() if deterministic else policy.sample(self._generator))
        return ActingStep(action, action, rhs, {})

    @property
    def alpha(self) -> float:
        """The temperature: what a nat of entropy is worth in reward."""
        return self.log_alpha.exp().item()

    def _policy(self, obs: Any) -> SquashedGaussian:
        policy = self.actor.policy(obs)
        assert isinstance(policy, SquashedGaussian)
        return policy

    def _policy_of(self, features: Tensor) -> SquashedGaussian:
        policy = self.actor.policy_head(features)
        assert isinstance(policy, SquashedGaussian)
        return policy

    def _backward(self, batch: Batch) -> Info:
        if self.actor.memory is not None:
            return self._backward_through_time(batch)
        obs = batch[OBS]
        alpha = self.log_alpha.detach().exp()
        target = self._soft_targets(batch, alpha)
        stored_action = self.actor.scale.from_env(batch[ACT])
        errors = [critic(obs, stored_action) - target for critic in self.actor.critics]
        critic_loss = sum((batch[WEIGHTS] * error.square()).mean() for error in errors) * 0.5

        # The policy's gradient passes through the critics and leaves none behind: half of their work saved.
        action, log_prob = self._policy(obs).sample_with_log_prob(self._generator)
        self._freeze_critics(True)
        q = _smallest([critic(obs, action) for critic in self.actor.critics])
        self._freeze_critics(False)
        policy_loss = (alpha * log_prob - q).mean()

        self._optimizer.zero_grad()
        (critic_loss + policy_loss).backward()
        entropy = -log_prob.detach().mean()
        if self.learn_alpha:
            self.log_alpha.grad = (entropy - self._entropy_aimed_at()).reshape(1)
        with torch.no_grad():
            per_row = torch.cat(errors, dim=1).abs().mean(1, keepdim=True)
        return {
            "critic_loss": critic_loss.detach(),
            "policy_loss": policy_loss.detach(),
            "q_value": q.detach().mean(),
            "entropy": entropy,
            "alpha": alpha[0],
            ERRORS: per_row,
        }

    def _backward_through_time(self, batch: Batch) -> Info:
        alpha = self.log_alpha.detach().exp()
        body = self.actor.policy_body
        assert isinstance(body, RecurrentBody)
        features, states = unrolled(body, batch, stored=True)
        target = self._soft_targets_of_sequences(batch, alpha, states)
        weights, real = weights_of_steps(batch), batch[MASK].flatten(0, 1)
        share = real / real.sum()
        stored_action = self.actor.scale.from_env(flat(batch[ACT]))
        seen = [unrolled(body, batch, stored=False)[0].flatten(0, 1) for body in _bodies(self.actor.critics)]
        errors = [
            critic(memory, stored_action) - target for critic, memory in zip(self.actor.critics, seen, strict=True)
        ]
        critic_loss = sum((weights * error.square()).sum() for error in errors) * 0.5

        action, log_prob = self._policy_of(features.flatten(0, 1)).sample_with_log_prob(self._generator)
        self._freeze_critics(True)
        q = _smallest(
            [critic(memory.detach(), action) for critic, memory in zip(self.actor.critics, seen, strict=True)]
        )
        self._freeze_critics(False)
        policy_loss = (share * (alpha * log_prob - q)).sum()

        self._optimizer.zero_grad()
        (critic_loss + policy_loss).backward()
        entropy = -(share * log_prob.detach()).sum()
        if self.learn_alpha:
            self.log_alpha.grad = (entropy - self._entropy_aimed_at()).reshape(1)
        with torch.no_grad():
            per_step = torch.cat(errors, dim=1).abs().mean(1, keepdim=True)
        return {
            "critic_loss": critic_loss.detach(),
            "policy_loss": policy_loss.detach(),
            "q_value": (share * q.detach()).sum(),
            "entropy": entropy,
            "alpha": alpha[0],
            ERRORS: per_step.view(batch[REW].shape),
        }

    @torch.no_grad()
    def _soft_targets_of_sequences(self, batch: Batch, alpha: Tensor, states: Tensor) -> Tensor:
        """(T * B, 1), as :meth:`_soft_targets`; ``states`` are the policy's memory after each step."""
        body = self.actor.policy_body
        assert isinstance(body, RecurrentBody)
        action, log_prob = self._policy_of(features_of_next(body, batch, states)).sample_with_log_prob(self._generator)
        values = []
        for critic, critic_body in zip(self._target_critics, _bodies(self._target_critics), strict=True):
            _, critic_states = unrolled(critic_body, batch, stored=False)
            values.append(critic(features_of_next(critic_body, batch, critic_states), action))
        target: Tensor = flat(batch[REW]) + flat(batch[DISCOUNT]) * (_smallest(values) - alpha * log_prob)
        return target

    @torch.no_grad()
    def _soft_targets(self, batch: Batch, alpha: Tensor) -> Tensor:
        """(B, 1): equation 3 of the paper, the smallest target critic standing for the value."""
        action, log_prob = self._policy(batch[OBS2]).sample_with_log_prob(self._generator)
        q = _smallest([critic(batch[OBS2], action) for critic in self._target_critics])
        target: Tensor = batch[REW] + batch[DISCOUNT] * (q - alpha * log_prob)
        return target

    def _entropy_aimed_at(self) -> float:
        return -float(self._action_size) if self.target_entropy is None else self.target_entropy

    def _freeze_critics(self, frozen: bool) -> None:
        for parameter in self._critic_parameters:
            parameter.requires_grad_(not frozen)

    def _step(self) -> None:
        self._optimizer.step()
        follow(self._target_vector, self._critics_vector, self.polyak)

    def _trained(self) -> dict[str, nn.Parameter]:
        return super()._trained() | {"log_alpha": self.log_alpha}

    def _follow_schedules(self) -> None:
        self._optimizer.learning_rates = [self.current(lr) for lr in (self.lr_pi, self.lr_q, self.lr_alpha)]

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next action and the next update depend on."""
        return super().state_dict() | {
            "target_critics": self._target_critics.state_dict(),
            "log_alpha": self.log_alpha.detach(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what was saved."""
        super().load_state_dict(state)
        self._target_critics.load_state_dict(state["target_critics"])
        with torch.no_grad():
            self.log_alpha.copy_(state["log_alpha"])


def _bodies(critics: nn.ModuleList) -> list[RecurrentBody]:
    return [critic.body for critic in critics if isinstance(critic.body, RecurrentBody)]


def _smallest(values: list[Tensor]) -> Tensor:
    smallest = values[0]
    for value in values[1:]:
        smallest = torch.minimum(smallest, value)
    return smallest
