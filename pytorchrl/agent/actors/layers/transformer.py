"""A causal transformer: from tokens to features of each and of those before it."""

import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.mlp import Dropout

_INITIAL_STD = 0.02


class CausalTransformer(nn.Module):
    """Blocks of self-attention in which a token sees itself and those before it, alone.

    Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2, 2019): normalised before each part of
    a block and after the last, weights are drawn as there.

    Args:
        size: numbers of a token.
        num_layers: blocks.
        num_heads: of the attention, which share the numbers of a token.
        dropout: of what each part of a block adds; its generator is given to it by whoever makes it.

    Raises:
        ValueError: the heads cannot share the numbers evenly.
    """

    def __init__(self, size: int, num_layers: int, num_heads: int, dropout: Dropout) -> None:
        super().__init__()
        if size % num_heads:
            raise ValueError(f"a token of {size} numbers cannot be shared evenly by num_heads={num_heads}")
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
