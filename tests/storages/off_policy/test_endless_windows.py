"""Windows that are longer than the storage reach to the end of their episode."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from storages import Episodes, EREBuffer, HERBuffer, NStepReplayBuffer, PERBuffer, ReplayBuffer, Sequences
from storages.transition import DISCOUNT, LEAD_OUT, OBS, REW
from tests.support.comparison import assert_equal
from tests.support.model import ALGORITHM, GAMMA, Stream

SIZE = 10
ENDLESS = (SIZE, SIZE + 1, 2**31, 2**61, 2**62 - 1, 2**62, sys.maxsize, 2**63, 2**70)


def keep(*fields: Any) -> Any:
    return fields[:5]


KINDS: dict[str, Any] = {
    "uniform": lambda **more: NStepReplayBuffer.create_factory(**more),
    "priorities": lambda **more: PERBuffer.create_factory(alpha=0.5, **more),
    "recency": lambda **more: EREBuffer.create_factory(cmin=3, **more),
    "hindsight": lambda **more: HERBuffer.create_factory(her_function=keep, **more),
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


def test_an_endless_window_sums_the_rewards_of_the_rest_of_the_episode() -> None:
    storage: Any = NStepReplayBuffer.create_factory(size=50)("cpu", None, ALGORITHM, None)
    storage.update_storage_parameter("n_step", sys.maxsize)
    stream = Stream(1, "vector", False, np.random.default_rng(2))
    steps = [stream.step() for _ in range(30)]
    for step in steps:
        storage.insert_transition(step)
    batch = next(storage.generate_batches(1, 100))
    observed = {step[OBS].tobytes(): number for number, step in enumerate(steps)}
    for row in range(100):
        number, total, discount = observed[batch[OBS][row].numpy()[None].tobytes()], 0.0, 1.0
        for step in steps[number:]:
            total, discount = total + discount * step[REW].item(), discount * GAMMA
            following = steps[observed[step[OBS].tobytes()] + 1] if step is not steps[-1] else None
            if following is None or following[OBS].tobytes() != step["NextObservation"].tobytes():
                break
            if step["NextDone"].item() or step["NextTruncated"].item() or following["Done"].item():
                break
        assert batch[REW][row].item() == pytest.approx(total, rel=1e-5, abs=1e-6)
        expected = 0.0 if step["NextDone"].item() else discount
        assert batch[DISCOUNT][row].item() == pytest.approx(expected, rel=1e-5)


def test_the_lead_out_of_endless_windows_is_limited_by_the_size_of_the_storage() -> None:
    batch = next(filled(KINDS["sequences"](size=SIZE, n_step=sys.maxsize)).generate_batches(1, 4))
    assert batch[LEAD_OUT][OBS].shape[:2] == (SIZE - 1, 4)


@pytest.mark.parametrize("length", ENDLESS[1:])
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
