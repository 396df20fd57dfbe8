"""A reference causal transformer over returns, states and actions, in plain loops."""

from math import erf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.by_hand import numpy

Array = NDArray[np.float64]


class Layers(dict[str, Array]):
    """The parameters of a module by name, as numpy arrays that may be changed."""

    def __init__(self, module: Any) -> None:
        super().__init__({name: numpy(parameter).copy() for name, parameter in module.named_parameters()})

    def within(self, prefix: str) -> dict[str, Array]:
        """The parameters of a submodule, as the same arrays."""
        return {name[len(prefix) :]: array for name, array in self.items() if name.startswith(prefix)}


def affine(layers: dict[str, Array], name: str, row: Any) -> Any:
    return layers[f"{name}.weight"] @ row + layers[f"{name}.bias"]


def normalised(layers: dict[str, Array], name: str, row: Any) -> Any:
    centred = row - row.mean()
    return centred / np.sqrt((centred**2).mean() + 1e-5) * layers[f"{name}.weight"] + layers[f"{name}.bias"]


def transformed(module: Any, tokens: Array, num_heads: int) -> Array:
    """The output (L, size) for tokens (L, size), by a module or its :class:`Layers`."""
    layers = module if isinstance(module, dict) else Layers(module)
    blocks = 1 + max(int(name.split(".")[1]) for name in layers if name.startswith("blocks."))
    for number in range(blocks):
        prefix = f"blocks.{number}."
        block = {name[len(prefix) :]: array for name, array in layers.items() if name.startswith(prefix)}
        tokens = tokens + np.stack(_attended(block, tokens, num_heads))
        tokens = tokens + np.stack([_widened(block, token) for token in tokens])
    return np.stack([normalised(layers, "norm", token) for token in tokens])


def _attended(block: dict[str, Array], tokens: Array, num_heads: int) -> list[Array]:
    size = tokens.shape[1]
    width = size // num_heads
    three = [affine(block, "queries_keys_values", normalised(block, "before_attention", token)) for token in tokens]
    rows = []
    for here in range(len(tokens)):
        seen = np.zeros(size)
        for head in range(num_heads):
            part = slice(head * width, (head + 1) * width)
            query = three[here][:size][part]
            scores = np.array([query @ three[j][size : 2 * size][part] / sqrt(width) for j in range(here + 1)])
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            seen[part] = sum(share * three[j][2 * size :][part] for j, share in enumerate(shares))
        rows.append(affine(block, "attended", seen))
    return rows


def _widened(block: dict[str, Array], token: Array) -> Any:
    wide = affine(block, "wide", normalised(block, "before_layers", token))
    return affine(block, "narrow", np.array([x * (1 + erf(x / sqrt(2))) / 2 for x in wide]))


def features_of_states(
    layers: Layers, returns: Array, states: Array, actions: Array, first: int, num_heads: int
) -> list[Array]:
    """The features of a trajectory network for each state of K steps, from their returns, states and actions."""
    tokens = []
    for step in range(len(returns)):
        time = layers["embed_timestep.weight"][min(first + step, len(layers["embed_timestep.weight"]) - 1)]
        parts = (
            affine(layers, "embed_return", returns[step]),
            states[step],
            affine(layers, "embed_action", actions[step]),
        )
        tokens += [normalised(layers, "norm", part + time) for part in parts]
    out = transformed(layers.within("transformer."), np.stack(tokens), num_heads)
    return [out[3 * step + 1] for step in range(len(returns))]
