"""Windows that are longer than the storage reach to the end of their episode."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from storages import Episodes, EREBuffer, HERBuffer, NStepReplayBuffer, PERBuffer, ReplayBuffer, Sequences
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, Stream, unchanged

SIZE = 10
ENDLESS = (SIZE + 1, 2**62, 2**70)


KINDS: dict[str, Any] = {
    "uniform": lambda **more: NStepReplayBuffer.create_factory(**more),
    "priorities": lambda **more: PERBuffer.create_factory(alpha=0.5, **more),
    "recency": lambda **more: EREBuffer.create_factory(cmin=3, **more),
    "hindsight": lambda **more: HERBuffer.create_factory(her_function=unchanged, **more),
    "sequences": lambda **more: NStepReplayBuffer.create_factory(sequences=Sequences(3, burn_in=1), **more),
    "episodes": lambda **more: NStepReplayBuffer.create_factory(sequences=Episodes(whole=False), **more),
    "pieces": lambda **more: NStepReplayBuffer.create_factory(sequences=Episodes(longest=2, whole=False), **more),
}


def filled(factory: Any) -> Any:
    storage = factory("cpu", None, ALGORITHM, SimpleNamespace(num_envs=3))
    storage.seed(1)
    stream = Stream(3, "vector", True, np.random.default_rng(2))
    for _ in range(2 * SIZE + 5):
        storage.insert_transition(stream.step())
    return storage


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("n_step", ENDLESS)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_longer_than_the_storage_are_cut_to_its_size(kind: str, n_step: int) -> None:
    longest, endless = (filled(KINDS[kind](size=SIZE, n_step=n)) for n in (SIZE, n_step))
    for _ in range(3):
        ours, theirs = (next(storage.generate_batches(1, 20)) for storage in (endless, longest))
        assert_equal(ours, theirs)


@pytest.mark.parametrize("length", ENDLESS)
def test_sequences_longer_than_the_storage_are_refused_when_a_factory_is_made(length: int) -> None:
    for sequences in (
        Sequences(length),
        Sequences(3, burn_in=length),
        Sequences(length, overlap=length - 1),
        Sequences(length, overlap=0),
        Episodes(longest=length),
    ):
        with pytest.raises(ValueError, match=rf"ReplayBuffer: size must be at least .*{length}.*got 10"):
            ReplayBuffer.create_factory(size=SIZE, sequences=sequences)
