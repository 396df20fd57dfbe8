"""The actor of on-policy algorithms: a policy and a value function."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor, Spaces
from pytorchrl.agent.actors.bodies import Activation, Body, Initialisation
from pytorchrl.agent.actors.distributions import Categorical, DiagonalGaussian
from pytorchrl.agent.actors.heads import CategoricalHead, GaussianHead, ValuesHead
from storages.hyper_parameters import Count


class OnPolicyActor(Actor):
    """A stochastic policy over any Discrete or Box space and a state value function.

    Args:
        device: where the networks live.
        envs: say what an observation and an action are.
        hidden_sizes: units of the fully connected layers behind the feature extractor.
        activation: what follows each layer.
        initialisation: of the body's weights, "orthogonal" or torch's "uniform".
        shared_body: let policy and value function share all but their last layer.
        initial_log_std: of a Gaussian policy, the logarithm of its standard deviation at first.
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
    ) -> None:
        super().__init__(device, envs, hidden_sizes, activation, initialisation)
        self._shared_body = shared_body
        self._initial_log_std = initial_log_std
        self.policy_body: Body
        self.policy_head: CategoricalHead | GaussianHead
        self.value_body: Body
        self.value_head: ValuesHead

    def create_policy(self) -> None:
        """Make the policy that suits the action space."""
        self.policy_body = self._body()
        size = self.policy_body.output_size
        if isinstance(self.action_space, spaces.Discrete):
            self.policy_head = CategoricalHead(size, int(self.action_space.n))
        else:
            assert self.action_space.shape is not None
            self.policy_head = GaussianHead(size, self.action_space.shape, self._initial_log_std)
        self.to(self.device)

    def create_value_function(self) -> None:
        """Make the value function, on the policy's body where they share it."""
        self.value_body = self.policy_body if self._shared_body else self._body()
        self.value_head = ValuesHead(self.value_body.output_size, 1, gain=1.0)
        self.to(self.device)

    def policy(self, obs: Any) -> Categorical | DiagonalGaussian:
        """The distribution of actions for observations (B, *obs)."""
        distribution: Categorical | DiagonalGaussian = self.policy_head(self.policy_body(obs))
        return distribution

    def policy_and_value(self, obs: Any) -> tuple[Categorical | DiagonalGaussian, Tensor]:
        """Both, in one pass through a shared body: a distribution and (B, 1)."""
        features = self.policy_body(obs)
        value_features = features if self._shared_body else self.value_body(obs)
        return self.policy_head(features), self.value_head(value_features)

    def value(self, obs: Any, rhs: Any, done: Tensor) -> Tensor:
        """(B, 1): the value of observations (B, *obs); without a memory, ``rhs`` and ``done`` say nothing."""
        value: Tensor = self.value_head(self.value_body(obs))
        return value


def action_bounds(space: spaces.Box, device: torch.device) -> tuple[Tensor, Tensor] | None:
    """Lowest and highest actions as tensors of the space's dtype, None where nothing bounds them."""
    if math.isinf(space.high.min()) and math.isinf(space.low.max()):
        return None
    return torch.as_tensor(space.low, device=device), torch.as_tensor(space.high, device=device)
