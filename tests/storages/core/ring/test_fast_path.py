"""The compiled fast path and plain Python store steps equally, also if they alternate."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from storages import GAEBuffer, PERBuffer, ReplayBuffer
from storages.core.ring import insertion
from storages.transition import VAL, Sample
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, KINDS, Stream, environments

STORAGES: dict[str, Any] = {
    "replay": ReplayBuffer.create_factory(size=10),
    "prioritised": PERBuffer.create_factory(size=10, alpha=0.5),
    "rollout": GAEBuffer.create_factory(size=30),
}
NEVER = 1_000_000


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


ARRAY_KINDS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "arrays": np.copy,
    "tensors": torch.from_numpy,
    "read-only": read_only,
    "with gaps": lambda array: np.repeat(array, 2, -1)[..., ::2],
    "Fortran order": np.asfortranarray,
}


def converted(sample: Sample, convert: Callable[[NDArray[Any]], Any]) -> dict[str, Any]:
    return {
        key: {name: convert(leaf) for name, leaf in value.items()} if isinstance(value, dict) else convert(value)
        for key, value in sample.items()
    }


def filled(
    name: str, kind: str, compiled_after: int, array_kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, insertion.RingWriter]:
    monkeypatch.setattr(insertion, "COMPILED_AFTER_STEPS", compiled_after)
    monkeypatch.setattr(insertion, "_COMPILED_FOR", set())
    storage = STORAGES[name]("cpu", None, ALGORITHM, environments(kind, 2))
    storage.seed(0)
    stream = Stream(2, kind, True, np.random.default_rng(3))
    for step in range(25):
        sample = stream.step()
        if name == "rollout":
            sample[VAL] = np.full((2, 1), step, np.float32)
        storage.insert_transition(converted(sample, ARRAY_KINDS[array_kinds[step * len(array_kinds) // 25]]))
    return storage, storage.ring.columns.writer


@pytest.mark.quick_share(0.05, long=0.5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STORAGES)
def test_the_fast_path_and_python_give_equal_storages(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_python, writer = filled(name, kind, NEVER, ["arrays"], monkeypatch)
    assert writer._compiled is None
    compiled, writer = filled(name, kind, 3, ["arrays"], monkeypatch)
    assert writer._compiled is not None
    assert_equal(compiled.state_dict(), by_python.state_dict())


@pytest.mark.quick_share(0.3, long=0.6)
@pytest.mark.parametrize("before", ARRAY_KINDS)
@pytest.mark.parametrize("after", ARRAY_KINDS)
def test_samples_may_change_their_kind_of_arrays(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_python, _ = filled("replay", "vector", NEVER, ["arrays"], monkeypatch)
    compiled, _ = filled("replay", "vector", 3, [before, after], monkeypatch)
    assert_equal(compiled.state_dict(), by_python.state_dict())


def test_arrays_that_numba_does_not_support_are_stored_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    by_python, _ = filled("replay", "vector", NEVER, ["arrays"], monkeypatch)
    monkeypatch.setattr(insertion.numba, "typeof", lambda _: (_ for _ in ()).throw(ValueError("unknown")))
    storage, writer = filled("replay", "vector", 3, ["arrays"], monkeypatch)
    assert writer._compiled is None
    assert_equal(storage.state_dict(), by_python.state_dict())


def test_a_ring_frees_its_memory_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, _ = filled("replay", "dict", 3, ["tensors"], monkeypatch)
    columns = weakref.ref(storage.ring.columns)
    gc.disable()
    try:
        storage.ring.reset()
        storage.ring.forget_columns()
        assert columns() is None
    finally:
        gc.enable()
