"""A user-defined sampler and window work with directories, stacked frames and sequences."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from storages import NStepReplayBuffer, PERBuffer, Sequences
from storages.component.hyper_parameters import Positive
from storages.core.parts import Request, RingObserver, Rows, Sampler
from storages.core.windows.n_step import NSteps
from storages.transition import ACT, DISCOUNT, INDICES, MASK, OBS, REW, WEIGHTS
from tests.support.model import Stream, environments

ALGORITHM = SimpleNamespace(gamma=0.9)


class NewestMoreOften(Sampler):
    """Draws a row ``sharpness`` times as often as one that is half the storage older."""

    def __init__(self, sharpness: float) -> None:
        self.sharpness = sharpness
        self.drawn = 0

    def draw(self, request: Request) -> Rows:
        first, end = request.window.begins(request.ring, request.first)
        ages = np.linspace(2, 0, end - first)
        probabilities = self.sharpness**-ages
        probabilities /= probabilities.sum()
        rows = request.generator.choice(np.arange(first, end), request.batch_size, p=probabilities)
        self.drawn += len(rows)
        weights = probabilities.min() / probabilities[rows - first]
        return Rows(rows, weights.astype(np.float32)[:, None])

    def state_dict(self) -> dict[str, Any]:
        return {"rows_drawn": self.drawn}

    def load_state_dict(self, ring: Any, state: Any) -> None:
        self.drawn = state["rows_drawn"]


class Undiscounted(NSteps):
    """Sums rewards without a discount, and returns the number of summed rewards in the action field."""

    def step_fields(self, ring: Any, gather: Any, transitions: Any, gamma: float, keys: Any = None) -> dict[str, Any]:
        fields = super().step_fields(ring, gather, transitions, 1.0, keys)
        lengths = self.spans(ring, transitions, gamma).lengths
        fields[DISCOUNT] *= gamma ** lengths[:, None].astype(np.float32)
        fields[ACT] = lengths[:, None]
        return fields


class OwnBuffer(NStepReplayBuffer):
    """Adds one hyper-parameter and inherits those of its base."""

    sharpness: Positive = 4.0

    def make_sampler(self) -> NewestMoreOften:
        return NewestMoreOften(self.sharpness)

    def make_steps(self) -> Undiscounted:
        return Undiscounted(self.n_step)


def made(kind: str, **given: Any) -> tuple[OwnBuffer, Stream]:
    envs = environments(kind, 2)
    storage = OwnBuffer.create_factory(size=60, n_step=3, sharpness=8.0, **given)("cpu", None, ALGORITHM, envs)
    return storage, Stream(2, kind, False, np.random.default_rng(0))


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", ["vector", "frames"])
@pytest.mark.parametrize("sequences", [None, Sequences(5, burn_in=2)])
def test_user_defined_parts_work_with_a_directory_frames_and_sequences(
    kind: str, sequences: Any, prefetch: int, tmp_path: Path
) -> None:
    on_disk = {"directory": tmp_path / "kept", "commit_every": 10}
    storage, stream = made(kind, sequences=sequences, prefetch=prefetch, **on_disk)
    in_memory, other = made(kind, sequences=sequences)
    for each, steps in ((storage, stream), (in_memory, other)):
        each.seed(5)
        for _ in range(90):
            each.insert_transition(steps.step())
    batches = [list(each.generate_batches(3, 32)) for each in (storage, in_memory)]
    for one, two in zip(*batches, strict=True):
        assert one[INDICES].tolist() == two[INDICES].tolist()
    batch = batches[0][-1]
    time = () if sequences is None else (5,)
    assert batch[OBS].shape[: len(time) + 1] == (*time, 32)
    assert batch[WEIGHTS].min() < 1
    real = np.ones(batch[REW].shape, bool) if sequences is None else batch[MASK].numpy() == 1
    lengths = batch[ACT].numpy()[real]
    assert set(lengths.ravel().tolist()) <= {1, 2, 3}
    storage.close()
    again, _ = made(kind, sequences=sequences, **on_disk)
    in_memory.load_state_dict(in_memory.state_dict())
    assert len(again) == len(in_memory)
    assert again.sampler.drawn == in_memory.sampler.drawn == 96
    assert (
        next(again.generate_batches(1, 8))[INDICES].tolist() == next(in_memory.generate_batches(1, 8))[INDICES].tolist()
    )
    again.close()


def test_a_user_defined_sampler_draws_newer_rows_more_often_with_smaller_weights() -> None:
    storage, stream = made("vector")
    storage.seed(0)
    for _ in range(60):
        storage.insert_transition(stream.step())
    batch = next(storage.generate_batches(1, 4000))
    rows, weights = batch[INDICES].numpy().ravel(), batch[WEIGHTS].numpy().ravel()
    newer, older = rows >= 90, rows < 30
    # 8**1.5 times as often.
    assert 15 * older.sum() < newer.sum() < 35 * older.sum()
    assert weights[newer].max() < weights[older].min()


def test_a_user_defined_window_sums_the_rewards() -> None:
    storage, stream = made("vector")
    storage.seed(0)
    inserted = [stream.step() for _ in range(20)]
    for sample in inserted:
        storage.insert_transition(sample)
    batch = next(storage.generate_batches(1, 200))
    for index, summed, reward in zip(batch[INDICES].tolist(), batch[ACT].tolist(), batch[REW].tolist(), strict=True):
        step, env = divmod(index[0], 2)
        assert reward[0] == pytest.approx(sum(inserted[step + i][REW][env, 0] for i in range(summed[0])), abs=1e-5)


def test_a_user_defined_sampler_replaces_priorities() -> None:
    class Unprioritised(PERBuffer):
        def make_sampler(self) -> NewestMoreOften:
            return NewestMoreOften(2.0)

    storage = Unprioritised.create_factory(size=60, alpha=0.5)("cpu", None, ALGORITHM, None)
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(20):
        storage.insert_transition(stream.step())
    storage.update_storage_parameter("alpha", 1.0)
    batch = next(storage.generate_batches(1, 8))
    assert storage.priorities is None
    assert storage.after_gradients(batch, {})["storage/replay_ratio"] == 8 / 40


class CountsInsertions(RingObserver):
    """Counts the steps that it is told of."""

    def __init__(self) -> None:
        self.steps = 0

    def after_insert(self, ring: Any, steps: int) -> None:
        self.steps += steps


def test_a_part_added_to_the_observers_is_told_of_every_step() -> None:
    storage, stream = made("vector")
    counts = CountsInsertions()
    storage.observers.add(counts)
    for _ in range(7):
        storage.insert_transition(stream.step())
    assert counts.steps == 7


def test_attributes_by_their_earlier_names_warn_and_are_the_same() -> None:
    storage, stream = made("vector")
    storage.insert_transition(stream.step())
    old: Any = storage
    with pytest.warns(DeprecationWarning, match=r"OwnBuffer.layout is now insertion.ring.layout"):
        assert old.layout is storage.ring.layout
    counts = CountsInsertions()
    with pytest.warns(DeprecationWarning, match=r"observe is now observers.add"):
        old.observe(counts)
    storage.insert_transition(stream.step())
    assert counts.steps == 1
    with pytest.warns(DeprecationWarning, match=r"state_without_contents is now storages.saving"):
        assert "ring" not in old.state_without_contents()
