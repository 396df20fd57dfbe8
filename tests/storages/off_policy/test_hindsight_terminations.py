"""Hindsight with infos and recomputed terminations equals a slow computation from the stored steps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storages import Episodes, HERBuffer, SampleError, Sequences
from storages.transition import (
    ACT,
    DISCOUNT,
    DONE,
    DONE2,
    EPISODE,
    INDICES,
    INFO,
    MASK,
    OBS,
    OBS2,
    REW,
    RHS,
    RHS2,
    TAKEN2,
    TRUNC2,
    WINDOW,
)
from tests.support.comparison import assert_equal
from tests.support.model import through_a_file
from tests.support.profiles import examples

# Their rewards are random numbers, not those of a reward function.
pytestmark = pytest.mark.filterwarnings("ignore:.*but compute_reward gives:UserWarning")


GAMMA = 0.9
ALGORITHM = SimpleNamespace(gamma=GAMMA)
BIG = 1_000
"""Desired goals of the streams are at least this large, so that relabelled rows can be recognised."""


def reward(achieved: Any, desired: Any, info: Any) -> Any:
    """1 if the goal is near, else 0, minus the cost of the step, which the environments report in their info."""
    return (np.abs(achieved - desired)[:, 0] <= 2) - info["cost"][:, 0]


def terminated(achieved: Any, desired: Any, info: Any) -> Any:
    return (np.abs(achieved - desired)[:, 0] <= 1) & info["may_end"][:, 0]


def as_function(obs: Any, rhs: Any, obs2: Any, rhs2: Any, rew: Any, first: Any, final: Any, *, info: Any) -> Any:
    """The same rewards and terminations, as a ``her_function``."""
    goal = final["achieved_goal"]
    arguments = obs2["achieved_goal"], goal, info
    seen, followed = obs | {"desired_goal": goal}, obs2 | {"desired_goal": goal}
    return seen, rhs, followed, rhs2, reward(*arguments)[:, None], terminated(*arguments)[:, None]


class Stream:
    """Steps of environments on a line; the action of each step is its number."""

    def __init__(self, num_envs: int, generator: np.random.Generator) -> None:
        self.num_envs, self._generator, self._count = num_envs, generator, 0
        self._begin(np.ones(num_envs, bool), np.zeros((num_envs, 3)))

    def _begin(self, where: Any, at: Any) -> None:
        new = self._generator.integers(0, 8, (self.num_envs, 1))
        goal = BIG + self._generator.integers(0, 5, (self.num_envs, 1))
        self._at = np.where(where[:, None], np.hstack([new, goal, np.ones_like(new)]), at)

    def step(self) -> dict[str, Any]:
        draw, before = self._generator, self._at
        after = before.copy()
        after[:, 0] += draw.integers(-1, 3, self.num_envs)
        after[:, 2] = 0
        ends = draw.random((2, self.num_envs, 1)) < 0.12
        self._begin(ends.any((0, 2)), after)
        self._count += 1
        return {
            OBS: self._seen(before),
            DONE: before[:, 2:] == 1,
            ACT: np.full((self.num_envs, 1), self._count - 1),
            REW: np.full((self.num_envs, 1), -5.0, np.float32),
            OBS2: self._seen(after),
            DONE2: ends[0],
            TRUNC2: ends[1] & ~ends[0],
            INFO: {
                "cost": draw.integers(0, 3, (self.num_envs, 1)).astype(np.float32),
                "may_end": draw.random((self.num_envs, 1)) < 0.7,
            },
        }

    @staticmethod
    def _seen(at: Any) -> Any:
        return {"achieved_goal": at[:, :1].astype(np.float32), "desired_goal": at[:, 1:2].astype(np.float32)}


def made(num_envs: int, kind: str, **given: Any) -> HERBuffer:
    hindsight = {"her_function": as_function} if kind == "function" else {"her_terminated": terminated}
    envs = SimpleNamespace(num_envs=num_envs, compute_reward=reward)
    factory = HERBuffer.create_factory(size=20, info_keys=["cost", "may_end"], her_ratio=0.6, **hindsight, **given)
    storage = factory("cpu", None, ALGORITHM, envs)
    storage.seed(0)
    return storage


def expected_row(steps: dict[int, Any], first: int, env: int, n_step: int, goal: float | None) -> dict[str, Any]:
    """The expected row that begins with the step ``first``, relabelled with ``goal`` if that is given."""
    total, number, factor = 0.0, first, 1.0
    while True:
        step = steps[number]
        one = lambda key, step=step: step[key][env : env + 1]  # noqa: E731
        info = {name: value[env : env + 1] for name, value in step[INFO].items()}
        over, cut = bool(one(DONE2)[0, 0]), bool(one(TRUNC2)[0, 0])
        ended = over or cut
        paid = float(one(REW)[0, 0])
        if goal is not None:
            pair = step[OBS2]["achieved_goal"][env : env + 1], np.array([[goal]]), info
            paid, anew = float(reward(*pair)[0]), bool(terminated(*pair)[0])
            cut, over = cut or (over and not anew), anew
        total += factor * paid
        factor *= GAMMA
        if over or ended or number - first + 1 == n_step or number + 1 not in steps:
            followed = float(step[OBS2]["achieved_goal"][env, 0])
            return {
                REW: total,
                DISCOUNT: 0.0 if over else factor,
                DONE2: float(over),
                TRUNC2: float(cut),
                OBS2: followed,
                WINDOW: number - first + 1,
            }
        number += 1


def rows_of(batch: Any, num_envs: int) -> list[tuple[Any, int]]:
    """The positions of all unmasked rows, and their environments."""
    envs = (batch[INDICES][:, 0] % num_envs).tolist()
    if EPISODE in batch:
        return [((row,), envs[of]) for row, of in enumerate(batch[EPISODE][:, 0].tolist())]
    if MASK in batch:
        real = batch[MASK][..., 0].nonzero().tolist()
        return [((t, b), envs[b]) for t, b in real]
    return [((row,), env) for row, env in enumerate(envs)]


def assert_rows(steps: dict[int, Any], batch: Any, num_envs: int, n_step: int) -> int:
    """Compares every row, and returns the number of rows that terminate in another way than before relabelling."""
    changed = 0
    for position, env in rows_of(batch, num_envs):
        number = int(batch[ACT][position][0])
        desired = float(batch[OBS]["desired_goal"][position][0])
        assert float(batch[OBS2]["desired_goal"][position][0]) == desired
        row = expected_row(steps, number, env, n_step, None if desired >= BIG else desired)
        for key in (REW, DISCOUNT, DONE2, TRUNC2):
            assert float(batch[key][position][0]) == pytest.approx(row[key], rel=1e-5), (key, position)
        assert float(batch[OBS2]["achieved_goal"][position][0]) == row[OBS2]
        if WINDOW in batch:
            assert int(batch[WINDOW][position][0]) == row[WINDOW]
        if TAKEN2 in batch and row[DONE2]:
            assert float(batch[TAKEN2][position][0]) == 0
        assert float(batch[INFO]["cost"][position][0]) == float(steps[number][INFO]["cost"][env, 0])
        changed += row[DONE2] != expected_row(steps, number, env, n_step, None)[DONE2]
    if EPISODE in batch:
        goals, episodes = batch[OBS]["desired_goal"][:, 0], batch[EPISODE][:, 0]
        assert all(len(goals[episodes == one].unique()) == 1 for one in episodes.unique())
    return changed


@settings(max_examples=examples(60), deadline=None)
@given(
    num_envs=st.integers(1, 3),
    n_step=st.sampled_from([1, 3]),
    kind=st.sampled_from(["function", "goals"]),
    strategy=st.sampled_from(["future", "final", "episode", "random"]),
    sequences=st.sampled_from([None, Sequences(4), Episodes(whole=False), Episodes(packed=True, whole=False)]),
    priorities=st.sampled_from([{}, {"alpha": 0.5, "default_error": 1.0}]),
    prefetch=st.sampled_from([0, 1]),
    next_actions=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_relabelled_rows_equal_those_computed_from_the_stored_steps(
    num_envs: int,
    n_step: int,
    kind: str,
    strategy: str,
    sequences: Any,
    priorities: Any,
    prefetch: int,
    next_actions: bool,
    seed: int,
) -> None:
    given = {"n_step": n_step, "strategy": strategy, "sequences": sequences, "prefetch": prefetch, **priorities}
    storage, stream = made(num_envs, kind, **given), Stream(num_envs, np.random.default_rng(seed))
    if next_actions:
        storage.include_next_actions()
    steps: dict[int, Any] = {}
    for number in range(28):
        steps[number] = stream.step()
        storage.insert_transition(steps[number])
        steps.pop(number - 20, None)
    again = made(num_envs, kind, **given)
    if next_actions:
        again.include_next_actions()
    again.load_state_dict(through_a_file(storage.state_dict()))
    batches = list(storage.generate_batches(2, 12))
    for batch in batches:
        assert_rows(steps, batch, num_envs, n_step)
    assert_equal(list(again.generate_batches(2, 12)), batches)


def test_relabelling_changes_terminations() -> None:
    storage, stream = made(2, "goals", n_step=3), Stream(2, np.random.default_rng(0))
    steps = {number: stream.step() for number in range(20)}
    for step in steps.values():
        storage.insert_transition(step)
    assert sum(assert_rows(steps, batch, 2, 3) for batch in storage.generate_batches(8, 64)) > 50


def test_infos_are_restored_from_a_directory(tmp_path: Path) -> None:
    stream, steps = Stream(2, np.random.default_rng(0)), {}
    storage = made(2, "goals", n_step=3, directory=tmp_path / "replay")
    for number in range(15):
        steps[number] = stream.step()
        storage.insert_transition(steps[number])
    storage.close()
    again = made(2, "goals", n_step=3, directory=tmp_path / "replay")
    assert_rows(steps, next(again.generate_batches(1, 64)), 2, 3)
    again.close()


def test_missing_and_unexpected_infos_raise_errors_that_name_them() -> None:
    step = Stream(1, np.random.default_rng(0)).step()
    with pytest.raises(SampleError, match="Info must be a dict of cost, may_end, which info_keys names, got cost"):
        made(1, "goals").insert_transition(step | {INFO: {"cost": step[INFO]["cost"]}})
    envs = SimpleNamespace(num_envs=1, compute_reward=reward)
    with pytest.raises(SampleError, match="Info must be a dict of nothing, which info_keys names, got cost, may_end"):
        HERBuffer.create_factory(size=5)("cpu", None, ALGORITHM, envs).insert_transition(step)
    storage = HERBuffer.create_factory(size=5, info_keys=["may_end"], her_ratio=1.0)("cpu", None, ALGORITHM, envs)
    with pytest.raises(
        ValueError, match="compute_reward reads 'cost' from info, which has may_end: add it to info_keys"
    ):
        storage.insert_transition(step | {INFO: {"may_end": step[INFO]["may_end"]}})


def test_invalid_uses_of_her_terminated_are_refused() -> None:
    with pytest.raises(ValueError, match="let her_function return terminations, as its sixth value"):
        HERBuffer.create_factory(size=5, her_function=as_function, her_terminated=terminated)
    with pytest.raises(ValueError, match="keep_on_device must be False with her_terminated"):
        HERBuffer.create_factory(size=5, her_terminated=terminated, keep_on_device=True)
    storage = made(1, "goals")
    storage.update_storage_parameter("her_ratio", 1.0)
    stream = Stream(1, np.random.default_rng(0))
    for _ in range(5):
        storage.insert_transition(stream.step())
    storage.update_storage_parameter("her_terminated", lambda achieved, desired, info: True)
    with pytest.raises(ValueError, match="her_terminated must return a termination for each of 4 pairs of goals"):
        next(storage.generate_batches(1, 4))
    storage.update_storage_parameter("her_terminated", None)
    next(storage.generate_batches(1, 4))


@pytest.mark.parametrize("sequences", [None, Sequences(4, burn_in=2), Episodes(), Episodes(packed=True)])
def test_windows_that_terminations_shorten_need_no_recurrent_state_in_batches(sequences: Any) -> None:
    storage, stream = made(2, "goals", n_step=3, sequences=sequences), Stream(2, np.random.default_rng(0))
    for number in range(30):
        states = {RHS: np.full((2, 1), number, np.float32), RHS2: np.full((2, 1), number + 1, np.float32)}
        storage.insert_transition(stream.step() | states)
    shortened = 0
    for batch in storage.generate_batches(20, 8):
        goals = batch[OBS]["desired_goal"] < BIG
        shortened += int((goals & (batch[DONE2] == 1)).sum())
        assert RHS in batch
    assert shortened > 0
