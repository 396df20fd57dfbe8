"""A copy of a storage draws the same batches as the original, and neither changes the other."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from storages import Episodes, HERBuffer, PERBuffer, ReplayBuffer, Sequences, Storage
from tests.support.model import ALGORITHM, Stream, contents, environments, equal

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda storage: pickle.loads(pickle.dumps(storage))}


def relabelled(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, first: Any, last: Any) -> Any:
    return obs, rhs, obs2, rhs2, rew + 1


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize(
    ("cls", "hyper_parameters", "kind"),
    [
        (ReplayBuffer, {}, "frames"),
        (ReplayBuffer, {"sequences": Sequences(4)}, "dict"),
        (ReplayBuffer, {"sequences": Episodes()}, "vector"),
        (ReplayBuffer, {"sequences": Episodes(whole=False, longest=3)}, "frames"),
        (PERBuffer, {"alpha": 0.7, "sequences": Episodes()}, "dict"),
        (PERBuffer, {"alpha": 0.7, "epsilon": 0.1, "n_step": 3}, "vector"),
        (HERBuffer, {"her_function": relabelled, "sequences": Episodes(packed=True)}, "vector"),
    ],
)
def test_a_copy_draws_the_batches_of_the_original_after_the_same_insertions(
    cls: Any, hyper_parameters: Any, kind: str, way: str
) -> None:
    original: Storage = cls.create_factory(size=40, **hyper_parameters)("cpu", None, ALGORITHM, environments(kind, 2))
    stream = Stream(2, kind, True, np.random.default_rng(0))
    for _ in range(50):
        original.insert_transition(stream.step())
    original.seed(1)
    next(original.generate_batches(1, 8))
    copied = COPIES[way](original)
    for number in range(60):
        sample = stream.step()
        original.insert_transition(sample)
        before = contents(original)
        copied.insert_transition(sample)
        assert contents(original) == before
        assert contents(copied) == before
        if number % 5 == 0:
            assert equal(next(original.generate_batches(1, 8)), next(copied.generate_batches(1, 8)))
