"""PPO: a policy gradient whose steps are kept short by clipping."""

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.on_policy_actor import OnPolicyActor, action_bounds
from pytorchrl.agent.algorithms.algorithm import STOP_UPDATES, ActingStep, Algorithm, Info
from pytorchrl.agent.algorithms.flat_adam import FlatAdam, FlatParameters
from pytorchrl.agent.envs.spaces import check_real_actions
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.hyper_parameters import Count, CountOrZero, NonNegative, NonNegativeOrSchedule, Positive, UnitInterval
from storages.transition import ACT, ADV, DONE, LOGP, OBS, RET, RHS, VAL, Batch


class PPO(Algorithm):
    """Schulman et al., "Proximal Policy Optimization Algorithms" (arXiv 1707.06347).

    Args:
        lr: Adam's learning rate.
        gamma: discount factor of one step.
        num_epochs: times that a rollout is learnt from.
        num_mini_batch: batches that a rollout is divided into.
        clip_param: how far the probability ratio may leave 1 before its gradient stops.
        value_loss_coef: weight of the value function's loss.
        entropy_coef: weight of the policy's entropy.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
        use_clipped_value_loss: keep new values within ``clip_param`` of those when acting; for rewards scaled so that
            values change by about that much, else it holds the value function back.
        normalize_advantages: to mean 0 and standard deviation 1 in each batch.
        target_kl: leave the rest of an update phase out once the policy moved further than 1.5 of this, in nats; None
            never does.
        adam_epsilon: Adam's epsilon.
        test_every: environment transitions between evaluations; 0 for none.
        num_test_episodes: episodes of an evaluation.
    """

    on_policy = True
    actor_class = OnPolicyActor
    actor: OnPolicyActor

    def __init__(
        self,
        device: torch.device | str,
        actor: OnPolicyActor,
        envs: VecEnv,
        lr: NonNegativeOrSchedule = 3e-4,
        gamma: UnitInterval = 0.99,
        num_epochs: Count = 4,
        num_mini_batch: Count = 4,
        clip_param: NonNegativeOrSchedule = 0.2,
        *,
        value_loss_coef: NonNegative = 0.5,
        entropy_coef: NonNegative = 0.0,
        max_grad_norm: Positive | None = 0.5,
        use_clipped_value_loss: bool = False,
        normalize_advantages: bool = True,
        target_kl: Positive | None = None,
        adam_epsilon: Positive = 1e-5,
        test_every: CountOrZero = 10_000,
        num_test_episodes: Count = 10,
    ) -> None:
        super().__init__(device, actor, envs, gamma, test_every, num_test_episodes)
        self.lr = lr
        self.num_epochs = num_epochs
        self.num_mini_batch = num_mini_batch
        self.clip_param = clip_param
        self.value_loss_coef = value_loss_coef
        self.entropy_coef = entropy_coef
        self.max_grad_norm = max_grad_norm
        self.use_clipped_value_loss = use_clipped_value_loss
        self.normalize_advantages = normalize_advantages
        self.target_kl = target_kl
        space = self.action_space
        self._bounds = action_bounds(space, self.device) if isinstance(space, spaces.Box) else None
        actor.create_policy()
        actor.create_value_function()
        self._optimizer = FlatAdam([FlatParameters(actor.parameters())], eps=adam_epsilon)
        self._follow_schedules()

    @classmethod
    def check_spaces(cls, envs: VecEnv) -> None:
        """PPO draws the actions of a Box from normals."""
        if isinstance(envs.action_space, spaces.Box):
            check_real_actions(envs.action_space, cls.__name__)

    def acting_step(self, obs: Any, rhs: Any, done: Tensor, deterministic: bool = False) -> ActingStep:
        """Draw actions from the policy, or take the most likely; a Gaussian's are clipped into the Box on their way."""
        if self.actor.memory is not None:
            return self._remembering_step(obs, rhs, done, deterministic)
        with torch.inference_mode():
            if deterministic:
                policy = self.actor.policy(obs)
                action, fields = policy.mode(), {}
            else:
                policy, value = self.actor.policy_and_value(obs)
                action = policy.sample(self._generator)
                fields = {VAL: value, LOGP: policy.log_prob(action)}
            return ActingStep(action, self._within_bounds(action), rhs, fields)

    def _remembering_step(self, obs: Any, rhs: Tensor, done: Tensor, deterministic: bool) -> ActingStep:
        with torch.inference_mode():
            if deterministic:
                policy, after = self.actor.remembering_policy(obs, rhs, done)
                action, fields = policy.mode(), {}
            else:
                policy, value, after = self.actor.remembering_policy_and_value(obs, rhs, done)
                action = policy.sample(self._generator)
                fields = {VAL: value, LOGP: policy.log_prob(action)}
            return ActingStep(action, self._within_bounds(action), after, fields)

    def _within_bounds(self, action: Tensor) -> Tensor:
        return action if self._bounds is None else action.clamp(*self._bounds)

    def _backward(self, batch: Batch) -> Info:
        if self.actor.memory is None:
            policy, value = self.actor.policy_and_value(batch[OBS])
        else:
            policy, value = self.actor.policy_and_value_of_sequences(batch[OBS], batch[RHS], batch[DONE])
            batch = {key: batch[key].flatten(0, 1) for key in (ACT, LOGP, ADV, RET, VAL)}
        clip_param = self.current(self.clip_param)
        log_ratio = policy.log_prob(batch[ACT]) - batch[LOGP]
        ratio = log_ratio.exp()
        # Schulman's estimate of the divergence: unbiased, never negative, of low variance.
        divergence = (ratio.detach() - 1 - log_ratio.detach()).mean()
        if self.target_kl is not None and divergence > 1.5 * self.target_kl:
            return {"kl": divergence, STOP_UPDATES: True}

        advantages = batch[ADV]
        if self.normalize_advantages and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped_ratio = ratio.clamp(1 - clip_param, 1 + clip_param)
        policy_loss = -torch.minimum(ratio * advantages, clipped_ratio * advantages).mean()
        value_loss = self._value_loss(value, batch, clip_param)
        entropy = policy.entropy().mean()
        loss = policy_loss + self.value_loss_coef * value_loss - self.entropy_coef * entropy
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        return {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "kl": divergence,
            "clip_fraction": (clipped_ratio != ratio).float().mean(),
        }

    def _value_loss(self, value: Tensor, batch: Batch, clip_param: float) -> Tensor:
        loss: Tensor = (value - batch[RET]).square()
        if self.use_clipped_value_loss:
            near = batch[VAL] + (value - batch[VAL]).clamp(-clip_param, clip_param)
            loss = torch.maximum(loss, (near - batch[RET]).square())
        return 0.5 * loss.mean()

    def _step(self) -> None:
        self._optimizer.step(self.max_grad_norm)

    def _follow_schedules(self) -> None:
        self._optimizer.learning_rates[0] = self.current(self.lr)
