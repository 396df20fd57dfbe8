"""Computation of priorities from TD errors, each in one pass instead of several array operations."""

import math

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel, parallel_kernel
from storages.core.kernels.memory import address_of, prefetch_at

SHIFT_OF_BUCKETS = 14
"""Low bits of an error, as float32, that the histogram of errors ignores."""
BUCKETS = 1 << (31 - SHIFT_OF_BUCKETS)
BUCKETS_OF_AN_OCTAVE = 1 << (23 - SHIFT_OF_BUCKETS)
"""Buckets from a power of two to the next."""
_EXACT, _SIGNIFICANT = 32, 8
"""Doubled ranks below 32 are exact; others are rounded to a mantissa below 8, three significant bits."""


@kernel
def store_errors(
    transitions: NDArray[np.int64],
    errors: NDArray[np.floating],
    begin: int,
    end: int,
    stored: NDArray[np.float32],
    rows: NDArray[np.int64],
    magnitudes: NDArray[np.float64],
) -> tuple[int, float]:
    """Store the magnitudes of errors of live transitions; nothing if an error is not finite as float32.

    Args:
        transitions: (B,) numbers.
        errors: (B,).
        begin: number of the oldest live transition.
        end: number after the newest.
        stored: (rows,), written: transition ``n`` in row ``n % rows``.
        rows: (B,), written: the rows of the live transitions.
        magnitudes: (B,), written: the magnitudes stored there.

    Returns:
        The number of live transitions and the largest magnitude; if an error is not finite, the position of the first
        such minus B, and 0.
    """
    count, live, largest = transitions.shape[0], 0, 0.0
    for i in range(count):
        if not math.isfinite(np.float32(errors[i])):
            return i - count, 0.0
        if begin <= transitions[i] < end:
            rows[live], magnitudes[live] = transitions[i] % stored.shape[0], np.float32(abs(errors[i]))
            prefetch_at(address_of(stored) + rows[live] * stored.itemsize)
            live += 1
    for i in range(live):
        stored[rows[i]] = magnitudes[i]
        largest = max(largest, magnitudes[i])
    return live, largest


@kernel
def effective_sample_size(weights: NDArray[np.float32]) -> float:
    """``(sum w)**2 / (B sum w**2)`` of weights (B, 1): 1 if all are equal, 1 / B if all but one are 0."""
    total, squares = 0.0, 0.0
    for i in range(weights.shape[0]):
        weight = np.float64(weights[i, 0])
        total += weight
        squares += weight * weight
    size: float = total * total / (squares * weights.shape[0])
    return size


@kernel
def mean_of(indices: NDArray[np.int64]) -> float:
    """Return the mean of transition numbers (B, 1)."""
    total = 0.0
    for i in range(indices.shape[0]):
        total += indices[i, 0]
    mean: float = total / indices.shape[0]
    return mean


@parallel_kernel
def move(
    leaves: NDArray[np.int64],
    to: NDArray[np.int32],
    bucket_of: NDArray[np.int32],
    links: NDArray[np.signedinteger],
    heads: NDArray[np.signedinteger],
    counts: NDArray[np.signedinteger],
    octaves: NDArray[np.signedinteger],
) -> None:
    """Move leaves (K,) to buckets (K,) of a histogram, -1 for none, in this order; see ``RankTree``."""
    for i in range(leaves.shape[0]):
        leaf, bucket = leaves[i], bucket_of[leaves[i]]
        if bucket == to[i]:
            continue
        if bucket >= 0:
            before, after = links[leaf, 0], links[leaf, 1]
            if before >= 0:
                links[before, 1] = after
            else:
                heads[bucket] = after
            if after >= 0:
                links[after, 0] = before
            counts[bucket] -= 1
            octaves[bucket // BUCKETS_OF_AN_OCTAVE] -= 1
        bucket = to[i]
        bucket_of[leaf] = bucket
        if bucket >= 0:
            head = heads[bucket]
            links[leaf, 0], links[leaf, 1] = -1, head
            if head >= 0:
                links[head, 0] = leaf
            heads[bucket] = leaf
            counts[bucket] += 1
            octaves[bucket // BUCKETS_OF_AN_OCTAVE] += 1


@parallel_kernel
def changed_ranks(
    links: NDArray[np.signedinteger],
    heads: NDArray[np.signedinteger],
    counts: NDArray[np.signedinteger],
    octaves: NDArray[np.signedinteger],
    ranks: NDArray[np.float32],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Update the rounded mean rank of each bucket; return the leaves whose rank has changed, and the ranks."""
    changed = np.empty(counts.shape[0], np.int32)
    num_changed, num_leaves, above = 0, 0, 0
    for octave in range(octaves.shape[0] - 1, -1, -1):
        if octaves[octave] == 0:
            continue
        first = octave * BUCKETS_OF_AN_OCTAVE
        for bucket in range(first + BUCKETS_OF_AN_OCTAVE - 1, first - 1, -1):
            count = counts[bucket]
            if count:
                rank = _rounded(2 * above + count + 1)
                above += count
                if ranks[bucket] != rank:
                    ranks[bucket] = rank
                    changed[num_changed] = bucket
                    num_changed += 1
                    num_leaves += count
    leaves, ranks_of_leaves = np.empty(num_leaves, np.int64), np.empty(num_leaves, np.float64)
    found = 0
    for i in range(num_changed):
        leaf = heads[changed[i]]
        while leaf >= 0:
            leaves[found], ranks_of_leaves[found] = leaf, ranks[changed[i]]
            found += 1
            leaf = links[leaf, 1]
    return leaves, ranks_of_leaves


@inlined_kernel
def _rounded(twice: int) -> np.float32:
    """Return the rounded rank for a doubled rank."""
    shift = 0
    while twice >= _EXACT and twice >> shift >= _SIGNIFICANT:
        shift += 1
    return np.float32((twice + (1 << shift >> 1) >> shift << shift) / 2)


@kernel
def errors_of_starts(
    errors: NDArray[np.floating],
    broken: NDArray[np.bool_],
    starts: NDArray[np.int64],
    num_envs: int,
    longest: int,
    across_episodes: bool,
    eta: float,
) -> NDArray[np.float32]:
    """Return (K,): ``eta * max + (1 - eta) * mean`` of the errors' magnitudes over the steps from each start on.

    Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2, 2019), section 2.3.

    Args:
        errors: (N,), of the newest transitions, step by step.
        broken: (N,), where the next step does not continue a transition's episode.
        starts: (K,), positions in ``errors``.
        num_envs: environments in a step.
        longest: steps of a sequence.
        across_episodes: whether a sequence continues into the environment's next episode.
        eta: weight of the largest error.
    """
    out = np.empty(starts.shape[0], np.float32)
    for k in range(starts.shape[0]):
        largest, total, steps, position = 0.0, 0.0, 0, starts[k]
        while position < errors.shape[0] and steps < longest:
            magnitude = abs(float(errors[position]))
            # max() would not propagate NaN.
            largest = magnitude if magnitude != magnitude else max(largest, magnitude)
            total += magnitude
            steps += 1
            if broken[position] and not across_episodes:
                break
            position += num_envs
        out[k] = eta * largest + (1 - eta) * (total / steps)
    return out
