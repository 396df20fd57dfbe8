"""Matrix products by oneDNN, on CPUs for which those of torch's own library are slow.

torch multiplies float32 matrices by MKL, whose kernels for AVX-512 run on Intel's CPUs alone. oneDNN, which is a part
of torch too, has kernels for every CPU with AVX-512. torch has no public function that multiplies dense float32
matrices by it; the operator used here is that of `torch.compile` for linear layers.
"""

from pathlib import Path
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.ops.dispatch import is_recorded, plain_address

_LEAST_PRODUCTS, _LEAST_PRODUCTS_WITH_GRADIENT = 2**21, 2**22
"""Numbers of multiplications below which MKL is faster, whose calls have less overhead."""
_USUAL_ROWS = 32, 100
"""Numbers of rows that batches are usually multiples of.

oneDNN compiles and keeps a kernel for every shape. Batches of varying numbers of rows, such as those of whole episodes,
are therefore left to MKL.
"""


def matmul(left: Tensor, right: Tensor, *, rows: int, out: Tensor) -> Tensor:
    """Return ``left @ right``, in ``out`` or, computed by oneDNN, in new memory; without gradients.

    Args:
        left: (M, K), in CPU memory, as the others.
        right: (K, N).
        rows: which of M, K and N is the number of rows of a batch.
        out: (M, N).
    """
    return _product(left, right) if _is_faster(left, right, rows) else torch.mm(left, right, out=out)


def matmul_into_(total: Tensor, left: Tensor, right: Tensor, *, rows: int, adds: bool) -> None:
    """Write ``left @ right`` into ``total``, or add it; arguments as of :func:`matmul`."""
    if _is_faster(left, right, rows):
        product = _product(left, right)
        total.add_(product) if adds else total.copy_(product)
    elif adds:
        total.addmm_(left, right)
    else:
        torch.mm(left, right, out=total)


def linear(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor | None:
    """Compute ``F.linear``, (B, inputs) to (B, outputs), by oneDNN; return None where torch has to compute it."""
    # In tracing, even the number of products may be symbolic.
    if not _HAS_ONEDNN or is_recorded() or (products := features.numel() * weight.size(0)) < _LEAST_PRODUCTS:
        return None
    tensors = (features, weight) if bias is None else (features, weight, bias)
    are_plain = features.dim() == 2 and all(plain_address(each) is not None for each in tensors)
    if not are_plain or not _is_usual(len(features)) or torch.is_autocast_enabled("cpu"):
        return None
    if not (torch.is_grad_enabled() and any(each.requires_grad for each in tensors)):
        return _product(features, weight.t(), bias)
    if products < _LEAST_PRODUCTS_WITH_GRADIENT:
        return None
    computed: Tensor = _Linear.apply(features, weight, bias)  # type: ignore[no-untyped-call]
    return computed


def stacked_linear(features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply M layers, each to its own features.

    Args:
        features: (M, N, inputs).
        weight: (M, inputs, outputs).
        bias: (M, 1, outputs).

    Returns:
        (M, N, outputs).
    """
    tensors, rows = (features, weight, bias), features.shape[1]
    needs_gradient = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    are_plain = not is_recorded() and all(plain_address(each) is not None for each in tensors)
    if needs_gradient or not (are_plain and _is_faster(features[0], weight[0], rows)):
        return torch.baddbmm(bias, features, weight)
    outputs = features.new_empty(*features.shape[:2], weight.shape[2])
    for of_layer, each, its_weight, its_bias in zip(outputs, features, weight, bias, strict=True):
        torch.add(_product(each, its_weight), its_bias, out=of_layer)
    return outputs


class Linear(nn.Linear):
    """torch's layer, whose product is by oneDNN where that is faster."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """(B, inputs) to (B, outputs)."""
        weight, bias = self.weight, self.bias
        computed = linear(input, weight, bias)
        return F.linear(input, weight, bias) if computed is None else computed


def is_linear(layer: object) -> TypeGuard[nn.Linear]:
    """Whether a layer is a linear one, of the class of this machine or another, and none of a user's class."""
    return type(layer) in LINEAR_TYPES


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(features, weight)
        return _product(features, weight.t(), bias)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (slope,), (features, weight) = slopes, ctx.saved_tensors
        # Of torch's own products there are gradients too, and batches of them.
        is_plain = not torch.is_grad_enabled() and plain_address(slope) is not None
        multiply = _product if is_plain else torch.mm
        needs_features, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            multiply(slope, weight) if needs_features else None,
            multiply(slope.t(), features) if needs_weight else None,
            slope.sum(0) if needs_bias else None,
        )


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``left @ right + bias`` by oneDNN."""
    computed: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")
    return computed


def _is_faster(left: Tensor, right: Tensor, rows: int) -> bool:
    if not _HAS_ONEDNN or left.dtype is not torch.float32:
        return False
    return left.numel() * right.shape[1] >= _LEAST_PRODUCTS and _is_usual(rows)


def _is_usual(rows: int) -> bool:
    """Whether batches often have that number of rows, and oneDNN was not disabled in torch."""
    return any(rows % each == 0 for each in _USUAL_ROWS) and bool(torch.backends.mkldnn.enabled)


def _has_faster_onednn() -> bool:
    """Whether oneDNN is faster on this CPU, with AVX-512 and not Intel's, and computes the same."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or "GenuineIntel" in _processor():
        return False
    left, right, bias = torch.arange(6.0).view(2, 3), torch.arange(12.0).view(3, 4), torch.arange(4.0)
    try:
        return torch.equal(_product(left, right, bias), left @ right + bias)
    except (AttributeError, RuntimeError):
        return False


def _processor() -> str:
    """Return Linux's description of the CPU; without one, the name of Intel, for which MKL is left in use."""
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "GenuineIntel"


_HAS_ONEDNN = _has_faster_onednn()
LINEAR: type[nn.Linear] = Linear if _HAS_ONEDNN else nn.Linear
"""The class of fully connected layers on this machine: torch's own, where its products are as fast as any."""
LINEAR_TYPES: tuple[type[nn.Linear], ...] = (nn.Linear, Linear)
"""The classes of fully connected layers on all machines."""
