"""N-step windows and sequences: their steps, discounted sums of rewards, and errors of sequences.

Rows are those of :mod:`storages.core.kernels.gather`: the next step of an environment is ``num_envs`` rows further,
modulo the number of rows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel
from storages.core.kernels.memory import address_of, prefetch_at

_MOST_PREFETCHED_STEPS = 8
_WINDOWS_AHEAD = 16
"""Windows prefetched before one is followed; at least as many as a processor's outstanding cache misses."""
_LARGEST, _CACHE_LINE_BYTES = 1024, 64


@kernel
def follow(
    first: NDArray[np.int64],
    longest: int,
    end: int,
    num_envs: int,
    final_numbers: NDArray[np.int32],
    gamma: float,
    rewards: NDArray[Any],
    last: NDArray[np.int64],
    discounts: NDArray[np.float32],
    sums: NDArray[np.floating],
) -> None:
    """Follow each window for ``longest`` steps, at most to the end of the episode or the newest step.

    Args:
        first: (B,) int64, numbers of the windows' first transitions.
        longest: maximum number of steps in a window.
        end: number of the next transition to be inserted.
        num_envs: environments in a step.
        final_numbers: (rows, 1) int32, negative where the next row of the environment continues a row.
        gamma: per-step discount factor.
        rewards: (rows, 1), the reward in each row.
        last: (B,) int64, written: numbers of the windows' last transitions.
        discounts: (B, 1) float32, written: ``gamma**length``.
        sums: (B, 1), written: ``sum_i gamma**i * r_i`` over each window, accumulated in float64.
    """
    num_rows, windows = final_numbers.shape[0], first.shape[0]
    rows = np.empty(windows, np.int64)
    address, record_bytes = address_of(final_numbers), final_numbers.strides[0]
    for ahead in range(windows + _WINDOWS_AHEAD):
        if ahead < windows:
            # An unsigned division is quicker than a signed one.
            rows[ahead] = np.int64(np.uint64(first[ahead]) % np.uint64(num_rows))
            _prefetch_window(address, record_bytes, rows[ahead], longest, num_envs, num_rows)
        i = ahead - _WINDOWS_AHEAD
        if i < 0:
            continue
        row = rows[i]
        # No more steps than are stored.
        most = longest if first[i] + (longest - 1) * num_envs < end else (end - 1 - first[i]) // num_envs + 1
        length, discount, total = 1, gamma, 1.0 * rewards[row, 0]
        while length < most and final_numbers[row, 0] < 0:
            row = _following(row, num_envs, num_rows)
            length += 1
            total += discount * rewards[row, 0]
            discount *= gamma
        last[i], discounts[i, 0], sums[i, 0] = first[i] + (length - 1) * num_envs, discount, total


@kernel
def sum_windows(
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    num_envs: int,
    gamma: float,
    rewards: NDArray[Any],
    sums: NDArray[np.floating],
) -> None:
    """Sum several rewards over each window, as :func:`follow` sums one.

    Args:
        first: (B,) int64, numbers of the windows' first transitions.
        last: (B,) int64, numbers of their last transitions.
        num_envs: environments in a step.
        gamma: per-step discount factor.
        rewards: (rows, m), the rewards in each row.
        sums: (B, m), written: ``sum_i gamma**i * r_i`` over each window, accumulated in float64.
    """
    for i in range(first.shape[0]):
        first_row = first[i] % rewards.shape[0]
        for k in range(rewards.shape[1]):
            row, discount, total = first_row, gamma, 1.0 * rewards[first_row, k]
            for _ in range((last[i] - first[i]) // num_envs):
                row = _following(row, num_envs, rewards.shape[0])
                total += discount * rewards[row, k]
                discount *= gamma
            sums[i, k] = total


@kernel
def next_steps(
    last: NDArray[np.int64],
    end: int,
    num_envs: int,
    final_numbers: NDArray[np.int32],
    following: NDArray[np.int64],
    continued: NDArray[np.float32],
) -> None:
    """Find the transition that continues each one.

    Args:
        last: (B,) int64, numbers of transitions.
        end: number of the next transition to be inserted.
        num_envs: environments in a step.
        final_numbers: (rows, 1) int32, negative where the next row of the environment continues a row.
        following: (B,) int64, written: numbers of the continuing transitions, their own where there is none.
        continued: (B, 1), written: 1 where there is one.
    """
    for i in range(last.shape[0]):
        goes_on = last[i] + num_envs < end and final_numbers[last[i] % final_numbers.shape[0], 0] < 0
        following[i] = last[i] + num_envs if goes_on else last[i]
        continued[i, 0] = 1.0 if goes_on else 0.0


@inlined_kernel
def _discount(power: float, terminated: float) -> float:
    """Return the DISCOUNT of a window, by which the value of the observation after it is multiplied.

    It is ``gamma**k`` for a window of ``k`` steps, and 0 where the environment terminated, but not where an episode was
    truncated. Storages compute all fields DISCOUNT of their batches by it.
    """
    return power if terminated == 0 else 0.0


@kernel
def step_discounts(terminated: NDArray[np.float32], gamma: float) -> NDArray[np.float32]:
    """Return the discounts (B, 1) of windows of one step, with DONE2 ``terminated`` (B, 1)."""
    discounts = np.empty_like(terminated)
    for i in range(terminated.shape[0]):
        discounts[i, 0] = _discount(gamma, terminated[i, 0])
    return discounts


@kernel
def cut_discounts(terminated: NDArray[np.float32], discounts: NDArray[np.float32]) -> None:
    """Turn powers ``gamma**k`` (B, 1) into the discounts of windows with DONE2 ``terminated`` (B, 1)."""
    for i in range(terminated.shape[0]):
        discounts[i, 0] = _discount(discounts[i, 0], terminated[i, 0])


@kernel
def lay_out(
    first: NDArray[np.int64],
    before: int,
    begin: int,
    end: int,
    num_envs: int,
    across_episodes: bool,
    final_numbers: NDArray[np.int32],
    transitions: NDArray[np.int64],
    real: NDArray[np.float32],
    resets: NDArray[np.float32],
) -> None:
    """Find the steps of sequences, including ``before`` burn-in steps.

    Where there is no further step (the episode ended or was interrupted, or no newer or older step is stored), the last
    real one is repeated as padding.

    Args:
        first: (B,) int64, numbers of the sequences' first transitions.
        before: number of steps before them.
        begin: number of the oldest live transition.
        end: number after the newest.
        num_envs: environments in a step.
        across_episodes: whether a sequence continues into the environment's next episode.
        final_numbers: (rows, 1) int32, negative where the next row of the environment continues a row.
        transitions: (steps, B) int64, written.
        real: (steps, B), written: 1 where a step is not padding.
        resets: (steps, B), written: 1 where a step does not continue the one before it: the recurrent state is reset.
    """
    rows = final_numbers.shape[0]
    for b in range(first.shape[0]):
        number, goes_on = first[b], True
        for t in range(before, transitions.shape[0]):
            resets[t, b] = 0.0
            if t > before and goes_on:
                ended = final_numbers[number % rows, 0] >= 0
                goes_on = number + num_envs < end and (across_episodes or not ended)
                if goes_on:
                    number += num_envs
                    resets[t, b] = 1.0 if ended else 0.0
            transitions[t, b] = number
            real[t, b] = 1.0 if goes_on else 0.0
        number, goes_on = first[b], True
        for t in range(before - 1, -1, -1):
            if goes_on:
                earlier = number - num_envs
                goes_on = earlier >= begin and final_numbers[earlier % rows, 0] < 0
                if goes_on:
                    number = earlier
            transitions[t, b] = number
            real[t, b] = 1.0 if goes_on else 0.0
            resets[t, b] = 0.0 if goes_on else 1.0


@kernel
def sequence_errors(
    errors: NDArray[np.floating], of: NDArray[np.int64], num_sequences: int, eta: float
) -> NDArray[np.float32]:
    """Return (B,): ``eta * max + (1 - eta) * mean`` of the magnitudes of errors (N,) of the sequences ``of`` (N,).

    Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2, 2019), section 2.3.

    Raises:
        IndexError: an index in ``of`` is not that of a sequence.
    """
    largest, totals = np.zeros(num_sequences), np.zeros(num_sequences)
    steps = np.zeros(num_sequences, np.int64)
    for i in range(errors.shape[0]):
        if not 0 <= of[i] < num_sequences:
            raise IndexError("the batch has more episodes in EPISODE than in INDICES; no priority was changed")
        magnitude = abs(float(errors[i]))
        largest[of[i]] = max(largest[of[i]], magnitude)
        totals[of[i]] += magnitude
        steps[of[i]] += 1
    out = np.empty(num_sequences, np.float32)
    for b in range(num_sequences):
        out[b] = eta * largest[b] + (1 - eta) * (totals[b] / max(1, steps[b]))
    return out


@inlined_kernel
def _prefetch_window(address: int, record_bytes: int, row: int, steps: int, num_envs: int, num_rows: int) -> None:
    """Prefetch the entry numbers of a window's rows, and the whole records of its first row and of the row after it.

    Args:
        address: of the entry number of row 0, the last bytes of its record.
        record_bytes: bytes from row to row.
        row: first row of the window.
        steps: maximum number of steps in the window.
        num_envs: environments in a step.
        num_rows: rows of the ring.
    """
    whole = min(record_bytes, _LARGEST)
    for step in range(min(steps, _MOST_PREFETCHED_STEPS) + 1):
        end = address + row * record_bytes
        if step == 0 or step == steps:
            for offset in range(0, whole, _CACHE_LINE_BYTES):
                prefetch_at(end - offset)
        else:
            prefetch_at(end)
        row = _following(row, num_envs, num_rows)


@inlined_kernel
def _following(row: int, num_envs: int, rows: int) -> int:
    following = row + num_envs
    return following if following < rows else following - rows
