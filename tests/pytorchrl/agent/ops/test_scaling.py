"""Byte images are divided bit for bit as by torch, in the requested memory layout."""

from typing import Any

import pytest
import torch
from torch import Tensor

from pytorchrl.agent.ops import scaling
from pytorchrl.agent.ops.scaling import scaled


def images(*shape: int, largest: int = 255) -> Tensor:
    return torch.randint(0, largest + 1, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def in_torch(image: Tensor, largest: int, *, channels_last: bool) -> Tensor:
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
    return image.float() / largest


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("input_is_channels_last", [False, True], ids=["from channels first", "from channels last"])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 12])
@pytest.mark.parametrize(("count", "largest"), [(0, 255), (1, 255), (5, 255), (5, 1), (5, 7)])
def test_byte_images_are_scaled_as_by_torch(
    count: int, largest: int, channels: int, input_is_channels_last: bool, channels_last: bool
) -> None:
    image = images(count, channels, 9, 11, largest=largest)
    if input_is_channels_last:
        image = image.contiguous(memory_format=torch.channels_last)
    before = image.clone()
    result = scaled(image, largest, channels_last=channels_last)
    expected = in_torch(image, largest, channels_last=channels_last)
    assert result.dtype == torch.float32
    assert torch.equal(result, expected)
    assert count == 0 or result.stride() == expected.stride()
    assert torch.equal(image, before)


@pytest.mark.parametrize(
    "image",
    [images(3, 4, 9, 22)[..., ::2], images(9, 11, 3, 4).permute(2, 3, 0, 1), images(3, 4, 9, 11).float()],
    ids=["strided", "permuted", "floats"],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_other_layouts_and_dtypes_are_scaled_by_torch(
    monkeypatch: pytest.MonkeyPatch, image: Tensor, channels_last: bool
) -> None:
    monkeypatch.setattr(scaling, "_scale", None)
    result = scaled(image, 255, channels_last=channels_last)
    assert torch.equal(result, in_torch(image, 255, channels_last=channels_last))


def test_vmap_matches_torch() -> None:
    image = images(3, 2, 4, 9, 11)
    mapped = torch.func.vmap(lambda part: scaled(part, 255, channels_last=False))(image)
    assert torch.equal(mapped, image.float() / 255)


def test_byte_images_are_scaled_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(scaling, "_scale", lambda *arguments: calls.append(arguments))
    scaled(images(2, 4, 8, 8), 255, channels_last=True)
    assert len(calls) == 1
