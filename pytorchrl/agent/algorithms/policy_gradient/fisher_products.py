"""Products with the Fisher information matrix, and the conjugate gradient method, which needs no more."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.on_policy import PolicyGradient
from pytorchrl.agent.optimizers import FlatParameters
from storages.transition import REW, RHS, Batch


def fisher_product(divergence: Tensor, weights: FlatParameters, damping: float) -> Callable[[Tensor], Tensor]:
    """Return the product of the damped Fisher information matrix with vectors (P,): appendix C.1.

    Args:
        divergence: (), the KL divergence from the current policy, at the current policy; the matrix is its Hessian.
        weights: of the policy.
        damping: added to the diagonal.
    """
    kl_gradients = _gradients(divergence, weights, create_graph=True)

    def fisher_times(vector: Tensor) -> Tensor:
        views = weights.views_of(vector)
        slopes = [(gradient * view).sum() for gradient, view in zip(kl_gradients, views, strict=True)]
        return gradient_of(torch.stack(slopes).sum(), weights) + damping * vector

    return fisher_times


def fisher_product_in_pieces(
    batch: Batch, most_rows: int, algorithm: PolicyGradient, weights: FlatParameters, damping: float
) -> Callable[[Tensor], Tensor]:
    """Return the product as `fisher_product`, computed piece by piece to need less memory.

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


_TINY = 1e-30


def conjugate_gradient(matrix_times: Callable[[Tensor], Tensor], target: Tensor, iterations: int) -> Tensor:
    """Return an approximate solution (P,) of ``matrix @ solution = target``.

    Hestenes and Stiefel, "Methods of Conjugate Gradients for Solving Linear Systems" (1952).

    Args:
        matrix_times: multiplies a symmetric positive definite matrix (P, P) with a vector (P,).
        target: (P,).
        iterations: at most P are needed, up to rounding errors; further ones change nothing.
    """
    solution = torch.zeros_like(target)
    residual, direction = target.clone(), target.clone()
    square = residual @ residual
    for _ in range(iterations):
        product = matrix_times(direction)
        step = square / (direction @ product).clamp(min=_TINY)
        solution = solution + step * direction
        residual = residual - step * product
        following = residual @ residual
        direction = residual + following / square.clamp(min=_TINY) * direction
        square = following
    return solution


def gradient_of(value: Tensor, weights: FlatParameters) -> Tensor:
    """Return the gradient (P,) of a scalar by the flat vector of weights."""
    vector, views = weights.empty_vector()
    torch._foreach_copy_(views, _gradients(value, weights))
    return vector


def _gradients(value: Tensor, weights: FlatParameters, *, create_graph: bool = False) -> tuple[Tensor, ...]:
    learnt = [parameter for parameter in weights.parameters if parameter.requires_grad]
    found = torch.autograd.grad(value, learnt, create_graph=create_graph, retain_graph=True, materialize_grads=True)
    gradients = dict(zip(learnt, found, strict=True))
    # Those of frozen parameters are zero, so that a step does not change them.
    return tuple(gradients.get(parameter, torch.zeros_like(parameter)) for parameter in weights.parameters)
