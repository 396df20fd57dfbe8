"""Time of an update of SAC relative to its matrix products alone, which are a lower bound."""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from benchmarks.throughput.pairs import PAIRS, SAC_BATCH, SAC_CRITICS, SAC_HIDDEN_SIZES
from benchmarks.throughput.stopwatch import warm_learner

Product: TypeAlias = tuple[Tensor, Tensor, Tensor]
"""Two factors, and where their product goes."""

_OBSERVATION, _ACTION = 3, 1  # Pendulum-v1


@dataclass(frozen=True)
class Floor:
    """An update of SAC beside its matrix products, in microseconds on one thread."""

    update_us: float
    """``SAC.update(batch)``: gradients, the optimisers' steps, the targets' update."""
    products_us: float
    """The matrix products that it needs, into preallocated memory."""
    products: int
    """Number of matrix products."""
    gflop: float
    """Their multiplications and additions, in billions."""

    @property
    def ratio(self) -> float:
        """The time of the update over that of its products, of which 1 is the minimum."""
        return self.update_us / self.products_us


def measure_floor(blocks: int, calls: int) -> Floor:
    """Time both in turn, ``blocks`` blocks of ``calls`` calls each, and take the medians of the blocks."""
    pair = PAIRS["sac"]
    with tempfile.TemporaryDirectory() as folder:
        learner = warm_learner(pair, seed=1, steps=1, folder=Path(folder))
        algorithm, storage = learner.scheme.algorithm, learner.scheme.storage
        batch = next(iter(storage.generate_batches(1, SAC_BATCH)))
        products = update_products()
        updates_us, products_us = [], []
        for _ in range(blocks):
            updates_us.append(_microseconds(lambda: algorithm.update(batch), calls))
            with torch.inference_mode():
                products_us.append(_microseconds(lambda: _multiply(products), calls))
        learner.close()
    flop = sum(2 * left.shape[0] * left.shape[1] * right.shape[1] for left, right, _ in products)
    return Floor(statistics.median(updates_us), statistics.median(products_us), len(products), flop / 1e9)


def update_products() -> list[Product]:
    """Return the matrix products of one update, in their order."""
    policy = _Network((_OBSERVATION, *SAC_HIDDEN_SIZES, 2 * _ACTION))
    critic_sizes = (_OBSERVATION + _ACTION, *SAC_HIDDEN_SIZES, 1)
    critics = [_Network(critic_sizes) for _ in range(SAC_CRITICS)]
    target_critics = [_Network(critic_sizes) for _ in range(SAC_CRITICS)]
    products = policy.forward()  # the next actions
    for target in target_critics:
        products += target.forward()  # their values
    for critic in critics:
        products += critic.forward() + critic.backward(to_weights=True, to_inputs=False)
    products += policy.forward()
    for critic in critics:
        # The actor's step goes through the critics to the action, but not to their weights.
        products += critic.forward() + critic.backward(to_weights=False, to_inputs=True)
    return products + policy.backward(to_weights=True, to_inputs=False)


class _Network:
    """The products of a fully connected network, laid out in memory as torch's linear layers have them.

    Args:
        sizes: inputs, units of each hidden layer, outputs.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self._layers = range(len(sizes) - 1)
        # Gains of about 1, so that no number vanishes or explodes: products of denormal numbers are slow.
        self._weights = [torch.randn(after, before) / before**0.5 for before, after in itertools.pairwise(sizes)]
        self._weight_gradients = [torch.empty_like(weight) for weight in self._weights]
        self._values = [torch.randn(SAC_BATCH, size) for size in sizes]
        self._gradients = [torch.randn(SAC_BATCH, size) for size in sizes]

    def forward(self) -> list[Product]:
        return [(self._values[layer], self._weights[layer].t(), self._values[layer + 1]) for layer in self._layers]

    def backward(self, *, to_weights: bool, to_inputs: bool) -> list[Product]:
        products: list[Product] = []
        for layer in reversed(self._layers):
            gradient = self._gradients[layer + 1]
            if to_weights:
                products.append((gradient.t(), self._values[layer], self._weight_gradients[layer]))
            if layer > 0 or to_inputs:
                products.append((gradient, self._weights[layer], self._gradients[layer]))
        return products


def _multiply(products: Sequence[Product]) -> None:
    for left, right, out in products:
        torch.mm(left, right, out=out)


def _microseconds(call: Callable[[], object], calls: int) -> float:
    call()
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls * 1e6
