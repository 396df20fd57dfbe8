"""An episode that ``end_episode`` ends equals one that is truncated at the same step."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import storages
from storages import Episodes, Sequences, Storage
from storages.transition import DONE2, ERRORS, LOGP, MASK, OBS, OBS2, REW, TRUNC2, VAL
from tests.support.model import ALGORITHM, Stream, contents, environments, equal, map_leaves, through_a_file, unchanged
from tests.support.rollouts import SummingActor

SIZE = 16
PRIORITIES: dict[str, Any] = {"alpha": 0.7, "beta": 0.5, "epsilon": 0.01}
REPLAYS: dict[str, Callable[..., Any]] = {
    "uniform": lambda **given: storages.ReplayBuffer.create_factory(**given),
    "priority": lambda **given: storages.PERBuffer.create_factory(n_step=3, **PRIORITIES, **given),
    "hindsight": lambda **given: storages.HERBuffer.create_factory(her_function=unchanged, **PRIORITIES, **given),
    "on the device": lambda **given: storages.PERBuffer.create_factory(keep_on_device=True, **PRIORITIES, **given),
    "prefetch": lambda **given: storages.PERBuffer.create_factory(prefetch=2, **PRIORITIES, **given),
}
WINDOWS = {
    "transitions": None,
    "sequences": Sequences(4, burn_in=2),
    "episodes": Episodes(),
    "pieces": Episodes(longest=3),
    "parts": Episodes(longest=4, whole=False),
}


def batches(storage: Storage) -> dict[int, Any]:
    """Draws batches, and gives the storage their errors."""
    drawn = {}
    for number, batch in enumerate(storage.generate_batches(3, 8)):
        shape = batch[MASK].shape if MASK in batch else (8, 1)
        storage.after_gradients(batch, {ERRORS: torch.linspace(0.1, 2, int(np.prod(shape))).reshape(shape)})
        drawn[number] = batch
    return drawn


def truncated_at(sample: Any, envs: list[int]) -> Any:
    """The same step, with truncations of the given environments where it does not terminate an episode."""
    sample = map_leaves(sample, np.array)
    sample[TRUNC2][envs] |= ~sample[DONE2][envs]
    return sample


@pytest.mark.quick_share(0.3)
@pytest.mark.parametrize(
    ("way", "window", "kind"),
    [
        (way, window, ("vector", "dict of frames")[(row + column) % 2])
        for row, way in enumerate(REPLAYS)
        for column, window in enumerate(WINDOWS)
    ],
)
def test_end_episode_in_a_replay_equals_a_truncation_at_the_same_step(way: str, window: str, kind: str) -> None:
    factory, envs = REPLAYS[way](size=SIZE, sequences=WINDOWS[window]), environments(kind, 3)
    by_hand, by_limit = (factory("cpu", None, ALGORITHM, envs) for _ in range(2))
    for one in (by_hand, by_limit):
        one.seed(0)
    stream = Stream(3, kind, True, np.random.default_rng(1))
    for step in range(45):
        sample = stream.step()
        by_hand.insert_transition(sample)
        ended = [step % 3, 0] if step % 5 == 4 else []
        by_limit.insert_transition(truncated_at(sample, ended))
        if ended:
            by_hand.end_episode(ended)
            stream.end_episode(ended)
        if step % 9 == 4:
            assert equal(batches(by_hand), batches(by_limit))
        if step == 29:
            state = through_a_file(by_hand.state_dict())
            by_hand = factory("cpu", None, ALGORITHM, envs)
            by_hand.load_state_dict(state)
    assert contents(by_hand) == contents(by_limit)


@pytest.mark.parametrize("kind", [storages.VanillaOnPolicyBuffer, storages.GAEBuffer, storages.VTraceBuffer])
def test_end_episode_in_a_rollout_equals_a_truncation_at_the_same_step(kind: Any) -> None:
    class Actor(SummingActor):
        def evaluate_actions(self, obs: Any, rhs: Any, done: Any, action: Any) -> Any:
            return torch.zeros_like(done), obs.sum(-1, keepdim=True)

    algorithm = SimpleNamespace(gamma=0.9)
    by_hand, by_limit = (kind.create_factory(size=12)("cpu", Actor(), algorithm, None) for _ in range(2))
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    for step in range(12):
        sample = stream.step()
        sample |= {VAL: sample[REW] * 2, LOGP: np.zeros((2, 1), np.float32)}
        by_hand.insert_transition(sample)
        by_limit.insert_transition(truncated_at(sample, [1] if step in (3, 11) else []))
        if step in (3, 11):
            by_hand.before_gradients()
            by_hand.end_episode([1])
            stream.end_episode([1])
            with pytest.raises(RuntimeError, match=r"call before_gradients\(\) first"):
                by_hand.generate_batches(1)
    for one in (by_hand, by_limit):
        one.before_gradients()
    assert contents(by_hand) == contents(by_limit)


def test_an_end_of_episode_after_a_commit_is_stored_with_the_next_commit(tmp_path: Path) -> None:
    factory = storages.PERBuffer.create_factory(size=SIZE, directory=tmp_path, **PRIORITIES)
    storage, stream = factory("cpu", None, ALGORITHM, None), Stream(2, "vector", False, np.random.default_rng(0))
    for _ in range(5):
        storage.insert_transition(stream.step())
    storage.flush()
    storage.end_episode()
    expected = contents(storage)
    storage.close()
    again = factory("cpu", None, ALGORITHM, None)
    assert contents(again) == expected
    newest = again.get_data_slice(4, 5)
    assert torch.logical_or(newest[DONE2], newest[TRUNC2]).all()
    again.close()


def test_end_episode_is_idempotent_and_refuses_unknown_environments() -> None:
    storage = storages.ReplayBuffer.create_factory(size=SIZE)("cpu", None, ALGORITHM, None)
    storage.end_episode()
    storage.end_episode([7])
    stream = Stream(2, "vector", False, np.random.default_rng(0))
    storage.insert_transition(stream.step())
    storage.end_episode([1, 1])
    once = contents(storage)
    storage.end_episode([1])
    assert contents(storage) == once
    with pytest.raises(IndexError, match=r"ReplayBuffer: envs must lie in \[0, 2\), got 2"):
        storage.end_episode([0, 2])
    assert contents(storage) == once
    followed = storage.get_data_slice(0, 1)[OBS2]
    storage.insert_transition(stream.step())
    assert torch.equal(storage.get_data_slice(0, 1)[OBS2], followed)
    assert not torch.equal(storage.get_data_slice(1, 2)[OBS][0, 1], followed[0, 1])
