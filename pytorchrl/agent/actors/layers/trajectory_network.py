"""The decision transformer's network: from returns-to-go, states and actions to action distributions."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.mlp import Dropout
from pytorchrl.agent.actors.layers.transformer import CausalTransformer


class Trajectories(NamedTuple):
    """K consecutive steps of each of N episodes; padding comes last, where causal attention ignores it."""

    returns: Tensor
    """(N, K, 1): returns-to-go, scaled."""
    states: Tensor
    """(N, K, size): features of observations."""
    actions: Tensor
    """(N, K, A): in the representation for network inputs."""
    first: Tensor
    """(N, 1) int64: timestep of the first step in its episode, from 0."""


class TrajectoryNetwork(nn.Module):
    """Causal transformer over alternating returns-to-go, states and actions, with a distribution of each action.

    Chen et al., "Decision Transformer" (arXiv 2106.01345), algorithm 1.

    Args:
        head: from features (N, size) to a distribution.
        action_size: A.
        size: of a token.
        num_layers: layers of the transformer.
        num_heads: attention heads.
        max_timestep: number of timestep embeddings; later steps share the last one.
        dropout: of the tokens and in the transformer.
    """

    statistics = frozenset({"largest_return", "has_learnt"})

    largest_return: Tensor
    """(1,): largest return of a training episode; 0 initially."""
    has_learnt: Tensor
    """(1,): 1 once there was a training episode."""

    def __init__(
        self,
        head: nn.Module,
        action_size: int,
        size: int,
        num_layers: int,
        num_heads: int,
        max_timestep: int,
        dropout: Dropout,
    ) -> None:
        super().__init__()
        self.embed_return, self.embed_action = nn.Linear(1, size), nn.Linear(action_size, size)
        self.embed_timestep = nn.Embedding(max_timestep, size)
        self.norm, self.dropout = nn.LayerNorm(size), dropout
        self.transformer = CausalTransformer(size, num_layers, num_heads, dropout)
        self.head = head
        self.register_buffer("largest_return", torch.zeros(1))
        self.register_buffer("has_learnt", torch.zeros(1))

    def forward(self, steps: Trajectories) -> Tensor:
        """Return features (N, K, size) of each state, the input of the head."""
        rows, length, size = steps.states.shape
        timesteps = steps.first + torch.arange(length, device=steps.first.device)
        time = self.embed_timestep(timesteps.clamp(max=self.embed_timestep.num_embeddings - 1))
        parts = (self.embed_return(steps.returns), steps.states, self.embed_action(steps.actions))
        tokens = (torch.stack(parts, dim=2) + time.unsqueeze(2)).flatten(1, 2)
        features: Tensor = self.transformer(self.dropout(self.norm(tokens)))
        return features.view(rows, length, 3, size)[:, :, 1]

    def policy(self, features: Tensor) -> Any:
        """Return the distribution of actions for features (M, size)."""
        return self.head(features)

    @torch.no_grad()
    def learn_return(self, returns: Tensor) -> None:
        """Update the largest return with returns of whole episodes, of any shape."""
        largest = returns.max()
        self.largest_return.copy_(torch.where(self.has_learnt > 0, self.largest_return.maximum(largest), largest))
        self.has_learnt.fill_(1.0)
