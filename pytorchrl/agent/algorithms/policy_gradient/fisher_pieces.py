"""Products with the Fisher information matrix in pieces of a batch, which take the memory of one piece."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.algorithms.policy_gradient.natural_gradient import fisher_product
from pytorchrl.agent.optimizers import FlatParameters
from storages.transition import REW, RHS, Batch


def fisher_product_in_pieces(
    batch: Batch, most_rows: int, algorithm: PolicyGradient, weights: FlatParameters, damping: float
) -> Callable[[Tensor], Tensor]:
    """As `fisher_product`, of the policy's divergence over a batch, with the graph of one piece at a time in memory.

    Args:
        batch: of transitions, or of whole sequences (T, B, ...).
        most_rows: in a piece, but for a sequence that is longer.
        algorithm: reads batches, and has the policy.
        weights: of the policy.
        damping: added to the diagonal.
    """
    pieces = pieces_of(batch, most_rows)
    counts = [float(algorithm.read(piece).count) for piece in pieces]

    def fisher_times(vector: Tensor) -> Tensor:
        product = damping * vector
        for piece, count in zip(pieces, counts, strict=True):
            # Of padding alone, the mean is not defined.
            if count:
                rows = algorithm.read(piece)
                policy = algorithm.policy(rows.now, None)
                divergence = rows.mean(policy.detach().kl(policy))
                product += count / sum(counts) * fisher_product(divergence, weights, damping=0.0)(vector)
        return product

    return fisher_times


def pieces_of(batch: Batch, most_rows: int) -> list[Batch]:
    """Divide a batch of transitions, or of whole sequences (T, B, ...), into pieces of at most so many rows."""
    is_sequential = batch[REW].ndim == 3
    length, number = (len(batch[REW]), batch[REW].shape[1]) if is_sequential else (1, len(batch[REW]))
    step = max(1, most_rows // length)

    def part(value: Any, begin: int, across: bool) -> Any:
        if isinstance(value, Mapping):
            return {key: part(one, begin, across) for key, one in value.items()}
        if isinstance(value, tuple):
            return tuple(part(one, begin, across) for one in value)
        return value[:, begin : begin + step] if across else value[begin : begin + step]

    return [
        {key: part(value, begin, is_sequential and key != RHS) for key, value in batch.items()}
        for begin in range(0, number, step)
    ]
