"""Fully connected layers with optional noise, dropout and normalisation."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytorchrl.agent.actors.layers.linear_layers import Initialisation, UsesGenerator, linear_layer, orthogonal
from pytorchrl.agent.ops.dispatch import is_acting
from pytorchrl.agent.ops.layers import are_plain, hidden_layers, tanh_
from pytorchrl.agent.ops.products import is_linear

Activation: TypeAlias = Literal["relu", "tanh", "elu", "silu", "gelu", "mish"]
PlainActivation: TypeAlias = Literal["relu", "tanh"]
"""Activations whose derivative is a function of their output."""

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "silu": F.silu,
    "gelu": F.gelu,
    "mish": F.mish,
}

_IN_PLACE: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": torch.relu_, "tanh": tanh_}
"""The same in place, while a layer's output is in the processor's cache."""

_RENORM_MOMENTUM = 0.01
_LARGEST_SCALE, _LARGEST_SHIFT = 3.0, 5.0
"""Limits of the correction to the running statistics: r_max and d_max of the paper."""


class Dropout(UsesGenerator):
    """Dropout that draws from a given generator; inactive in evaluation and in acting.

    Args:
        probability: of a zero.
        generator: random generator on the device of the features; None for torch's default one.

    Raises:
        ValueError: the probability does not lie in [0, 1).
    """

    def __init__(self, probability: float, generator: torch.Generator | None = None) -> None:
        super().__init__(generator)
        if not 0 <= probability < 1:
            raise ValueError(f"Dropout: the probability must lie in [0, 1), got {probability}")
        self.probability = probability

    def forward(self, features: Tensor) -> Tensor:
        """(B, n) to (B, n)."""
        # Networks act in inference mode, in which there are no updates.
        if not self.training or not self.probability or torch.is_inference_mode_enabled():
            return features
        kept = 1 - self.probability
        return features * torch.empty_like(features).bernoulli_(kept, generator=self.generator).div_(kept)

    def extra_repr(self) -> str:
        """Return what torch shows of the layer."""
        return f"probability={self.probability}"


class BatchNorm(nn.BatchNorm1d):
    """torch's batch normalisation, by batch statistics only where gradients are computed.

    Without gradients (in acting, perhaps on one row, and in target networks), it uses the running statistics, as in
    evaluation, and does not update them.
    """

    def forward(self, features: Tensor) -> Tensor:
        """(B, n) to (B, n)."""
        if self.training and torch.is_grad_enabled():
            return super().forward(features)
        return F.batch_norm(features, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class BatchRenorm(BatchNorm):
    """Batch renormalisation: batch normalisation corrected towards the running statistics, in training too.

    Ioffe, "Batch Renormalization" (arXiv 1702.03275), algorithm 1. After a warm-up, the statistics of a batch are
    corrected to the running ones within the limits r_max and d_max; gradients flow through the batch statistics only.
    As in :class:`BatchNorm`, the running statistics are used where no gradients are computed.

    Args:
        size: number of features.
        warmup: number of first training batches that are normalised without the correction.
    """

    def __init__(self, size: int, warmup: int) -> None:
        super().__init__(size, eps=1e-3, momentum=_RENORM_MOMENTUM)
        self._warmup = warmup

    def forward(self, features: Tensor) -> Tensor:
        """(B, n) to (B, n)."""
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(features)
        mean, variance, batches = self.running_mean, self.running_var, self.num_batches_tracked
        assert mean is not None
        assert variance is not None
        assert batches is not None
        with torch.no_grad():
            # Tensors, not floats, to avoid a device synchronisation; limits of 1 and 0 disable the correction.
            is_warm = batches >= self._warmup
            largest_scale = is_warm * (_LARGEST_SCALE - 1) + 1
            largest_shift = is_warm * _LARGEST_SHIFT
            # Faster than torch.var_mean.
            mean_of_batch = features.mean(0)
            variance_of_batch = (features - mean_of_batch).square_().mean(0)
            divisor = (variance + self.eps).rsqrt_()
            scale = (variance_of_batch + self.eps).sqrt_().mul_(divisor)
            scale = scale.clamp(1 / largest_scale, largest_scale)
            shift = mean_of_batch.sub_(mean).mul_(divisor).clamp(-largest_shift, largest_shift)
            batches += 1
        weight, bias = self.weight * scale, torch.addcmul(self.bias, self.weight, shift)
        return F.batch_norm(features, mean, variance, weight, bias, True, _RENORM_MOMENTUM, self.eps)


class Layers(TypedDict, total=False):
    """Settings of fully connected layers, as for :class:`MLP`."""

    layer_norm: bool
    batch_norm: bool
    batch_renorm_warmup: int | None
    dropout: float
    noisy: bool
    noisy_sigma: float
    generator: torch.Generator | None


class MLP(nn.Module):
    """Fully connected layers, each followed by dropout, normalisation and the activation.

    That order is the one of Hiraoka et al., "Dropout Q-Functions" (arXiv 2110.02034). Batch
    renormalisation, if any, is applied to the input and after each activation (Bhatt et al., "CrossQ", arXiv
    1902.05605).

    Args:
        input_size: features in.
        hidden_sizes: units of each layer; none makes the identity.
        activation: of each layer.
        initialisation: "orthogonal" with the activation's gain and no bias, or torch's "uniform" within 1/sqrt(inputs).
        layer_norm: layer normalisation.
        batch_norm: batch normalisation; see :class:`BatchNorm`.
        batch_renorm_warmup: warm-up of batch renormalisation; see :class:`BatchRenorm`. None for no renormalisation.
        dropout: probability with which a feature is dropped in training.
        noisy: noisy weights; see :class:`~pytorchrl.agent.actors.layers.linear_layers.NoisyLinear`.
        noisy_sigma: initial scale of their noise.
        generator: of dropout and noise, on the device of the network; None for torch's default one.

    Raises:
        ValueError: two normalisations exclude each other, or the probability does not lie in [0, 1).
    """

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        activation: Activation = "relu",
        initialisation: Initialisation = "orthogonal",
        *,
        layer_norm: bool = False,
        batch_norm: bool = False,
        batch_renorm_warmup: int | None = None,
        dropout: float = 0.0,
        noisy: bool = False,
        noisy_sigma: float = 0.5,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if layer_norm and batch_norm:
            raise ValueError("MLP: layer_norm and batch_norm exclude each other; choose one")
        if batch_norm and batch_renorm_warmup is not None:
            raise ValueError("MLP: batch_renorm_warmup already normalises batches; leave out batch_norm")
        sizes = [input_size, *hidden_sizes]
        self.layers = nn.ModuleList(
            linear_layer(size, following, noisy=noisy, generator=generator, sigma=noisy_sigma)
            for size, following in itertools.pairwise(sizes)
        )
        norm = nn.LayerNorm if layer_norm else BatchNorm if batch_norm else None
        self.norms = nn.ModuleList([] if norm is None else [norm(size) for size in hidden_sizes])
        renorms = [] if batch_renorm_warmup is None else [BatchRenorm(size, batch_renorm_warmup) for size in sizes]
        self.renorms = nn.ModuleList(renorms)
        self.dropout = Dropout(dropout, generator) if dropout else None
        self.output_size = sizes[-1]
        self.activation = activation
        if initialisation == "orthogonal":
            for layer in self.layers:
                orthogonal(layer, 5 / 3 if activation == "tanh" else math.sqrt(2))

    @property
    def modules_of_layers(self) -> list[list[nn.Module]]:
        """The modules with parameters of each layer; a normalisation of the input is part of the first one."""
        layers: list[list[nn.Module]] = [[layer] for layer in self.layers]
        for layer, norm in zip(layers, self.norms, strict=False):
            layer.append(norm)
        if self.renorms and layers:
            layers[0].append(self.renorms[0])
            for layer, norm in zip(layers, self.renorms[1:], strict=True):
                layer.append(norm)
        return layers

    @property
    def plain_layers(self) -> list[nn.Linear] | None:
        """The layers, if each is linear and followed only by a :data:`PlainActivation`; None otherwise."""
        is_plain = not (self.norms or self.renorms or self.dropout) and self.activation in get_args(PlainActivation)
        layers = [layer for layer in self.layers if is_linear(layer)]
        return layers if is_plain and len(layers) == len(self.layers) else None

    def forward(self, features: Tensor) -> Tensor:
        """(B, input_size) to (B, output_size)."""
        # From the dicts of the module lists as they are now: attributes and lengths of modules take several calls each.
        lists: Any = self._modules
        layers, norms = [*lists["layers"]._modules.values()], [*lists["norms"]._modules.values()]
        renorms, dropout = [*lists["renorms"]._modules.values()], self.dropout
        if not (norms or renorms or dropout) and is_acting():
            outputs = hidden_layers(features, layers, self.activation)
            if outputs is not None:
                return outputs
        activate = _ACTIVATIONS[self.activation]
        # Hooks may keep a layer's output, and a layer of another kind may return its input.
        in_place = _IN_PLACE.get(self.activation) if not (norms or dropout) and are_plain(layers) else None
        if renorms:
            features = renorms[0](features)
        for position, layer in enumerate(layers):
            features = layer(features)
            if dropout:
                features = dropout(features)
            if norms:
                features = norms[position](features)
            features = activate(features) if in_place is None else in_place(features)
            if renorms:
                features = renorms[position + 1](features)
        return features
