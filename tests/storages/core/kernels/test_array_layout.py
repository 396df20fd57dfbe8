"""Where arrays do not lie in memory as compiled code reads them, they are stored all the same, with a warning."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from storages import GAEBuffer, PERBuffer, ReplayBuffer
from storages.core.kernels import array_layout, insert, memory
from storages.core.ring import insertion as inlet
from storages.transition import VAL
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, KINDS, Stream, environments, replay_buffer

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def unchecked() -> Iterator[None]:
    array_layout.can_describe.cache_clear()
    yield
    array_layout.can_describe.cache_clear()


def test_arrays_are_described_in_this_python_without_a_word() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert array_layout.can_describe()


@pytest.mark.parametrize("place", ["_TYPE", "_DATA", "_DTYPE", "_FIRST_OF_TUPLE"])
@pytest.mark.parametrize("moved", [-8, 8, 1000])
def test_pointers_that_lie_elsewhere_are_noticed_before_they_are_followed(
    place: str, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, place, getattr(memory, place) + moved)
    monkeypatch.setattr(array_layout, "describe", lambda *_: pytest.fail("pointers were followed"))
    with pytest.warns(RuntimeWarning, match="keep arrays in memory in another way"):
        assert not array_layout.can_describe()


@pytest.mark.parametrize("column", range(memory.DESCRIBED))
def test_a_description_that_is_wrong_is_noticed(column: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def describe_wrongly(described: NDArray[np.int64], arrays: int, array_type: int) -> bool:
        good = memory.describe(described, arrays, array_type)
        described[1, column] += 1
        return good

    monkeypatch.setattr(array_layout, "describe", describe_wrongly)
    with pytest.warns(RuntimeWarning, match="many times slower"):
        assert not array_layout.can_describe()


def test_the_warning_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_layout, "_pointers_fit", lambda: False)
    sample = Stream(2, "vector", False, np.random.default_rng(0)).step()
    with pytest.warns(RuntimeWarning, match="steps are inserted by plain Python"):
        replay_buffer(3).insert_transition(sample)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replay_buffer(3).insert_transition(sample)


def filled(storage: Any, kind: str, values: bool) -> Any:
    stream = Stream(2, kind, True, np.random.default_rng(3))
    for step in range(25):
        sample = stream.step()
        if values:
            sample[VAL] = np.full((2, 1), step, np.float32)
        storage.insert_transition(sample)
    return storage


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["replay", "prioritised", "rollout"])
def test_steps_are_stored_without_reading_arrays_from_their_memory(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make() -> Any:
        envs = environments(kind, 2)
        factory = {
            "replay": ReplayBuffer.create_factory(size=10),
            "prioritised": PERBuffer.create_factory(size=10, alpha=0.5),
            "rollout": GAEBuffer.create_factory(size=30),
        }[name]
        storage = factory("cpu", None, ALGORITHM, envs)
        storage.seed(0)
        return storage

    usual = filled(make(), kind, name == "rollout")
    insert_steps = insert.insert_steps

    def insert_by_address(way_in: int, arrays: int, *others: Any) -> int:
        assert arrays == 0, "arrays were read from their memory"
        return insert_steps(way_in, arrays, *others)

    monkeypatch.setattr(inlet, "can_describe", lambda: False)
    monkeypatch.setattr(inlet, "describe", lambda *_: pytest.fail("arrays were read from their memory"))
    monkeypatch.setattr(insert, "insert_steps", insert_by_address)
    plain = filled(make(), kind, name == "rollout")
    assert_equal(plain.state_dict(), usual.state_dict())
    other = make()
    other.insert_data_slice(usual.get_all_buffer_data())
    assert_equal(other.get_all_buffer_data(), plain.get_all_buffer_data())


@pytest.mark.long
def test_a_process_whose_arrays_cannot_be_read_stores_and_samples() -> None:
    script = """
import warnings
from storages.core.kernels import memory
memory._DTYPE += 8
import numpy as np
from tests.support.model import Stream, replay_buffer
storage, stream = replay_buffer(5), Stream(2, "vector", False, np.random.default_rng(0))
with warnings.catch_warnings(record=True) as said:
    for _ in range(9):
        storage.insert_transition(stream.step())
assert len(storage) == 10 and len(said) == 1, said
print(next(storage.generate_batches(1, 4))["Reward"].shape)
"""
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip() == "torch.Size([4, 1])"
