"""The decision transformer's network: from returns-to-go, states and actions to action distributions."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.mlp import Dropout


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


_INITIAL_STD = 0.02


class CausalTransformer(nn.Module):
    """Blocks of causal self-attention: a token attends only to itself and to those before it.

    Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2, 2019): layer normalisation before each
    part of a block and after the last block, and the same initialisation of weights.

    Args:
        size: embedding size of a token.
        num_layers: number of blocks.
        num_heads: number of attention heads, among which the embedding is divided.
        dropout: of the output of each part of a block; the caller makes it, with its generator.

    Raises:
        ValueError: ``size`` is not divisible by ``num_heads``.
    """

    def __init__(self, size: int, num_layers: int, num_heads: int, dropout: Dropout) -> None:
        super().__init__()
        if size % num_heads:
            raise ValueError(f"the embedding size must be divisible by num_heads={num_heads}, got {size}")
        self.blocks = nn.ModuleList(_Block(size, num_heads, dropout) for _ in range(num_layers))
        self.norm = nn.LayerNorm(size)

    def forward(self, tokens: Tensor) -> Tensor:
        """(N, L, size) to (N, L, size)."""
        for block in self.blocks:
            tokens = block(tokens)
        normalised: Tensor = self.norm(tokens)
        return normalised


class _Block(nn.Module):
    def __init__(self, size: int, num_heads: int, dropout: Dropout) -> None:
        super().__init__()
        self._num_heads = num_heads
        self.before_attention, self.before_layers = nn.LayerNorm(size), nn.LayerNorm(size)
        self.queries_keys_values, self.attended = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.wide, self.narrow = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.dropout = dropout
        for layer in (self.queries_keys_values, self.attended, self.wide, self.narrow):
            nn.init.normal_(layer.weight, std=_INITIAL_STD)
            nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.dropout(self._attend(self.before_attention(tokens)))
        widened = F.gelu(self.wide(self.before_layers(tokens)))
        added: Tensor = self.dropout(self.narrow(widened))
        return tokens + added

    def _attend(self, tokens: Tensor) -> Tensor:
        rows, length, size = tokens.shape
        parts = self.queries_keys_values(tokens).chunk(3, dim=2)
        query, key, value = (part.view(rows, length, self._num_heads, -1).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended: Tensor = self.attended(seen.transpose(1, 2).reshape(rows, length, size))
        return attended
