"""What steps of an episode, told as returns, states and actions, say of the actions to take."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.mlp import Dropout
from pytorchrl.agent.actors.layers.transformer import CausalTransformer


class Steps(NamedTuple):
    """K consecutive steps of each of N episodes; what fills a row up comes last, where no step sees it."""

    returns: Tensor
    """(N, K, 1): returns-to-go, scaled."""
    states: Tensor
    """(N, K, size): what a network makes of observations."""
    actions: Tensor
    """(N, K, A): as inputs of networks."""
    first: Tensor
    """(N, 1) int64: how many steps of the episode lie before the first."""


class TrajectoryNetwork(nn.Module):
    """A causal transformer over returns, states and actions in turn, and a distribution of each state's action.

    Chen et al., "Decision Transformer" (arXiv 2106.01345), algorithm 1.

    Args:
        head: from features (N, size) to a distribution.
        action_size: A.
        size: numbers of a token.
        num_layers: of the transformer.
        num_heads: of its attention.
        max_timestep: steps of an episode that are told apart; later ones count as the last of them.
        dropout: of the tokens and in the transformer.
    """

    largest_return: Tensor
    """(1,): the largest return of an episode that was learnt from; 0 at first."""
    has_learnt: Tensor
    """(1,): whether there was one."""

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

    def forward(self, steps: Steps) -> Tensor:
        """(N, K, size): features of each state, of which the head makes its action's distribution."""
        rows, length, size = steps.states.shape
        timesteps = steps.first + torch.arange(length, device=steps.first.device)
        time = self.embed_timestep(timesteps.clamp(max=self.embed_timestep.num_embeddings - 1))
        parts = (self.embed_return(steps.returns), steps.states, self.embed_action(steps.actions))
        tokens = (torch.stack(parts, dim=2) + time.unsqueeze(2)).flatten(1, 2)
        features: Tensor = self.transformer(self.dropout(self.norm(tokens)))
        return features.view(rows, length, 3, size)[:, :, 1]

    def policy(self, features: Tensor) -> Any:
        """The distribution of actions of features (M, size)."""
        return self.head(features)

    @torch.no_grad()
    def learn_return(self, returns: Tensor) -> None:
        """Take the returns of whole episodes into account, of any shape."""
        largest = returns.max()
        self.largest_return.copy_(torch.where(self.has_learnt > 0, self.largest_return.maximum(largest), largest))
        self.has_learnt.fill_(1.0)
