"""A causal transformer: features of each token and of those before it."""

import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.mlp import Dropout

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
