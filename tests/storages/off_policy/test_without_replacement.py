"""Draws without replacement: distinct rows within a batch, and passes that draw every row once."""

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import (
    Episodes,
    EREBuffer,
    HERBuffer,
    LinearSchedule,
    NStepReplayBuffer,
    PERBuffer,
    PersistentEpisodicBuffer,
    ReplayBuffer,
    Sequences,
)
from storages.errors import DamageError
from storages.transition import INDICES, WEIGHTS
from tests.support.model import ALGORITHM, Model, Stream, equal, through_a_file, unchanged
from tests.support.profiles import examples
from tests.support.windows_model import Episodic, row_of

WINDOWS = [
    None,
    Sequences(4),
    Sequences(4, burn_in=2, overlap=1),
    Episodes(),
    Episodes(longest=3, whole=False),
    Episodes(packed=True),
]


def made(draws: str, kind: Any = ReplayBuffer, size: int = 30, **given: Any) -> Any:
    storage = kind.create_factory(size=size, draws=draws, **given)("cpu", None, ALGORITHM, None)
    storage.seed(0)
    return storage


def fill(storage: Any, steps: int = 70, num_envs: int = 2, seed: int = 0) -> Episodic:
    """Insert steps, and return the model of what is stored."""
    model, stream = (
        Episodic(Model(storage.size), num_envs),
        Stream(num_envs, "vector", False, np.random.default_rng(seed)),
    )
    for _ in range(steps):
        sample = stream.step()
        storage.insert_transition(sample)
        model.insert(sample)
    return model


def may_be_drawn(model: Episodic, window: Any) -> list[int]:
    """Numbers of the transitions with which a row may begin."""
    steps, envs = sorted(model.model.steps), model.num_envs
    if isinstance(window, Episodes):
        return sorted(model.drawn(window))
    if isinstance(window, Sequences):
        whole = [step for step in steps if step <= steps[-1] - window.length + 1]
        steps = [step for step in whole if step % window.stride == 0] or whole[:1]
    return [step * envs + env for step in steps for env in range(envs)]


def rows(storage: Any, batches: int, size: int, wanted: Sequence[int] | None = None) -> list[list[int]]:
    """The rows of batches; where those that can be drawn are given, instead of the starts of their sequences."""
    found = [batch[INDICES][:, 0].tolist() for batch in storage.generate_batches(batches, size)]
    return found if wanted is None else [[row_of(one, wanted, storage.num_envs) for one in batch] for batch in found]


def flat(batches: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
@pytest.mark.parametrize("n_step", [1, 3])
def test_a_pass_has_every_row_once_in_random_order(window: Any, n_step: int) -> None:
    storage = made("passes", NStepReplayBuffer, n_step=n_step, sequences=window)
    wanted = may_be_drawn(fill(storage), window)
    passes = [flat(rows(storage, len(wanted), 1, wanted)) for _ in range(3)]
    assert [sorted(one) for one in passes] == [wanted] * 3
    assert passes[0] != passes[1] != wanted
    # If a pass is no multiple of the batch size, its last batch is completed from the next pass.
    drawn = flat(rows(storage, len(wanted), 7, wanted))
    for begin in range(0, len(drawn), len(wanted)):
        assert sorted(drawn[begin : begin + len(wanted)]) == wanted


def test_epochs_are_passes_over_all_rows() -> None:
    storage = made("passes")
    fill(storage)
    drawn = [batch[INDICES] for batch in storage.generate_batches(4, 15, num_epochs=3)]
    assert len(drawn) == 12
    assert Counter(torch.cat(drawn)[:, 0].tolist()) == dict.fromkeys(range(80, 140), 3)


@pytest.mark.long
@pytest.mark.parametrize("draws", ["passes", "without replacement"])
def test_all_orders_of_rows_are_equally_likely(draws: str) -> None:
    storage = made(draws, size=2)
    fill(storage)
    counts = Counter(tuple(batch) for batch in rows(storage, 6_000, 4))
    assert len(counts) == 24
    statistic = sum((count - 250) ** 2 / 250 for count in counts.values())
    assert statistic < 23 + 5 * np.sqrt(2 * 23)


@pytest.mark.parametrize("window", WINDOWS, ids=repr)
def test_rows_of_a_batch_are_distinct_and_uniform(window: Any) -> None:
    storage = made("without replacement", sequences=window)
    wanted = may_be_drawn(fill(storage), window)
    size = max(1, len(wanted) // 2)
    batches = rows(storage, 500, size, wanted)
    assert all(len(set(batch)) == size for batch in batches)
    drawn = Counter(flat(batches))
    counts = np.array([drawn[row] for row in wanted])
    assert counts.sum() == 500 * size
    # Rows of a batch are not independent: the counts vary less than those of a multinomial.
    expected = 500 * size / len(wanted)
    assert ((counts - expected) ** 2 / expected).sum() < len(wanted) + 5 * np.sqrt(2 * len(wanted))
    batch = next(storage.generate_batches(1, 2 * len(wanted) + 1))
    found = [row_of(one, wanted, storage.num_envs) for one in batch[INDICES][:, 0].tolist()]
    assert set(Counter(found).values()) <= {2, 3}
    assert (batch[WEIGHTS] == 1).all()


def test_with_recency_only_the_newest_rows_are_drawn_without_replacement() -> None:
    storage = made("without replacement", EREBuffer, eta=0.5, cmin=20)
    fill(storage)
    assert sorted(rows(storage, 1, 20)[0]) == list(range(120, 140))


_actions = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(1, 12)),
        st.tuples(st.just("draw"), st.integers(1, 9)),
        st.tuples(st.sampled_from(["save", "copy", "seed"]), st.none()),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("on_disk", [False, True])
@given(window=st.sampled_from(WINDOWS[:4]), prefetch=st.sampled_from([0, 3]), actions=_actions)
@settings(max_examples=examples(60), deadline=None)
def test_no_row_is_drawn_twice_in_a_pass_with_insertions_copies_and_reloads(
    tmp_path_factory: Any, on_disk: bool, window: Any, prefetch: int, actions: Any
) -> None:
    directory = tmp_path_factory.mktemp("passes") / "storage" if on_disk else None
    given: dict[str, Any] = {"sequences": window, "prefetch": prefetch, "directory": directory, "commit_every": 3}
    storage = made("passes", size=12, **given)
    model, stream = Episodic(Model(12), 2), Stream(2, "vector", False, np.random.default_rng(0))
    seed_of_pass, newest = None, -1
    seen: set[int] = set()
    left: set[int] = set()
    for number, (name, argument) in enumerate([("insert", 8), *actions, ("draw", 9)]):
        if name == "insert":
            for _ in range(argument):
                sample = stream.step()
                storage.insert_transition(sample)
                model.insert(sample)
        elif name == "draw":
            for batch in storage.generate_batches(argument, 1):
                possible = set(may_be_drawn(model, window))
                row = row_of(batch[INDICES].item(), possible, 2)
                assert row in possible
                # While others are whole, a running episode may not be drawn, and a pass may end without it.
                left &= possible
                if (seed := storage.extra_state()["progress"][0]) != seed_of_pass:
                    assert not left, "not drawn in the previous pass"
                    seed_of_pass, seen, left, newest = seed, set(), possible, max(possible)
                assert row not in seen
                assert row <= newest, "inserted during the pass"
                seen.add(row)
                left.discard(row)
        elif name == "copy":
            storage = copy.deepcopy(storage) if directory is None else storage
        elif name == "seed":
            storage.seed(number)
        elif directory is None:
            state, storage = through_a_file(storage.state_dict()), made("passes", size=12, **given)
            storage.load_state_dict(state)
        else:
            storage.close()
            storage = made("passes", size=12, **given)
            storage.seed(number)
    storage.close()


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_a_restored_storage_continues_its_pass(kind: str, prefetch: int, tmp_path: Path) -> None:
    on_disk: dict[str, Any] = {} if kind == "memory" else {"directory": tmp_path / "kept"}
    storage = made("passes", prefetch=prefetch, **on_disk)
    fill(storage)
    batches = storage.generate_batches(10, 9)
    before = [next(batches)[INDICES][:, 0].tolist() for _ in range(2)]
    state = through_a_file(storage.state_dict())
    following = list(storage.generate_batches(8, 9))
    storage.close()
    again = made("passes", prefetch=prefetch, **on_disk)
    again.load_state_dict(state)
    assert all(equal(one, two) for one, two in zip(again.generate_batches(8, 9), following, strict=True))
    drawn = flat(before) + flat(batch[INDICES][:, 0].tolist() for batch in following)
    assert sorted(drawn[:60]) == list(range(80, 140))
    again.close()


def test_passes_work_with_hindsight_and_n_steps() -> None:
    storage = made("passes", HERBuffer, her_function=unchanged, n_step=3)
    fill(storage)
    assert sorted(flat(rows(storage, 6, 10))) == list(range(80, 140))


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (ReplayBuffer, {"draws": "once"}, "draws must be one of 'with replacement', 'without replacement', 'passes'"),
        (PERBuffer, {"draws": "passes", "alpha": 0.5}, "alpha must be 0 with draws='passes', got 0.5"),
        (PERBuffer, {"draws": "without replacement", "alpha": LinearSchedule(0.0, 0.5)}, "alpha must be 0 with draws="),
        (EREBuffer, {"draws": "passes", "eta": 0.99}, "eta must be 1 and adapt_eta False with draws='passes', got"),
    ],
)
def test_hyper_parameters_that_need_replacement_are_refused_when_a_factory_is_made(
    kind: Any, given: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        kind.create_factory(size=10, **given)


def test_hyper_parameters_that_need_replacement_are_refused_on_update() -> None:
    storage = made("passes", EREBuffer)
    for name, value in (("alpha", 0.5), ("eta", 0.5), ("draws", "with replacement")):
        with pytest.raises(ValueError, match=r"draws='passes'|draws is fixed"):
            storage.update_storage_parameter(name, value)
    assert (storage.alpha, storage.eta, storage.draws) == (0.0, 1.0, "passes")
    with pytest.raises(TypeError, match="unknown hyper-parameter 'draws'"):
        PersistentEpisodicBuffer.create_factory(size=10, directory="unused", draws="passes")


@pytest.mark.parametrize(
    "progress", [[0, 0, 2**50, 0], [-1, 80, 90, 0], [0, 80, 90, 11], [0, 80, 90], "pass", [0.0] * 4]
)
def test_a_state_with_an_invalid_progress_of_its_pass_is_refused(progress: Any) -> None:
    storage = made("passes")
    fill(storage)
    state = storage.state_dict() | {"progress": progress}
    with pytest.raises(DamageError, match="does not match a pass over the stored transitions"):
        storage.load_state_dict(state)
