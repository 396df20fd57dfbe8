"""For its transfer to a device, a batch is packed into one block of memory, and unpacked unchanged."""

from typing import Any

import numpy as np
import torch

from storages.core.device.transfer import pack, to_batch, unpack
from tests.support.model import all_leaves

RANDOM = np.random.default_rng(0)
WHOLE = {
    "float": RANDOM.normal(size=(5, 3)).astype(np.float32),
    "double": RANDOM.normal(size=(5, 2, 2)),
    "byte": RANDOM.integers(0, 255, (5, 7), np.uint8),
    "flag": RANDOM.random((5, 1)) < 0.5,
    "long": RANDOM.integers(0, 9, (5,)),
    "complex": RANDOM.normal(size=(5, 1)) + 1j,
    "short": RANDOM.integers(0, 9, (5, 1), np.int16),
    "dict": {"a": np.arange(3, dtype=np.int8), "b": {"c": np.zeros((2, 0), np.float64), "d": np.ones((1, 1))}},
    "not contiguous": RANDOM.normal(size=(6, 4))[::2, 1:3],
    "empty": np.empty((0, 3), np.float32),
}


def same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    return one.dtype == two.dtype and one.shape == two.shape and torch.equal(one, two)


def test_packing_and_unpacking_gives_an_equal_batch() -> None:
    assert same(unpack(pack(WHOLE, pin_memory=False)), to_batch(WHOLE, torch.device("cpu")))


def test_a_packed_batch_is_one_block_of_memory_that_no_other_array_shares() -> None:
    one = pack(WHOLE, pin_memory=False)
    batch = unpack(one)
    assert {leaf.untyped_storage().data_ptr() for leaf in all_leaves(batch)} == {one.memory.data_ptr()}
    assert all(leaf.data_ptr() % 64 == 0 for leaf in all_leaves(batch) if leaf.numel())
    before = batch["float"].clone()
    batch["double"].zero_()
    batch["byte"].fill_(1)
    assert torch.equal(batch["float"], before)
    assert WHOLE["double"].any()
