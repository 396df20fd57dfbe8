"""Limits on the number of Python functions, except compiled ones, that an insertion and a batch call."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import storages
from storages import PERBuffer, ReplayBuffer, Storage
from tests.support.model import Stream

PACKAGE = str(Path(storages.__file__).parent)
MOST_CALLS_OF_AN_INSERTION = 7
ALGORITHM = SimpleNamespace(gamma=0.9)


def made(kind: type[Storage], **given: Any) -> tuple[Storage, Stream]:
    """A full storage of four environments."""
    storage = kind.create_factory(size=100, **given)("cpu", None, ALGORITHM, None)
    stream = Stream(4, "vector", False, np.random.default_rng(0))
    for _ in range(150):
        storage.insert_transition(stream.step())
    return storage, stream


def calls_of(function: Callable[[], Any]) -> list[str]:
    """Names of the Python functions of `storages` that a call enters, without compiled ones and comprehensions."""
    function()
    compiled, entered = compiled_code(), []

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        place = (code.co_filename, code.co_name)
        if event == "call" and code.co_filename.startswith(PACKAGE) and place not in compiled:
            entered.append(code.co_qualname)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return [name for name in entered if not name.endswith("comp>")]


def compiled_code() -> set[tuple[str, str]]:
    """Files and names of all kernels, whose compiled calls are reported as calls of Python functions."""
    modules = [module for name, module in sys.modules.items() if name.startswith("storages.core.kernels")]
    values = [value for module in modules for value in vars(module).values()]
    codes = [value.py_func.__code__ for value in values if hasattr(value, "py_func")]
    return {(code.co_filename, code.co_name) for code in codes}


@pytest.mark.parametrize(("kind", "given"), [(ReplayBuffer, {}), (PERBuffer, {"n_step": 3, "alpha": 0.6})])
def test_an_insertion_takes_few_calls(kind: type[Storage], given: dict[str, Any]) -> None:
    storage, stream = made(kind, **given)
    samples = [stream.step(), stream.step()]
    calls = calls_of(lambda: storage.insert_transition(samples.pop(0)))
    assert len(calls) <= MOST_CALLS_OF_AN_INSERTION, calls


@pytest.mark.parametrize(
    ("kind", "given", "most"), [(ReplayBuffer, {}, 16), (PERBuffer, {"n_step": 3, "alpha": 0.6, "beta": 0.4}, 25)]
)
def test_a_batch_takes_few_calls(kind: type[Storage], given: dict[str, Any], most: int) -> None:
    storage, _ = made(kind, **given)
    iterators = []

    def draw() -> None:
        # The iterator is kept, because closing it is not part of a batch.
        iterators.append(storage.generate_batches(1, 256))
        next(iterators[-1])

    calls = calls_of(draw)
    assert len(calls) <= most, calls
