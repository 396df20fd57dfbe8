"""The actor of off-policy algorithms: Q-functions, and a policy where actions are continuous."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor, Spaces
from pytorchrl.agent.actors.bodies import Activation, Body, Initialisation
from pytorchrl.agent.actors.distributions import SquashedGaussian
from pytorchrl.agent.actors.heads import ActionScale, DeterministicHead, SquashedGaussianHead, ValuesHead
from pytorchrl.agent.actors.quick_module import QuickModule
from storages.hyper_parameters import Count


class ActionValues(QuickModule):
    """Q(s, .): the value of each of ``n`` actions."""

    def __init__(self, body: Body, n: int) -> None:
        super().__init__()
        self.body = body
        self.head = ValuesHead(body.output_size, n, gain=None)

    def forward(self, obs: Any) -> Tensor:
        """(B, *obs) to (B, n)."""
        values: Tensor = self.head(self.body(obs))
        return values


class Critic(QuickModule):
    """Q(s, a) of actions in [-1, 1].

    Args:
        body: takes an action beside the observation.
    """

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = body
        self.head = ValuesHead(body.output_size, 1, gain=None)

    def forward(self, obs: Any, action: Tensor) -> Tensor:
        """(B, *obs) and (B, A) to (B, 1)."""
        value: Tensor = self.head(self.body(obs, action))
        return value


class OffPolicyActor(Actor):
    """Q-functions over any Discrete or bounded Box space, and a policy over the latter.

    Args:
        device: where the networks live.
        envs: say what an observation and an action are.
        hidden_sizes: units of the fully connected layers behind the feature extractor.
        activation: what follows each layer.
        initialisation: of the body's weights, "orthogonal" or torch's "uniform".
    """

    def __init__(
        self,
        device: torch.device | str,
        envs: Spaces,
        hidden_sizes: Sequence[Count] = (256, 256),
        *,
        activation: Activation = "relu",
        initialisation: Initialisation = "uniform",
    ) -> None:
        super().__init__(device, envs, hidden_sizes, activation, initialisation)
        self.q_values: ActionValues
        self.critics: nn.ModuleList
        self.policy_body: Body
        self.policy_head: SquashedGaussianHead | DeterministicHead
        self.scale: ActionScale

    def create_q_values(self) -> None:
        """Make Q(s, .) of a Discrete space."""
        assert isinstance(self.action_space, spaces.Discrete)
        self.q_values = ActionValues(self._body(), int(self.action_space.n))
        self.to(self.device)

    def create_policy(self, *, deterministic: bool = False) -> None:
        """Make the policy of a bounded Box: a squashed Gaussian, or one action without chance."""
        self.scale = ActionScale(self.action_space)
        self.policy_body = self._body()
        head = DeterministicHead if deterministic else SquashedGaussianHead
        self.policy_head = head(self.policy_body.output_size, self._action_size)
        self.to(self.device)

    def create_critics(self, number: int) -> None:
        """Make ``number`` independent Q(s, a) of a bounded Box."""
        self.critics = nn.ModuleList(Critic(self._body(beside=self._action_size)) for _ in range(number))
        self.to(self.device)

    def policy(self, obs: Any) -> SquashedGaussian | Tensor:
        """The distribution of actions in (-1, 1), or the deterministic ones (B, A), for observations (B, *obs)."""
        policy: SquashedGaussian | Tensor = self.policy_head(self.policy_body(obs))
        return policy

    @property
    def _action_size(self) -> int:
        assert isinstance(self.action_space, spaces.Box)
        return math.prod(self.action_space.shape)
