"""Images are shrunk to the mean over each pixel's area."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorchrl.agent.envs.shrinking import Shrinking
from tests.support.profiles import examples

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_a_pixel_is_the_mean_over_its_area(data: st.DataObject) -> None:
    shape = data.draw(SIZES)
    smaller = data.draw(st.integers(1, shape[0])), data.draw(st.integers(1, shape[1]))
    image = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 256, shape).astype(np.uint8)
    # Pixels are repeated so that each area holds a whole number of them.
    fine = np.repeat(np.repeat(image.astype(np.float64), smaller[0], axis=0), smaller[1], axis=1)
    expected = fine.reshape(smaller[0], shape[0], smaller[1], shape[1]).mean(axis=(1, 3))
    shrunk = Shrinking(shape, smaller)(image)
    assert shrunk.dtype == np.uint8
    assert np.abs(shrunk - expected).max() <= 0.5 + 1e-3


@pytest.mark.parametrize("value", [0, 87, 255])
def test_a_uniform_image_keeps_its_value(value: int) -> None:
    image = np.full((210, 160), value, np.uint8)
    np.testing.assert_array_equal(Shrinking((210, 160), (84, 84))(image), np.full((84, 84), value))


def test_an_image_of_the_target_size_is_not_changed() -> None:
    image = np.random.default_rng(0).integers(0, 256, (7, 9)).astype(np.uint8)
    np.testing.assert_array_equal(Shrinking((7, 9), (7, 9))(image), image)
