"""Large image batches reuse memory, but never that of a batch which is still referenced."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pytorchrl.agent.ops.scaling import ImageMemory, scaled

LARGE = torch.Size((64, 4, 84, 84))


@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("shape", [LARGE, torch.Size((64, 1, 160, 160)), torch.Size((2, 3, 8, 8))])
def test_a_tensor_has_the_layout_of_torch_empty(shape: torch.Size, *, channels_last: bool) -> None:
    order = torch.channels_last if channels_last else torch.contiguous_format
    numbers = ImageMemory().empty(shape, channels_last=channels_last)
    expected = torch.empty(shape, memory_format=order)
    assert (numbers.shape, numbers.dtype, numbers.stride()) == (expected.shape, expected.dtype, expected.stride())


def test_memory_of_a_released_batch_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ImageMemory()
    first = memory.empty(LARGE, channels_last=True)
    place = first.data_ptr()
    del first
    monkeypatch.setattr(torch, "empty", None)
    assert memory.empty(torch.Size((60, 4, 84, 84)), channels_last=False).data_ptr() == place


@pytest.mark.parametrize("kept", [lambda batch: batch, lambda batch: batch[:1], lambda batch: batch.numpy()])
def test_memory_that_is_still_referenced_is_not_reused(kept: Callable[[Tensor], Any]) -> None:
    memory = ImageMemory()
    part = kept(memory.empty(LARGE, channels_last=True).fill_(1))
    memory.empty(LARGE, channels_last=True).fill_(2)
    assert (torch.as_tensor(part) == 1).all()


def test_each_thread_has_memory_of_its_own() -> None:
    memory = ImageMemory()
    ours = memory.empty(LARGE, channels_last=True).data_ptr()
    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(lambda: memory.empty(LARGE, channels_last=True).data_ptr()).result()
    assert theirs != ours


def test_two_forward_passes_before_backward_give_the_gradients_of_each_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randint(0, 256, LARGE, dtype=torch.uint8, generator=generator) for _ in range(2)]
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 2, 8, 8)

    def gradient(outputs: Tensor) -> Tensor:
        (result,) = torch.autograd.grad(outputs.square().mean(), layer.weight)
        return result

    alone = [gradient(layer(scaled(batch, 255, channels_last=True))) for batch in batches]
    together = [layer(scaled(batch, 255, channels_last=True)) for batch in batches]
    for outputs, expected in zip(together, alone, strict=True):
        torch.testing.assert_close(gradient(outputs), expected)
