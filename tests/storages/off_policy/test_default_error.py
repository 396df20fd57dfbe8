"""The error of transitions that have not been in an update yet: at most the largest known error."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episode, Episodes, PERBuffer, PersistentEpisodicBuffer, Sequences
from storages.transition import ACT, ERRORS, INDICES, MASK, REW
from tests.support.model import ALGORITHM, Stream, through_a_file
from tests.support.profiles import examples


def made(**hyper_parameters: Any) -> PERBuffer:
    storage = PERBuffer.create_factory(**({"alpha": 1.0} | hyper_parameters))("cpu", None, ALGORITHM, None)
    storage.seed(0)
    return storage


def insert(storage: PERBuffer, steps: int, num_envs: int = 1) -> None:
    stream = Stream(num_envs, "vector", False, np.random.default_rng(0))
    for _ in range(steps):
        storage.insert_transition(stream.step())


def learn(storage: PERBuffer, numbers: Any, errors: Any) -> None:
    """Sets the errors of transitions, as an update with a batch of them does."""
    (batch,) = storage.generate_batches(1, len(numbers))
    batch[INDICES] = torch.tensor(numbers)[:, None]
    storage.after_gradients(batch, {ERRORS: torch.tensor(errors, dtype=torch.float32)[:, None]})


def share_of_newest(storage: PERBuffer, newest: int) -> float:
    indices = torch.cat([batch[INDICES] for batch in storage.generate_batches(200, 64)])
    return float((indices >= len(storage) - newest).float().mean())


@pytest.mark.parametrize("hyper_parameters", [{}, {"default_error": "largest"}])
def test_new_transitions_are_drawn_as_often_as_the_one_with_the_largest_error(hyper_parameters: Any) -> None:
    storage = made(size=1_000, **hyper_parameters)
    insert(storage, 500)
    errors = np.linspace(0.5, 1.5, 500)
    learn(storage, np.arange(500), errors)
    insert(storage, 4)
    expected = 4 * 1.5 / (errors.sum() + 4 * 1.5)
    assert share_of_newest(storage, 4) == pytest.approx(expected, rel=0.2)


def test_new_transitions_are_drawn_first_with_default_error_first() -> None:
    storage = made(size=1_000, default_error="first")
    insert(storage, 500)
    learn(storage, np.arange(500), np.ones(500))
    insert(storage, 4)
    assert share_of_newest(storage, 4) > 0.99


@dataclass
class Model:
    """Errors of the stored transitions, oldest first."""

    size: int
    default: Any
    errors: list[float] = field(default_factory=list)
    largest: float = 0.0

    def initial(self) -> float:
        if self.default == "first":
            return 1_000_000.0
        base = (self.largest or 1.0) if self.default == "largest" else self.default
        return min(base, self.largest) if self.largest else base

    def insert(self, count: int) -> None:
        self.errors = (self.errors + [self.initial()] * count)[-self.size :]

    def learn(self, positions: Any, errors: Any) -> None:
        for position, error in zip(positions, errors, strict=True):
            self.errors[position] = error
        if not self.largest and max(errors) and self.default != "first":
            # Only default errors can be above the largest error of this update.
            self.errors = [min(error, max(errors)) for error in self.errors]
        self.largest = max(self.largest, *errors)


_errors = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 8.0])
_actions = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(1, 9)),
        st.tuples(st.just("learn"), st.lists(st.tuples(st.integers(0, 100), _errors), min_size=1, max_size=6)),
        st.tuples(st.just("default"), st.sampled_from([0.5, 3.0, 1e6, "largest"])),
        st.tuples(st.just("save"), st.none()),
    ),
    max_size=12,
)
_defaults = st.sampled_from([0.25, 3.0, 1e6, "largest", "first"])


def run(model: Model, storage: Any, actions: Any, insert: Any, reopened: Any, numbers: Any) -> None:
    """Applies the actions to both the model and the storage, and compares all errors after each."""
    for name, argument in [("insert", 3), *actions]:
        if name == "insert":
            insert(storage, argument)
            model.insert(argument)
        elif name == "learn":
            chosen = {position % len(model.errors): error for position, error in argument}
            learn(storage, numbers(storage, sorted(chosen)), [chosen[position] for position in sorted(chosen)])
            model.learn(sorted(chosen), [chosen[position] for position in sorted(chosen)])
        elif name == "default" and model.default != "first":
            model.default = argument
            storage.update_storage_parameter("default_error", argument)
        elif name == "save":
            storage = reopened(storage, model.default)
        # Priorities are stored from the first batch on.
        next(storage.generate_batches(1, 1))
        found = storage.priorities.errors(storage.ring.oldest).ravel()
        assert found.tolist() == model.errors, name
    storage.close()


@pytest.mark.parametrize("kept", ["in memory", "on disk"])
@given(size=st.integers(3, 20), default=_defaults, actions=_actions)
@settings(max_examples=examples(40), deadline=None)
def test_errors_equal_those_of_a_reference_model(
    tmp_path_factory: Any, kept: str, size: int, default: Any, actions: Any
) -> None:
    directory = tmp_path_factory.mktemp("ring") / "s" if kept == "on disk" else None

    def make(default: Any) -> PERBuffer:
        return made(size=size, default_error=default, directory=directory, commit_every=2)

    def reopened(storage: PERBuffer, default: Any) -> PERBuffer:
        state = through_a_file(storage.state_dict())
        storage.close()
        other = make(default)
        if directory is None:
            other.load_state_dict(state)
        return other

    def numbers(storage: PERBuffer, positions: list[int]) -> list[int]:
        return [storage.ring.start + position for position in positions]

    run(Model(size, default), make(default), actions, insert, reopened, numbers)


@given(default=_defaults, actions=_actions)
@settings(max_examples=examples(15), deadline=None)
def test_errors_in_an_episodic_buffer_equal_those_of_a_reference_model(
    tmp_path_factory: Any, default: Any, actions: Any
) -> None:
    directory = tmp_path_factory.mktemp("episodes") / "e"

    def make(default: Any) -> PersistentEpisodicBuffer:
        factory = PersistentEpisodicBuffer.create_factory(
            size=1_000, directory=directory, alpha=1.0, default_error=default
        )
        return factory("cpu", None, ALGORITHM, None)

    def insert_episode(storage: PersistentEpisodicBuffer, steps: int) -> None:
        fields = {ACT: np.zeros((steps, 1), np.float32), REW: np.ones((steps, 1), np.float32)}
        storage.add_episode(Episode(np.zeros((steps + 1, 2), np.float32), fields, terminated=True, truncated=False))

    def reopened(storage: PersistentEpisodicBuffer, default: Any) -> PersistentEpisodicBuffer:
        storage.close()
        return make(default)

    def numbers(storage: PersistentEpisodicBuffer, positions: list[int]) -> list[int]:
        return [storage.ring.start + position for position in positions]

    run(Model(1_000, default), make(default), actions, insert_episode, reopened, numbers)


def test_default_errors_of_evicted_episodes_are_limited_when_they_are_loaded_again(
    tmp_path: Path,
) -> None:
    factory = PersistentEpisodicBuffer.create_factory(
        size=None, directory=tmp_path / "episodes", memory_bytes=300_000, alpha=1.0
    )
    storage = factory("cpu", None, ALGORITHM, None)
    storage.seed(0)
    fields = {ACT: np.zeros((100, 1), np.float32), REW: np.ones((100, 1), np.float32)}
    for _ in range(100):
        storage.add_episode(Episode(np.zeros((101, 16), np.float32), fields, terminated=True, truncated=False))
        next(storage.generate_batches(1, 1))
    assert storage.ring.live_steps < len(storage)
    for batch in storage.generate_batches(200, 256):
        storage.after_gradients(batch, {ERRORS: torch.full((256, 1), 0.5)})
        assert storage.priorities is not None
        assert (storage.priorities.errors(storage.ring.oldest) == 0.5).all()
    storage.close()


def batches_of(kinds: Any) -> Iterator[tuple[PERBuffer, Any]]:
    for sequences in kinds:
        storage = made(size=100, sequences=sequences)
        insert(storage, 60, num_envs=2)
        yield storage, next(storage.generate_batches(1, 4))


@pytest.mark.parametrize("sequences", [Sequences(3), Episodes(whole=False)])
def test_default_errors_of_new_sequences_and_episodes_are_at_most_the_largest_error(sequences: Any) -> None:
    for storage, batch in batches_of([sequences]):
        storage.after_gradients(batch, {ERRORS: torch.full(batch[MASK].shape, 0.5)})
        insert(storage, 10, num_envs=2)
        assert storage.priorities is not None
        assert storage.priorities.largest == 0.5
