"""The actor of on-policy algorithms: a policy and a value function."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor, Spaces
from pytorchrl.agent.actors.bodies import Activation, Body, ExtractorKind
from pytorchrl.agent.actors.distributions import Distribution
from pytorchrl.agent.actors.heads import (
    BernoulliHead,
    CategoricalHead,
    GaussianHead,
    MultiCategoricalHead,
    ValuesHead,
)
from pytorchrl.agent.actors.initialisation import Initialisation
from pytorchrl.agent.actors.memory import MemoryKind, RecurrentBody, flat
from storages.hyper_parameters import Count


class OnPolicyActor(Actor):
    """A stochastic policy over any Discrete, MultiDiscrete, MultiBinary or Box space and a state value function.

    Args:
        device: where the networks live.
        envs: say what an observation and an action are.
        hidden_sizes: units of the fully connected layers behind the feature extractor.
        activation: what follows each layer.
        initialisation: of the body's weights, "orthogonal" or torch's "uniform".
        shared_body: let policy and value function share all but their last layer.
        initial_log_std: of a Gaussian policy, the logarithm of its standard deviation at first.
        memory: what follows the body, "gru" or "lstm"; None sees one observation at a time. Policy and value function
            have one each unless they share their body.
        memory_size: features that a memory makes.
        feature_extractor: "mlp", "nature_cnn" or "small_cnn"; "auto" takes a CNN for images, the small one where they
            are too small for Nature's, and flattens all else.
        normalize_observations: subtract the running mean of the observations collected so far, and divide by their
            standard deviation, within [-10, 10]. All copies of the environment, evaluation and target networks share
            these statistics, which are saved with the weights.
    """

    def __init__(
        self,
        device: torch.device | str,
        envs: Spaces,
        hidden_sizes: Sequence[Count] = (64, 64),
        *,
        activation: Activation = "tanh",
        initialisation: Initialisation = "orthogonal",
        shared_body: bool = False,
        initial_log_std: float = 0.0,
        memory: MemoryKind | None = None,
        memory_size: Count = 128,
        feature_extractor: ExtractorKind = "auto",
        normalize_observations: bool = False,
    ) -> None:
        super().__init__(
            device,
            envs,
            hidden_sizes,
            activation,
            initialisation,
            memory,
            memory_size,
            feature_extractor,
            normalize_observations,
        )
        self._shared_body = shared_body
        self._initial_log_std = initial_log_std
        self.policy_body: Body | RecurrentBody
        self.policy_head: CategoricalHead | MultiCategoricalHead | BernoulliHead | GaussianHead
        self.value_body: Body | RecurrentBody
        self.value_head: ValuesHead

    def create_policy(self) -> None:
        """Make the policy that suits the action space."""
        self.policy_body = self._body() if self.memory is None else self._recurrent_body()
        size = self.policy_body.output_size
        match self.action_space:
            case spaces.Discrete(n=n):
                self.policy_head = CategoricalHead(size, int(n))
            case spaces.MultiDiscrete(nvec=nvec, shape=shape):
                self.policy_head = MultiCategoricalHead(size, nvec.ravel().tolist(), shape)
            case spaces.MultiBinary(shape=shape):
                self.policy_head = BernoulliHead(size, shape)
            case space:
                assert isinstance(space, spaces.Box)
                self.policy_head = GaussianHead(size, space.shape or (1,), self._initial_log_std)
        self.to(self.device)

    def create_value_function(self) -> None:
        """Make the value function, on the policy's body where they share it."""
        if self._shared_body:
            self.value_body = self.policy_body
        else:
            self.value_body = self._body() if self.memory is None else self._recurrent_body()
        self.value_head = ValuesHead(self.value_body.output_size, 1, gain=1.0)
        self.to(self.device)

    def policy(self, obs: Any) -> Distribution:
        """The distribution of actions for observations (B, *obs)."""
        distribution: Distribution = self.policy_head(self.policy_body(obs))
        return distribution

    def policy_and_value(self, obs: Any) -> tuple[Distribution, Tensor]:
        """Both, in one pass through a shared body: a distribution and (B, 1)."""
        features = self.policy_body(obs)
        value_features = features if self._shared_body else self.value_body(obs)
        return self.policy_head(features), self.value_head(value_features)

    def value(self, obs: Any, rhs: Any, done: Tensor) -> Tensor:
        """(B, 1): the value of observations (B, *obs); without a memory, ``rhs`` and ``done`` say nothing."""
        if self.memory is None:
            features = self.value_body(obs)
        else:
            features, _ = self.value_body(obs, self._value_state(rhs), done)
        value: Tensor = self.value_head(features)
        return value

    def evaluate_actions(self, obs: Any, rhs: Any, done: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Log probabilities of actions (T, B, *action) and values of observations (T, B, *obs), both (T, B, 1).

        ``rhs`` (B, hidden) is the memory before the first of them, None without a memory; ``done`` is (T, B, 1).
        """
        if self.memory is None:
            policy, value = self.policy_and_value(flat(obs))
        else:
            policy, value = self.policy_and_value_of_sequences(obs, rhs, done)
        return policy.log_prob(flat(action)).view(done.shape), value.view(done.shape)

    # With a memory

    def initial_memory(self, num_envs: int) -> Tensor | None:
        """(E, hidden) zeros, of the policy's memory and then of the value function's own; None without a memory."""
        if self.memory is None:
            return None
        assert isinstance(self.policy_body, RecurrentBody)
        state = self.policy_body.initial_state(num_envs)
        return state if self._shared_body else torch.cat([state, state], dim=1)

    def remembering_policy(self, obs: Any, rhs: Tensor, done: Tensor) -> tuple[Distribution, Tensor]:
        """The distribution of actions for observations (B, *obs), and the memory after them; only the policy's."""
        features, state = self.policy_body(obs, self._policy_state(rhs), done)
        after = state if self._shared_body else torch.cat([state, self._value_state(rhs)], dim=1)
        return self.policy_head(features), after

    def remembering_policy_and_value(self, obs: Any, rhs: Tensor, done: Tensor) -> tuple[Distribution, Tensor, Tensor]:
        """The distribution of actions, values (B, 1), and the memory after the observations (B, *obs)."""
        features, state = self.policy_body(obs, self._policy_state(rhs), done)
        if self._shared_body:
            return self.policy_head(features), self.value_head(features), state
        value_features, value_state = self.value_body(obs, self._value_state(rhs), done)
        after = torch.cat([state, value_state], dim=1)
        return self.policy_head(features), self.value_head(value_features), after

    def policy_and_value_of_sequences(self, obs: Any, rhs: Tensor, done: Tensor) -> tuple[Distribution, Tensor]:
        """As :meth:`policy_and_value` of all steps of sequences, one after the other.

        Args:
            obs: (T, B, *obs).
            rhs: (B, hidden), the memory before the first.
            done: (T, B, 1), 1 where memory starts anew.

        Returns:
            A distribution over (T * B) actions, and (T * B, 1).
        """
        assert isinstance(self.policy_body, RecurrentBody)
        assert isinstance(self.value_body, RecurrentBody)
        features, _ = self.policy_body.unroll(obs, self._policy_state(rhs), done, states=False)
        value_features = features
        if not self._shared_body:
            value_features, _ = self.value_body.unroll(obs, self._value_state(rhs), done, states=False)
        return self.policy_head(features.flatten(0, 1)), self.value_head(value_features.flatten(0, 1))

    def _policy_state(self, rhs: Tensor) -> Tensor:
        return rhs if self._shared_body else rhs.chunk(2, dim=1)[0]

    def _value_state(self, rhs: Tensor) -> Tensor:
        return rhs if self._shared_body else rhs.chunk(2, dim=1)[1]


def action_bounds(space: spaces.Box, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Lowest and highest actions as tensors of the space's dtype, None where nothing bounds them."""
    if math.isinf(space.high.min()) and math.isinf(space.low.max()):
        return None
    return torch.as_tensor(space.low, device=device), torch.as_tensor(space.high, device=device)
