"""Transforms change batches on the device, reproducibly for a seed, and leave the stored data unchanged."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import storages
from storages import Episodes, RandomIntensity, RandomShift, Sequences, Storage
from storages.transition import ACT, BURN_IN, INDICES, LEAD_OUT, MASK, OBS, OBS2, REW, WEIGHTS
from tests.support.model import ALGORITHM, Stream, all_leaves, contents, environments, equal, through_a_file
from tests.support.profiles import examples

WINDOWS = {
    "transitions": None,
    "sequences": Sequences(4, burn_in=2),
    "episodes": Episodes(longest=4),
    "packed episodes": Episodes(packed=True),
}
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01}


def unchanged(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return tensor


def noisy(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A user-defined transform: adds one random number to all steps and frames of a row."""
    noise = torch.randint(1, 100, (len(tensor),), generator=generator)
    return tensor + noise.view(-1, *[1] * (tensor.ndim - 1)).to(tensor.dtype)


def filled(transform: Any, kind: str = "vector", num_envs: int = 2, seed: int = 0, **given: Any) -> Storage:
    factory = storages.PERBuffer.create_factory(size=30, transforms={OBS: transform}, **PRIORITIES, **given)
    storage = factory("cpu", None, ALGORITHM, environments(kind, num_envs))
    storage.seed(seed)
    stream = Stream(num_envs, kind, True, np.random.default_rng(0))
    for _ in range(40):
        storage.insert_transition(stream.step())
    return storage


def named(transform: Any, kind: str) -> Any:
    """The transform, or a dict with it for each leaf if there are several leaves."""
    return {"pixels": transform, "speed": transform} if kind == "dict of frames" else transform


def drawn(storage: Storage, count: int = 4) -> dict[int, Any]:
    return dict(enumerate(storage.generate_batches(count, 6)))


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    ("window", "kind", "keep_on_device"),
    [
        (window, kind, (row + column) % 2 == 0)
        for row, window in enumerate(WINDOWS)
        for column, kind in enumerate(("vector", "frames", "dict of frames"))
    ],
)
def test_a_transform_changes_each_row_as_a_whole_and_no_other_field(
    window: str, kind: str, keep_on_device: bool
) -> None:
    given = {"sequences": WINDOWS[window], "keep_on_device": keep_on_device}
    given |= {} if window == "packed episodes" else {"n_step": 2}
    one, other = (filled(named(transform, kind), kind, **given) for transform in (unchanged, noisy))
    before = contents(other)
    for plain, changed in zip(drawn(one).values(), drawn(other).values(), strict=True):
        for key in plain.keys() - {OBS, OBS2, BURN_IN, LEAD_OUT}:
            assert torch.equal(plain[key], changed[key]), key
        added = {key: differences(plain, changed, key, MASK in plain) for key in (OBS, OBS2)}
        for differences_of_rows in added.values():
            for row in differences_of_rows:
                assert len(set(row)) == 1
        if "packed" not in window:
            # 99 possible numbers for 6 rows: observations and next observations get different ones.
            assert added[OBS] != added[OBS2]
    assert contents(other) == before


class NoisyByStep:
    """As `noisy`, with a number for each step of a row."""

    by_step = True

    def __call__(self, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return noisy(tensor, generator)


@pytest.mark.parametrize("kind", ["vector", "frames", "dict of frames"])
@pytest.mark.parametrize("window", ["sequences", "episodes"])
def test_a_transform_by_step_changes_each_step_of_a_row_on_its_own(window: str, kind: str) -> None:
    given = {"sequences": WINDOWS[window], "n_step": 2}
    one, other = (filled(named(transform, kind), kind, **given) for transform in (unchanged, NoisyByStep()))
    numbers = 0
    for plain, changed in zip(drawn(one).values(), drawn(other).values(), strict=True):
        for part, place in [
            (plain, changed),
            *((plain[key], changed[key]) for key in (BURN_IN, LEAD_OUT) if key in plain),
        ]:
            for before, after in zip(leaves_of(part[OBS]), leaves_of(place[OBS]), strict=True):
                added = ((after.double() - before.double()) % 256).round(decimals=3).flatten(2)
                assert torch.equal(added.amin(2), added.amax(2))
                numbers += len(added[..., 0].unique())
    assert numbers > 40


@pytest.mark.parametrize("shift", [RandomShift(2, by_step=True), RandomShift(2, channels_last=True, by_step=True)])
def test_images_of_a_sequence_are_shifted_apart_by_step(shift: RandomShift) -> None:
    axis = -2 if shift.channels_last else -1
    images = torch.arange(20.0).view([-1 if each == 4 + axis else 1 for each in range(4)]).expand(60, 20, 20, 20)
    middle = shift(images, torch.Generator().manual_seed(0))[:, 10, 10, 10]
    assert sorted(set(middle.tolist())) == [8, 9, 10, 11, 12]


def test_several_transforms_are_applied_in_their_order() -> None:
    def doubled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return 2 * tensor

    def increased(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return tensor + 1

    plain, changed = drawn(filled(unchanged)), drawn(filled([doubled, increased]))
    for number, batch in plain.items():
        torch.testing.assert_close(changed[number][OBS], 2 * batch[OBS] + 1)
    plain, changed = (drawn(filled({"pixels": one}, "dict of frames")) for one in (unchanged, (doubled, increased)))
    for number, batch in plain.items():
        assert torch.equal(changed[number][OBS]["pixels"], 2 * batch[OBS]["pixels"] + 1)


def test_intensity_multiplies_each_image_by_a_factor_of_its_own() -> None:
    images = torch.full((2_000, 3, 4, 4), 100.0)
    factors = RandomIntensity(0.05)(images, torch.Generator().manual_seed(0)) / 100
    of_images = factors[:, 0, 0, 0]
    assert torch.equal(factors, of_images[:, None, None, None].expand_as(factors))
    assert of_images.min() == pytest.approx(0.9)
    assert of_images.max() == pytest.approx(1.1)
    # The deviation of a standard normal number that is clipped to two deviations is 0.9595.
    assert of_images.std().item() == pytest.approx(0.05 * 0.9595, rel=0.05)
    assert of_images.mean().item() == pytest.approx(1, abs=0.005)


def test_intensity_keeps_whole_numbers_within_the_range_of_their_dtype() -> None:
    bright = torch.full((500, 2, 2), 250, dtype=torch.uint8)
    changed = RandomIntensity(0.05)(bright, torch.Generator().manual_seed(1))
    assert changed.dtype == torch.uint8
    assert changed.max() == 255
    assert changed.min() == 225


def differences(plain: Any, changed: Any, key: str, time_first: bool) -> list[list[float]]:
    """The numbers that were added to each row, in all of its steps."""
    rows: list[list[float]] = []
    parts = [(plain, changed), *((plain[name], changed[name]) for name in (BURN_IN, LEAD_OUT) if name in plain)]
    for part, place in parts:
        for one, two in zip(leaves_of(part.get(key)), leaves_of(place.get(key)), strict=True):
            added = (two.double() - one.double()) % 256
            added = added.transpose(0, 1) if time_first else added
            rows = rows or [[] for _ in added]
            for row, numbers in zip(rows, added.flatten(1), strict=True):
                row.extend(round(float(number), 3) for number in numbers.unique())
    return rows


def leaves_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        return [value["pixels"]]
    return [] if value is None else [value]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("window", WINDOWS)
def test_transformed_batches_are_equal_with_prefetching_and_after_a_restore(window: str, prefetch: int) -> None:
    storage = filled(noisy, sequences=WINDOWS[window], prefetch=prefetch)
    plain = filled(noisy, sequences=WINDOWS[window])
    assert equal(drawn(storage), drawn(plain))
    batches = storage.generate_batches(4, 6)
    next(batches)
    state = through_a_file(storage.state_dict())
    rest = dict(enumerate(batches))
    loaded = filled(noisy, sequences=WINDOWS[window], prefetch=prefetch, seed=3)
    loaded.load_state_dict(state)
    assert equal(dict(enumerate(loaded.generate_batches(3, 6))), rest)
    newest = storage.newest_steps(3)
    assert not equal(newest, storage.newest_steps(3))


def test_a_storage_without_transforms_draws_no_random_numbers_for_them() -> None:
    with_none = storages.ReplayBuffer.create_factory(size=30)("cpu", None, ALGORITHM, None)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    with_none.seed(5)
    with_none.insert_transition(stream.step())
    expected, generator = next(with_none.generate_batches(1, 8)), with_none.state_dict()["generator"]
    with_none.update_storage_parameter("transforms", {})
    with_none.seed(5)
    assert equal(next(with_none.generate_batches(1, 8)), expected)
    assert with_none.state_dict()["generator"] == generator
    with_none.update_storage_parameter("transforms", {REW: lambda reward, generator: reward.clamp(0, 0)})
    batch = next(with_none.generate_batches(1, 8))
    assert (batch[REW] == 0).all()
    assert (batch[WEIGHTS] == 1).all()
    assert batch[INDICES].shape == (8, 1)


def test_hindsight_relabels_before_observations_are_transformed() -> None:
    relabelled: list[Any] = []

    def her_function(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, first: Any, last: Any) -> Any:
        relabelled.append(obs.copy())
        return np.zeros_like(obs), rhs, np.zeros_like(obs2), rhs2, rew

    factory = storages.HERBuffer.create_factory(
        size=30, her_function=her_function, her_ratio=1.0, transforms={OBS: lambda obs, generator: obs + 7}
    )
    storage, stream = factory("cpu", None, ALGORITHM, None), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(9):
        storage.insert_transition(stream.step())
    batch = next(storage.generate_batches(1, 5))
    assert len(relabelled) == 1
    assert (batch[OBS] == 7).all()
    assert (batch[OBS2] == 7).all()


@given(
    shape=st.sampled_from([(5, 7), (1, 6, 4), (3, 5, 5), (2, 1, 4, 6), (3, 2, 3, 5, 4)]),
    pixels=st.integers(1, 6),
    channels_last=st.booleans(),
    dtype=st.sampled_from([torch.uint8, torch.float32]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_random_shift_moves_each_image_and_repeats_its_border(
    shape: tuple[int, ...], pixels: int, channels_last: bool, dtype: torch.dtype, seed: int
) -> None:
    images = torch.randint(0, 255, (4, *shape), generator=torch.Generator().manual_seed(seed)).to(dtype)
    given = images.unsqueeze(-1).repeat(*[1] * images.ndim, 2) if channels_last else images
    shift = RandomShift(pixels, channels_last)
    shifted = shift(given, torch.Generator().manual_seed(seed))
    assert shifted.shape == given.shape
    assert shifted.dtype == given.dtype
    assert torch.equal(shifted, shift(given, torch.Generator().manual_seed(seed)))
    shifted = shifted[..., 0] if channels_last else shifted
    height, width = shape[-2:]
    for row in range(4):
        places = range(-pixels, pixels + 1)
        assert any(
            torch.equal(shifted[row], moved(images[row], down, right, height, width))
            for down in places
            for right in places
        )


def moved(image: torch.Tensor, down: int, right: int, height: int, width: int) -> torch.Tensor:
    out = torch.empty_like(image)
    for y in range(height):
        for x in range(width):
            out[..., y, x] = image[..., min(max(y + down, 0), height - 1), min(max(x + right, 0), width - 1)]
    return out


def test_random_shifts_are_uniform_in_both_directions() -> None:
    image = torch.arange(81.0).reshape(1, 9, 9).expand(4000, 1, 9, 9)
    shifted = RandomShift(1)(image, torch.Generator().manual_seed(0))
    centres, counts = shifted[:, 0, 4, 4].unique(return_counts=True)
    assert centres.tolist() == [30, 31, 32, 39, 40, 41, 48, 49, 50]
    assert ((counts - 4000 / 9).square() / (4000 / 9)).sum() < 9 + 5 * 18**0.5


@given(
    shape=st.sampled_from([(5, 7), (1, 6, 4), (3, 5, 5), (3, 2, 5, 4)]),
    pixels=st.integers(1, 4),
    channels_last=st.booleans(),
    dtype=st.sampled_from([torch.uint8, torch.float32, torch.float64]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=examples(60), deadline=None)
def test_an_interpolated_shift_is_the_mean_of_four_pixels_by_distance(
    shape: tuple[int, ...], pixels: int, channels_last: bool, dtype: torch.dtype, seed: int
) -> None:
    images = torch.randint(0, 256, (4, *shape), generator=torch.Generator().manual_seed(seed)).to(dtype)
    given = images.unsqueeze(-1).repeat(*[1] * images.ndim, 2) if channels_last else images
    shifted = RandomShift(pixels, channels_last, interpolate=True)(given, torch.Generator().manual_seed(seed))
    assert shifted.shape == given.shape
    assert shifted.dtype == given.dtype
    shifts = torch.rand((2, 4), generator=torch.Generator().manual_seed(seed)) * 2 * pixels
    assert len(set(shifts.flatten().tolist())) == 8
    for image, got, (down, right) in zip(images, shifted, shifts.T.double(), strict=True):
        y, x = int(down) - pixels, int(right) - pixels
        below, beside = down % 1, right % 1
        corners = [
            (1 - below if dy == 0 else below)
            * (1 - beside if dx == 0 else beside)
            * moved(image.double(), y + dy, x + dx, *shape[-2:])
            for dy in (0, 1)
            for dx in (0, 1)
        ]
        wanted = sum(corners[1:], corners[0])
        got = got[..., 0] if channels_last else got
        assert (got.double() - wanted).abs().max() <= (0.501 if dtype == torch.uint8 else 1e-3)
        assert image.min() <= got.min()
        assert got.max() <= image.max()


def test_an_interpolated_shift_moves_all_frames_of_a_stack_together() -> None:
    frame = torch.rand(6, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    shifted = RandomShift(2, interpolate=True)(frame.repeat(1, 3, 1, 1), torch.Generator().manual_seed(1))
    assert torch.equal(shifted[:, 0], shifted[:, 1])
    assert torch.equal(shifted[:, 0], shifted[:, 2])


def test_an_interpolated_shift_keeps_an_image_of_one_colour() -> None:
    image = torch.full((5, 3, 8, 8), 200, dtype=torch.uint8)
    shifted = RandomShift(4, interpolate=True)(image, torch.Generator().manual_seed(0))
    assert torch.equal(shifted, image)


def test_shifted_images_keep_their_dtype_and_the_config_contains_the_shift() -> None:
    storage = storages.PERBuffer.create_factory(size=100, alpha=0.6, transforms={OBS: storages.RandomShift(pixels=2)})
    again = storages.PERBuffer.create_factory(size=100, alpha=0.6, transforms={OBS: storages.RandomShift(pixels=2)})
    assert storage == again
    shown = storage.config["hyper_parameters"]["transforms"][OBS]
    assert shown == {
        "name": "RandomShift",
        "hyper_parameters": {"pixels": 2, "channels_last": False, "interpolate": False, "by_step": False},
    }
    made = storage("cpu", None, ALGORITHM, environments("frames", 2))
    stream = Stream(2, "frames", False, np.random.default_rng(0))
    for _ in range(20):
        made.insert_transition(stream.step())
    batch = next(made.generate_batches(1, 32))
    assert batch[OBS].dtype == torch.uint8
    assert all(leaf.is_contiguous() for leaf in all_leaves(batch))


def test_invalid_transforms_raise_errors_that_name_the_field() -> None:
    create = storages.PERBuffer.create_factory
    with pytest.raises(ValueError, match="PERBuffer: 'NextObservation' cannot be transformed; that of Observation is"):
        create(size=3, transforms={OBS2: unchanged})
    with pytest.raises(ValueError, match="PERBuffer: 'Weights' cannot be transformed; name Observation"):
        create(size=3, transforms={WEIGHTS: unchanged})
    with pytest.raises(ValueError, match=r"the transform of Observation\['a'\] must be a callable"):
        create(size=3, transforms={OBS: {"a": 3}})
    with pytest.raises(ValueError, match="transforms must be a Mapping"):
        create(size=3, transforms=unchanged)
    with pytest.raises(ValueError, match="transforms has one for all of it for Observation, which has the names a, b"):
        drawn(filled(unchanged, "dict"))
    with pytest.raises(ValueError, match="transforms has those of c for Observation, which has the names a, b"):
        drawn(filled({"c": unchanged}, "dict"))
    storage = filled(lambda tensor, generator: tensor[:1])
    with pytest.raises(
        ValueError, match=r"a transform must keep the leading axes \(6,\) of a batch, got shape \(1, 3\)"
    ):
        drawn(storage)
    with pytest.raises(ValueError, match="PERBuffer: 'Discount' cannot be transformed"):
        storage.update_storage_parameter("transforms", {"Discount": unchanged})
    storage.update_storage_parameter("transforms", {"Fear": unchanged})
    with pytest.raises(ValueError, match=f"transforms names 'Fear'; batches have {OBS}, .*{ACT}"):
        drawn(storage)
