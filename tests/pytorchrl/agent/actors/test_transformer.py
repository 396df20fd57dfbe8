"""A causal transformer matches numpy loops and does not attend to later tokens."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from pytorchrl.agent.actors.layers.mlp import Dropout
from pytorchrl.agent.actors.layers.trajectory_network import CausalTransformer
from tests.support.by_hand import numpy, perturb
from tests.support.transforming import transformed


def make_transformer(num_heads: int = 2, dropout: float = 0.0, seed: int = 0) -> CausalTransformer:
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(0)
    transformer = CausalTransformer(6, 2, num_heads, Dropout(dropout, generator))
    perturb(transformer, 1, 0.3)
    return transformer


def tokens() -> Any:
    return torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_the_transformer_matches_numpy_loops(num_heads: int) -> None:
    transformer = make_transformer(num_heads)
    expected = np.stack([transformed(transformer, row, num_heads) for row in numpy(tokens())])
    np.testing.assert_allclose(numpy(transformer(tokens())), expected, rtol=1e-4, atol=1e-5)


def test_later_tokens_do_not_change_earlier_outputs() -> None:
    transformer, moved = make_transformer(), tokens()
    moved[:, 3:, 0] += 2
    before, after = transformer(tokens()), transformer(moved)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.isclose(before[:, 3:], after[:, 3:]).all(dim=2).any()


def test_dropout_uses_the_given_generator_and_is_off_in_inference_mode() -> None:
    one, other = (make_transformer(dropout=0.5, seed=seed) for seed in (0, 0))
    assert torch.equal(one(tokens()), other(tokens()))
    assert not torch.equal(one(tokens()), make_transformer(dropout=0.5, seed=1)(tokens()))
    with torch.inference_mode():
        acting = one(tokens())
    torch.testing.assert_close(acting, make_transformer()(tokens()))


def test_weights_are_initialised_as_in_gpt_2() -> None:
    torch.manual_seed(0)
    transformer = CausalTransformer(64, 2, 4, Dropout(0.0))
    for block in transformer.blocks:
        weight: Any = block.wide.weight
        assert math.isclose(weight.std().item(), 0.02, rel_tol=0.05)
        assert not block.wide.bias.any()  # type: ignore[operator, union-attr]


def test_an_embedding_size_not_divisible_by_num_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="the embedding size must be divisible by num_heads=4, got 6"):
        CausalTransformer(6, 1, 4, Dropout(0.0))
