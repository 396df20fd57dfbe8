"""The actor of off-policy algorithms: Q-functions, and a policy where actions are continuous."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.actors.actor import Actor, Spaces
from pytorchrl.agent.actors.bodies import MLP, Activation, Body, ExtractorKind
from pytorchrl.agent.actors.distributions import SquashedGaussian
from pytorchrl.agent.actors.heads import ActionScale, DeterministicHead, SquashedGaussianHead, ValuesHead
from pytorchrl.agent.actors.initialisation import Initialisation
from pytorchrl.agent.actors.memory import MemoryKind, RecurrentBody
from pytorchrl.agent.actors.quick_module import QuickModule
from storages.hyper_parameters import Count


class ActionValues(QuickModule):
    """Q(s, .): the value of each of ``n`` actions; of a body with a memory, the head takes what that makes."""

    def __init__(self, body: Body | RecurrentBody, n: int) -> None:
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


class RecurrentCritic(QuickModule):
    """Q(s, a) of actions in [-1, 1], s being what a memory of its own makes of the observations so far.

    Args:
        body: with the memory.
        action_size: numbers of an action.
        activation: what follows the layer in which memory and action meet.
        initialisation: of that layer.
    """

    def __init__(
        self, body: RecurrentBody, action_size: int, activation: Activation, initialisation: Initialisation
    ) -> None:
        super().__init__()
        self.body = body
        self.hidden = MLP(body.output_size + action_size, (body.output_size,), activation, initialisation)
        self.head = ValuesHead(body.output_size, 1, gain=None)

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        """(B, size), which ``body`` made, and (B, A) to (B, 1)."""
        value: Tensor = self.head(self.hidden(torch.cat([features, action], dim=1)))
        return value


class OffPolicyActor(Actor):
    """Q-functions over any Discrete or bounded Box space, and a policy over the latter.

    With a memory, what is stored with a transition (RHS) is that of the network which acts. Critics of actions have
    memories of their own, which nothing but their loss shapes (Ni et al., arXiv 2110.05038); as they do not act, they
    begin each sequence with none, so that a burn-in of some steps helps them.

    Args:
        device: where the networks live.
        envs: say what an observation and an action are.
        hidden_sizes: units of the fully connected layers behind the feature extractor.
        activation: what follows each layer.
        initialisation: of the body's weights, "orthogonal" or torch's "uniform".
        memory: what follows the body, "gru" or "lstm"; None sees one observation at a time.
        memory_size: features that the memory makes.
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
        hidden_sizes: Sequence[Count] = (256, 256),
        *,
        activation: Activation = "relu",
        initialisation: Initialisation = "uniform",
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
        self.q_values: ActionValues
        self.critics: nn.ModuleList
        self.policy_body: Body | RecurrentBody
        self.policy_head: SquashedGaussianHead | DeterministicHead
        self.scale: ActionScale

    def observe(self, obs: Any) -> None:
        """Count collected observations in, and normalise with them at once: no stored value depends on how it was."""
        super().observe(obs)
        self.after_update_phase()

    def create_q_values(self) -> None:
        """Make Q(s, .) of a Discrete space."""
        assert isinstance(self.action_space, spaces.Discrete)
        body = self._body() if self.memory is None else self._recurrent_body()
        self.q_values = ActionValues(body, int(self.action_space.n))
        self.to(self.device)

    def create_policy(self, *, deterministic: bool = False) -> None:
        """Make the policy of a bounded Box: a squashed Gaussian, or one action without chance."""
        self.scale = ActionScale(self.action_space)
        self.policy_body = self._body() if self.memory is None else self._recurrent_body()
        head = DeterministicHead if deterministic else SquashedGaussianHead
        self.policy_head = head(self.policy_body.output_size, self._action_size)
        self.to(self.device)

    def create_critics(self, number: int) -> None:
        """Make ``number`` independent Q(s, a) of a bounded Box."""
        self.critics = nn.ModuleList(self._critic() for _ in range(number))
        self.to(self.device)

    def _critic(self) -> Critic | RecurrentCritic:
        if self.memory is None:
            return Critic(self._body(beside=self._action_size))
        return RecurrentCritic(self._recurrent_body(), self._action_size, self._activation, self._initialisation)

    def initial_memory(self, num_envs: int) -> Tensor | None:
        """(E, state_size) zeros; None without a memory."""
        if self.memory is None:
            return None
        body = self.q_values.body if hasattr(self, "q_values") else self.policy_body
        assert isinstance(body, RecurrentBody)
        return body.initial_state(num_envs)

    def policy(self, obs: Any) -> SquashedGaussian | Tensor:
        """The distribution of actions in (-1, 1), or the deterministic ones (B, A), for observations (B, *obs)."""
        policy: SquashedGaussian | Tensor = self.policy_head(self.policy_body(obs))
        return policy

    @property
    def _action_size(self) -> int:
        assert isinstance(self.action_space, spaces.Box)
        return math.prod(self.action_space.shape)
