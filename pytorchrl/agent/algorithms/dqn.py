"""DQN: one Q-function over discrete actions, learnt from replayed transitions."""

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.memory import RecurrentBody
from pytorchrl.agent.actors.off_policy_actor import OffPolicyActor
from pytorchrl.agent.algorithms.algorithm import ActingStep, Algorithm, Info
from pytorchrl.agent.algorithms.flat_adam import FlatAdam, FlatParameters
from pytorchrl.agent.algorithms.sequences import features_of_next, unrolled, weights_of_steps
from pytorchrl.agent.algorithms.targets import follow, make_target
from pytorchrl.agent.envs.spaces import UnsupportedSpaceError
from pytorchrl.agent.envs.vec_env import VecEnv
from storages.hyper_parameters import (
    Count,
    CountOrZero,
    NonNegativeOrSchedule,
    Positive,
    UnitInterval,
    UnitIntervalOrSchedule,
)
from storages.schedule import LinearSchedule
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, OBS, OBS2, REW, WEIGHTS, Batch


class DQN(Algorithm):
    """Mnih et al., "Human-level control through deep reinforcement learning" (Nature 518, 2015).

    Args:
        lr: Adam's learning rate.
        gamma: discount factor of one step.
        epsilon: probability of a random action.
        start_steps: environment transitions before the first update; actions are random until then.
        update_every: environment transitions between update phases.
        num_mini_batch: batches of an update phase.
        mini_batch_size: transitions in a batch.
        double: choose the next action by the online network and value it by the target network (van Hasselt et al.,
            arXiv 1509.06461).
        polyak: how much of the target network stays at each of its updates; 0 copies the online network.
        target_update_interval: batches between updates of the target network.
        max_grad_norm: gradients are scaled down to this norm; None leaves them.
        test_every: environment transitions between evaluations; 0 for none.
        num_test_episodes: episodes of an evaluation.
    """

    on_policy = False
    actor_class = OffPolicyActor
    actor: OffPolicyActor

    def __init__(
        self,
        device: torch.device | str,
        actor: OffPolicyActor,
        envs: VecEnv,
        lr: NonNegativeOrSchedule = 1e-3,
        gamma: UnitInterval = 0.99,
        *,
        epsilon: UnitIntervalOrSchedule = LinearSchedule(1.0, 0.05, fraction=0.2),  # noqa: B008 - frozen
        start_steps: CountOrZero = 1_000,
        update_every: Count = 4,
        num_mini_batch: Count = 1,
        mini_batch_size: Count = 128,
        double: bool = True,
        polyak: UnitInterval = 0.99,
        target_update_interval: Count = 1,
        max_grad_norm: Positive | None = 10.0,
        test_every: CountOrZero = 10_000,
        num_test_episodes: Count = 10,
    ) -> None:
        super().__init__(device, actor, envs, gamma, test_every, num_test_episodes)
        self.lr = lr
        self.epsilon = epsilon
        self.start_steps = start_steps
        self.update_every = update_every
        self.num_mini_batch = num_mini_batch
        self.mini_batch_size = mini_batch_size
        self.double = double
        self.polyak = polyak
        self.target_update_interval = target_update_interval
        self.max_grad_norm = max_grad_norm
        assert isinstance(self.action_space, spaces.Discrete)
        self._num_actions = int(self.action_space.n)
        self._updates = 0
        actor.create_q_values()
        self._target = make_target(actor.q_values)
        self._trained_vector = FlatParameters(actor.q_values.parameters())
        self._target_vector = FlatParameters(self._target.parameters())
        self._optimizer = FlatAdam([self._trained_vector])
        self._follow_schedules()

    @classmethod
    def check_spaces(cls, envs: VecEnv) -> None:
        """DQN chooses among actions that can be counted."""
        if not isinstance(envs.action_space, spaces.Discrete):
            several = isinstance(envs.action_space, spaces.MultiDiscrete | spaces.MultiBinary)
            way_out = "PPO learns several at once, wrappers=['FlattenAction'] numbers their combinations"
            raise UnsupportedSpaceError(
                f"{cls.__name__} needs a Discrete action space, the environments have {envs.action_space}; "
                f"{way_out if several else 'SAC and PPO act in a Box'}"
            )

    def acting_step(self, obs: Any, rhs: Any, done: Tensor, deterministic: bool = False) -> ActingStep:
        """Act greedily, and at random with probability epsilon."""
        explore, values = None, None
        if self.actor.memory is not None:
            # It remembers what was seen, whatever is done.
            with torch.inference_mode():
                features, rhs = self.actor.q_values.body(obs, rhs, done)
                values = self.actor.q_values.head(features)
        if not deterministic:
            explore = self._exploration.random((len(done), 1)) < self.current(self.epsilon)
        if explore is not None and explore.all():
            action = self._random_actions(len(done))
        else:
            with torch.inference_mode():
                values = self.actor.q_values(obs) if values is None else values
                action = values.argmax(1, keepdim=True)
            if explore is not None and explore.any():
                drawn = self._random_actions(len(done))
                action = torch.where(torch.from_numpy(explore).to(self.device), drawn, action)
        return ActingStep(action, action, rhs, {})

    def _random_actions(self, num_envs: int) -> Tensor:
        return torch.from_numpy(self._exploration.integers(0, self._num_actions, (num_envs, 1))).to(self.device)

    def _backward(self, batch: Batch) -> Info:
        if self.actor.memory is not None:
            return self._backward_through_time(batch)
        with torch.no_grad():
            target = batch[REW] + batch[DISCOUNT] * self._next_values(batch[OBS2])
        q_values = self.actor.q_values(batch[OBS])
        loss, q, error = self._descend(q_values, batch[ACT], target, batch[WEIGHTS] / len(target))
        return {"loss": loss, "q_value": q.mean(), ERRORS: error}

    def _backward_through_time(self, batch: Batch) -> Info:
        online, shape = self.actor.q_values, batch[REW].shape
        assert isinstance(online.body, RecurrentBody)
        assert isinstance(self._target.body, RecurrentBody)
        features, states = unrolled(online.body, batch, stored=True)
        with torch.no_grad():
            _, target_states = unrolled(self._target.body, batch, stored=True)
            values = self._target.head(features_of_next(self._target.body, batch, target_states))
            by = online.head(features_of_next(online.body, batch, states)) if self.double else values
            next_values = values.gather(1, by.argmax(1, keepdim=True))
            target = batch[REW].flatten(0, 1) + batch[DISCOUNT].flatten(0, 1) * next_values
        weights = weights_of_steps(batch)
        loss, q, error = self._descend(online.head(features.flatten(0, 1)), batch[ACT].flatten(0, 1), target, weights)
        real = batch[MASK].flatten(0, 1)
        return {"loss": loss, "q_value": (q * real).sum() / real.sum(), ERRORS: error.view(shape)}

    def _descend(self, q_values: Tensor, actions: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        """Leave the gradients of the weighted sum of Huber's losses; returns that, Q(s, a) and magnitudes of errors."""
        with torch.no_grad():
            q = q_values.gather(1, actions)
            error = q - target
            # Huber's loss, which grows like the error beyond 1: its gradient is the error, clipped. Handing that to
            # backward() spares the loss's own graph, a tenth of an update of a small network.
            clipped = error.clamp(-1, 1)
            loss = (weights * clipped * (error - 0.5 * clipped)).sum()
            gradient = torch.zeros_like(q_values).scatter_(1, actions, weights * clipped)
        self._optimizer.zero_grad()
        q_values.backward(gradient)  # type: ignore[no-untyped-call]
        return loss, q, error.abs_()

    def _next_values(self, next_obs: Any) -> Tensor:
        """(B, 1): the value of what followed, before discounting."""
        values: Tensor = self._target(next_obs)
        if self.double:
            return values.gather(1, self.actor.q_values(next_obs).argmax(1, keepdim=True))
        return values.max(1, keepdim=True).values

    def _step(self) -> None:
        self._optimizer.step(self.max_grad_norm)
        self._updates += 1
        if self._updates % self.target_update_interval == 0:
            follow(self._target_vector, self._trained_vector, self.polyak)

    def _follow_schedules(self) -> None:
        self._optimizer.learning_rates[0] = self.current(self.lr)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next action and the next update depend on."""
        return super().state_dict() | {"target": self._target.state_dict(), "updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what was saved."""
        super().load_state_dict(state)
        self._target.load_state_dict(state["target"])
        self._updates = state["updates"]
