"""Transforms of batches on the device, such as data augmentation; stored data stays as it is."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from storages.component.hyper_parameters import Count, Positive
from storages.component.setting import Setting
from storages.transition import BATCH_FIELDS, BURN_IN, LEAD_OUT, MASK, OBS, OBS2, RHS, RHS2, Batch

Transform: TypeAlias = Callable[[Tensor, torch.Generator], Tensor]
"""Function of a field's rows: ``(tensor, generator) -> tensor``, both (B, ...).

A row of sequences or padded episodes is (T, ...), all of its steps; of packed episodes each step is a row, and of all
where the transform has a true attribute ``by_step``. Random numbers must come from the generator, which is on the
tensor's device.
"""
Transforms: TypeAlias = Mapping[str, Transform | Sequence[Transform] | Mapping[str, Transform | Sequence[Transform]]]
"""Transforms by field, or by key of a dict field; several are applied in their order.

Those of OBS also apply to OBS2, with other random numbers.
"""

SEEDS = 2**63
"""Seeds of the random generator of a batch's transforms are drawn from [0, SEEDS)."""
_WITHOUT = BATCH_FIELDS | {OBS2, RHS, RHS2}


@dataclass(frozen=True)
class RandomShift(Setting):
    """Shifts each image randomly along both axes, with its border replicated (DrQ).

    Kostrikov et al., "Image Augmentation Is All You Need" (arXiv 2004.13649), section 3. The frames of a stack, and the
    steps of a sequence, are shifted together; each step of a packed episode is shifted on its own.

    Args:
        pixels: largest shift in each direction.
        channels_last: whether an image is (H, W, C), rather than (C, H, W) or (H, W).
        interpolate: shift by real numbers instead of whole pixels, so that a pixel becomes a weighted mean of four
            neighbours (bilinear interpolation; Yarats et al., "DrQ-v2", arXiv 2107.09645, section 3.1). Images of
            integers are rounded.
        by_step: shift each step of a sequence on its own, too, as SPR does.
    """

    pixels: Count = 4
    channels_last: bool = False
    interpolate: bool = False
    by_step: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Shift images (B, ..., H, W), or (B, ..., H, W, C) with the channels last."""
        if self.channels_last:
            return self._shifted(images.movedim(-1, 1), generator).movedim(1, -1).contiguous()
        return self._shifted(images, generator)

    def _shifted(self, images: Tensor, generator: torch.Generator) -> Tensor:
        if images.ndim < 3:
            raise ValueError(f"RandomShift: images are (B, ..., H, W), got {tuple(images.shape)}")
        device, most = images.device, 2 * self.pixels
        if not self.interpolate:
            down, right = torch.randint(most + 1, (2, len(images)), generator=generator, device=device)
            return self._cropped(images, down, right, 0).reshape(images.shape)
        shifts = torch.rand((2, len(images)), generator=generator, device=device) * most
        down, right = shifts.long()
        below, beside = (shifts - shifts.floor()).view(2, -1, 1, 1, 1)
        # One more pixel each way, with which the last one is interpolated.
        cropped = self._cropped(images, down, right, 1)
        cropped = cropped if cropped.is_floating_point() else cropped.float()
        cropped = torch.lerp(cropped[:, :, :-1], cropped[:, :, 1:], below.to(cropped.dtype))
        shifted = torch.lerp(cropped[..., :-1], cropped[..., 1:], beside.to(cropped.dtype))
        shifted = shifted if images.is_floating_point() else shifted.round_().to(images.dtype)
        return shifted.reshape(images.shape)

    def _cropped(self, images: Tensor, down: Tensor, right: Tensor, more: int) -> Tensor:
        """Return images (B, C, H + more, W + more), from another place (B,), (B,) of each padded image on."""
        height, width = images.shape[-2:]
        device = images.device
        padded = images.reshape(len(images), -1, height, width)
        for axis, length in ((2, height), (3, width)):
            places = torch.arange(-self.pixels, length + self.pixels + more, device=device).clamp_(0, length - 1)
            padded = padded.index_select(axis, places)
        crops = padded.unfold(2, height + more, 1).unfold(3, width + more, 1)
        return crops[torch.arange(len(images), device=device), :, down, right]


@dataclass(frozen=True)
class RandomIntensity(Setting):
    """Multiplies each image by a random factor near 1: ``1 + scale * clip(x, -2, 2)`` with a standard normal x.

    Schwarzer et al., "Data-Efficient Reinforcement Learning with Self-Predictive Representations" (SPR, arXiv
    2007.05929), after DrQ. Images of whole numbers are rounded, and uint8 ones clipped to 255.

    Args:
        scale: of the deviation from 1.
        by_step: draw a factor for each step of a sequence, rather than one for all of its steps.
    """

    scale: Positive = 0.05
    by_step: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Scale images (B, ...) of any dtype."""
        drawn = torch.empty(len(images), device=images.device).normal_(generator=generator)
        factors = (1 + self.scale * drawn.clamp_(-2, 2)).view(-1, *[1] * (images.ndim - 1))
        scaled = images * factors
        if images.is_floating_point():
            return scaled.to(images.dtype)
        kept = torch.iinfo(images.dtype)
        return scaled.round_().clamp_(kept.min, kept.max).to(images.dtype)


def check_transforms(transforms: Mapping[str, Any] | None, owner: str) -> None:
    """Refuse invalid transforms.

    Raises:
        ValueError: a field cannot have a transform, or a transform is not callable.
    """
    for field, given in (transforms or {}).items():
        if not isinstance(field, str) or field in _WITHOUT:
            way_out = (
                f"that of {OBS} is applied to it too" if field == OBS2 else f"name {OBS}, or another that is stored"
            )
            raise ValueError(f"{owner}: {field!r} cannot be transformed; {way_out}")
        for name, transform in (given if isinstance(given, Mapping) else {"": given}).items():
            if not all(map(callable, _several(transform))):
                place = f"{field}[{name!r}]" if name else field
                raise ValueError(
                    f"{owner}: the transform of {place} must be a callable (tensor, generator) -> tensor, several of "
                    f"them, or of a dict a mapping of its names to such, got {transform!r}"
                )


def _several(given: Any) -> Sequence[Any]:
    """Return the transforms of a leaf, of which one is given or several."""
    return given if isinstance(given, list | tuple) else (given,)


def transformed(batch: Batch, transforms: Transforms, seed: int, owner: str) -> Batch:
    """Apply transforms to a batch on its device.

    Args:
        batch: changed in place.
        transforms: as :func:`check_transforms` accepts them.
        seed: of the random generator.
        owner: the storage's name, for errors.

    Raises:
        ValueError: the batch has no such field, or a transform changes the number of rows.
    """
    generator: torch.Generator | None = None
    for key, transform in _by_leaf(batch, transforms, owner):
        # The burn-in and lead-out steps of a sequence belong to the same row as its training steps.
        parts = [part for part in (batch.get(BURN_IN, {}), batch, batch.get(LEAD_OUT, {})) if key[0] in part]
        holders = [part if len(key) == 1 else part[key[0]] for part in parts]
        pieces = [holder[key[-1]] for holder in holders]
        if generator is None:
            generator = torch.Generator(pieces[0].device).manual_seed(seed)
        results = _applied(transform, pieces, MASK in batch, generator, owner)
        for holder, result in zip(holders, results, strict=True):
            holder[key[-1]] = result
    return batch


def _by_leaf(batch: Batch, transforms: Transforms, owner: str) -> Iterator[tuple[tuple[str, ...], Transform]]:
    """Yield the key and the transform of each leaf that has one."""
    for field, given in transforms.items():
        for key in (OBS, OBS2) if field == OBS else (field,):
            if key not in batch:
                raise ValueError(f"{owner}: transforms names {key!r}; batches have {', '.join(batch)}")
            value = batch[key]
            if not isinstance(given, Mapping) and not isinstance(value, Mapping):
                yield from (((key,), transform) for transform in _several(given))
            elif isinstance(given, Mapping) and isinstance(value, Mapping) and given.keys() <= value.keys():
                yield from (((key, name), each) for name, transform in given.items() for each in _several(transform))
            else:
                names = f"the names {', '.join(value)}" if isinstance(value, Mapping) else "no names"
                named = f"those of {', '.join(given)}" if isinstance(given, Mapping) else "one for all of it"
                raise ValueError(f"{owner}: transforms has {named} for {key}, which has {names}")


def _applied(
    transform: Transform, pieces: list[Tensor], time_first: bool, generator: torch.Generator, owner: str
) -> list[Tensor]:
    rows = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
    if time_first and getattr(transform, "by_step", False):
        (of_steps,) = _applied(transform, [rows.flatten(0, 1)], False, generator, owner)
        steps = of_steps.view(*rows.shape[:2], *of_steps.shape[1:])
        return list(torch.split(steps, [len(piece) for piece in pieces]))
    rows = rows.transpose(0, 1) if time_first else rows
    result = transform(rows, generator)
    axes = 2 if time_first else 1
    if not isinstance(result, Tensor) or result.shape[:axes] != rows.shape[:axes]:
        got = f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(
            f"{owner}: a transform must keep the leading axes {tuple(rows.shape[:axes])} of a batch, got {got} "
            f"from {tuple(rows.shape)}"
        )
    if not time_first:
        return [result]
    lengths = [len(piece) for piece in pieces]
    return [piece.contiguous() for piece in torch.split(result.transpose(0, 1), lengths)]
