"""The expected batches of transitions, sequences and episodes, row by row, from the reference model."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from storages import Episodes, Sequences
from storages.transition import (
    ACT,
    ACT2,
    BATCH_SIZES,
    BURN_IN,
    DISCOUNT,
    DONE,
    DONE2,
    EPISODE,
    FLAGS,
    INDICES,
    LEAD_OUT,
    MASK,
    OBS,
    OBS2,
    REW,
    REWC,
    RHS,
    RHS2,
    RTG,
    SORTED_INDICES,
    TAKEN2,
    TRUNC2,
    UNSORTED_INDICES,
    WINDOW,
)
from tests.support.model import GAMMA, Model


def row_of(number: int, rows: Iterable[int], num_envs: int) -> int:
    """The row whose sequence begins at a transition: the newest one of its environment that is not after it."""
    return max((row for row in rows if row % num_envs == number % num_envs and row <= number), default=number)


@dataclass
class Episodic:
    """The reference model, and the steps of all episodes that were inserted, by environment."""

    model: Model
    num_envs: int
    runs: list[list[list[int]]] = field(default_factory=list)

    def insert(self, sample: Any) -> None:
        self.runs = self.runs or [[] for _ in range(self.num_envs)]
        step = self.model.next_step
        # Read before the oldest step is removed: with a size of 1, the new step may continue it.
        before = self.model.steps.get(step - 1)
        self.model.insert(sample)
        for env, runs in enumerate(self.runs):
            if before is not None and continues(before, self.model.steps[step], env):
                runs[-1].append(step)
            else:
                runs.append([step])

    def reset(self, next_step: int) -> None:
        self.model.reset(next_step)
        self.runs = []

    def drawn(self, episodes: Episodes) -> dict[int, list[int]]:
        """The steps of each episode or piece that can be drawn, by the number of their first transition."""
        found, running = {}, {}
        for env, runs in enumerate(self.runs):
            for run in runs:
                longest = episodes.longest or len(run)
                for begin in range(0, len(run), longest):
                    piece = run[begin : begin + longest]
                    live = [step for step in piece if step in self.model.steps]
                    if not live:
                        continue
                    number = live[0] * self.num_envs + env
                    if not episodes.whole or self._is_whole(piece, env, begin, episodes):
                        found[number] = live
                    if live[-1] == self.model.next_step - 1:
                        running[number] = live
        return found or running

    def _is_whole(self, piece: list[int], env: int, begin: int, episodes: Episodes) -> bool:
        steps = self.model.steps
        if piece[0] not in steps or not (begin > 0 or steps[piece[0]][DONE][env, 0]):
            return False
        last = steps[piece[-1]]
        return bool(len(piece) == episodes.longest or last[DONE2][env, 0] or last[TRUNC2][env, 0])


def row(value: Any, *position: int) -> Any:
    if isinstance(value, dict):
        return {name: row(part, *position) for name, part in value.items()}
    return value[position]


def arrays(value: Any) -> Any:
    """A batch with arrays instead of tensors, because their rows are read much faster."""
    if isinstance(value, dict):
        return {name: arrays(part) for name, part in value.items()}
    return value.numpy() if isinstance(value, torch.Tensor) else value


def same(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[name], two[name]) for name in one)
    return np.asarray(one).tobytes() == np.asarray(two).tobytes()


def goes_on(model: Model, step: int, env: int) -> bool:
    """Whether the next step exists and continues this one in the same episode."""
    if step not in model.steps or step + 1 not in model.steps:
        return False
    return continues(model.steps[step], model.steps[step + 1], env)


def continues(now: Any, following: Any, env: int) -> bool:
    ended = now[DONE2][env, 0] or now[TRUNC2][env, 0] or following[DONE][env, 0]
    return not ended and all(
        same(row(now[after], env), row(following[before], env))
        for before, after in ((OBS, OBS2), (RHS, RHS2))
        if before in now
    )


class Expected:
    """The expected steps of a sequence."""

    def __init__(self, model: Model, start: int, env: int, sequences: Sequences, lead_out: int) -> None:
        self.steps, self.real, self.anew = [start], [True], [False]
        for _ in range(sequences.length + lead_out - 1):
            last = self.steps[-1]
            on = goes_on(model, last, env)
            more = self.real[-1] and last + 1 in model.steps and (on or sequences.across_episodes)
            self.steps.append(last + 1 if more else last)
            self.real.append(more)
            self.anew.append(more and not on)
        for _ in range(sequences.burn_in):
            first = self.steps[0]
            more = self.real[0] and goes_on(model, first - 1, env)
            self.steps.insert(0, first - 1 if more else first)
            self.real.insert(0, more)
            self.anew.insert(0, not more)


def assert_windows(episodic: Episodic, batch: Any, kind: Sequences | Episodes | None, n_step: int) -> None:
    """Assert that every row of a batch is as expected by the model."""
    batch = arrays(batch)
    if kind is None:
        assert_transitions(episodic.model, batch, episodic.num_envs, n_step)
    elif isinstance(kind, Sequences):
        assert_sequences(episodic.model, batch, episodic.num_envs, kind, n_step)
    elif kind.packed:
        assert_packed_episodes(episodic, batch, kind, n_step)
    else:
        assert_padded_episodes(episodic, batch, kind, n_step)


def assert_transitions(model: Model, batch: Any, num_envs: int, n_step: int) -> None:
    for position, number in enumerate(batch[INDICES][:, 0].tolist()):
        step, env = divmod(number, num_envs)
        assert step in model.steps
        assert_step(model, batch, (position,), step, env, n_step)


def assert_sequences(model: Model, batch: Any, num_envs: int, sequences: Sequences, n_step: int) -> None:
    burn_in, length = sequences.burn_in, sequences.length
    for b, number in enumerate(batch[INDICES][:, 0].tolist()):
        start, env = divmod(number, num_envs)
        assert start in model.steps
        begins_episode = not sequences.across_episodes and not goes_on(model, start - 1, env)
        assert start % sequences.stride == 0 or begins_episode or len(model.steps) < length + sequences.stride
        newest = max(model.steps)
        assert start + length - 1 <= newest or start == min(model.steps)
        expected = Expected(model, start, env, sequences, min(n_step, model.size) - 1)
        for t, (step, real, anew) in enumerate(zip(expected.steps, expected.real, expected.anew, strict=True)):
            sample = model.steps[step]
            done = np.maximum(sample[DONE][env].astype(np.float32), np.float32(anew))
            if t < burn_in or t >= burn_in + length:
                part, position = (batch[BURN_IN], t) if t < burn_in else (batch[LEAD_OUT], t - burn_in - length)
                assert same(row(part[OBS], position, b), row(sample[OBS], env))
                assert same(row(part[DONE], position, b), done)
                if t < burn_in:
                    assert part[MASK][position, b].item() == real
                    assert same(row(part[ACT], position, b), row(sample[ACT], env))
                continue
            position = t - burn_in
            assert batch[MASK][position, b].item() == real
            assert same(row(batch[DONE], position, b), done)
            assert_step(model, batch, (position, b), step, env, n_step)
        if RHS in model.steps[start]:
            assert same(row(batch[RHS], b), model.steps[start][RHS][env])
            if burn_in:
                assert same(row(batch[BURN_IN][RHS], b), model.steps[expected.steps[0]][RHS][env])


def pieces(episodic: Episodic, batch: Any, episodes: Episodes, n_step: int) -> list[list[int]]:
    """The steps of each row; for an episode with more than ``max_steps``, the matching part of it."""
    drawn, most = episodic.drawn(episodes), episodes.max_steps
    numbers = batch[INDICES][:, 0].tolist()
    assert set(numbers) <= set(drawn)
    found = []
    for b, number in enumerate(numbers):
        steps = drawn[number]
        count = min(len(steps), most or len(steps))
        places: list[tuple[int, ...]] = [(t, b) for t in range(count)]
        if EPISODE in batch:
            places = [(place,) for place in np.flatnonzero(batch[EPISODE][:, 0] == b).tolist()]
        candidates = [steps[begin : begin + count] for begin in range(len(steps) - count + 1)]
        env = number % episodic.num_envs
        found.append(next(one for one in candidates if _are_at(episodic, batch, places, one, env, n_step)))
    return found


def _are_at(
    episodic: Episodic, batch: Any, places: list[tuple[int, ...]], steps: list[int], env: int, n_step: int
) -> bool:
    try:
        for place, step in zip(places, steps, strict=True):
            assert_step(episodic.model, batch, place, step, env, n_step)
    except AssertionError:
        return False
    return True


def assert_padded_episodes(episodic: Episodic, batch: Any, episodes: Episodes, n_step: int) -> None:
    model, rows = episodic.model, pieces(episodic, batch, episodes, n_step)
    numbers = batch[INDICES][:, 0].tolist()
    length = episodes.longest or episodes.max_steps or max(map(len, rows))
    lead_out = min(n_step, model.size) - 1 if episodes.longest or episodes.max_steps else 0
    assert batch[MASK].shape == (length, len(numbers), 1)
    assert (LEAD_OUT in batch) == (lead_out > 0)
    for b, number in enumerate(numbers):
        env = number % episodic.num_envs
        assert batch[MASK][:, b, 0].tolist() == [t < len(rows[b]) for t in range(length)]
        expected = Expected(model, rows[b][0], env, Sequences(length), lead_out)
        assert expected.steps[: len(rows[b])] == rows[b]
        for t, step in enumerate(expected.steps):
            part, position = (batch, t) if t < length else (batch[LEAD_OUT], t - length)
            assert same(row(part[OBS], position, b), row(model.steps[step][OBS], env))
            assert same(row(part[DONE], position, b), model.steps[step][DONE][env].astype(np.float32))
            if t < len(rows[b]):
                assert_step(model, batch, (t, b), step, env, n_step)
        if RHS in model.steps[rows[b][0]]:
            assert same(row(batch[RHS], b), model.steps[rows[b][0]][RHS][env])


def assert_packed_episodes(episodic: Episodic, batch: Any, episodes: Episodes, n_step: int) -> None:
    model, steps_of = episodic.model, pieces(episodic, batch, episodes, n_step)
    numbers = batch[INDICES][:, 0].tolist()
    order = batch[SORTED_INDICES].tolist()
    lengths = [len(steps_of[b]) for b in order]
    assert lengths == sorted(lengths, reverse=True)
    assert [order[place] for place in batch[UNSORTED_INDICES].tolist()] == list(range(len(numbers)))
    sizes = [sum(length > t for length in lengths) for t in range(lengths[0])]
    assert batch[BATCH_SIZES].tolist() == sizes
    assert MASK not in batch
    rows = [(t, order[place]) for t, size in enumerate(sizes) for place in range(size)]
    assert batch[REW].shape == (len(rows), 1)
    for position, (t, b) in enumerate(rows):
        step, env = steps_of[b][t], numbers[b] % episodic.num_envs
        assert batch[EPISODE][position].tolist() == [b]
        assert same(row(batch[DONE], position), model.steps[step][DONE][env].astype(np.float32))
        assert_step(model, batch, (position,), step, env, n_step)
    for b, number in enumerate(numbers):
        first = model.steps[steps_of[b][0]]
        if RHS in first:
            assert same(row(batch[RHS], b), first[RHS][number % episodic.num_envs])


def return_to_go(model: Model, step: int, env: int) -> float:
    """The discounted rewards from a step to the end of its episode; NaN where it has not ended."""
    rest = [step]
    while goes_on(model, rest[-1], env):
        rest.append(rest[-1] + 1)
    last = model.steps[rest[-1]]
    if not (last[DONE2][env, 0] or last[TRUNC2][env, 0]):
        return math.nan
    return sum(GAMMA**i * float(model.steps[one][REW][env, 0]) for i, one in enumerate(rest))


def assert_step(model: Model, batch: Any, position: tuple[int, ...], step: int, env: int, n_step: int) -> None:
    """Assert that a row of a batch is as expected, except DONE and memories, which depend on the kind of batch."""
    window = [step]
    while len(window) < n_step and goes_on(model, window[-1], env):
        window.append(window[-1] + 1)
    first, last = model.steps[window[0]], model.steps[window[-1]]
    if WINDOW in batch:
        assert batch[WINDOW][position].item() == len(window)
        left_out = {DONE, RHS, RHS2}
        assert RHS2 not in batch
    else:
        left_out = set()
    for key in first:
        if key in left_out:
            continue
        if key == REW and n_step > 1:
            rewards = sum(GAMMA**i * float(model.steps[s][REW][env, 0]) for i, s in enumerate(window))
            assert math.isclose(batch[REW][position].item(), rewards, rel_tol=1e-5, abs_tol=1e-6)
            continue
        if key == REWC and n_step > 1:
            summed = sum(GAMMA**i * model.steps[s][REWC][env].astype(np.float64) for i, s in enumerate(window))
            np.testing.assert_allclose(row(batch[REWC], *position), summed, rtol=1e-5, atol=1e-6)
            continue
        value = row((last if key in (OBS2, RHS2, DONE2, TRUNC2) else first)[key], env)
        assert same(row(batch[key], *position), value.astype(np.float32) if key in FLAGS else value), key
    if ACT2 in batch:
        is_known = goes_on(model, window[-1], env)
        done_next = model.steps[window[-1] + 1] if is_known else last
        assert same(row(batch[ACT2], *position), row(done_next[ACT], env))
        assert batch[TAKEN2][position].item() == is_known
    if RTG in batch:
        expected = return_to_go(model, step, env)
        assert math.isclose(batch[RTG][position].item(), expected, rel_tol=1e-5, abs_tol=1e-6) or (
            math.isnan(batch[RTG][position].item()) and math.isnan(expected)
        )
    discount = 0.0 if last[DONE2][env, 0] else GAMMA ** len(window)
    assert math.isclose(batch[DISCOUNT][position].item(), discount, rel_tol=1e-6)
