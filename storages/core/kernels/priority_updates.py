"""What errors mean for priorities, in one pass each instead of one array operation after another.

Errors are those of an update, or came with many steps at once.
"""

import math

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel, parallel_kernel
from storages.core.kernels.memory import address_of, prefetch_at

SHIFT_OF_BUCKETS = 14
"""Bits of an error, as float32, that a histogram of errors leaves out."""
BUCKETS = 1 << (31 - SHIFT_OF_BUCKETS)
BUCKETS_OF_AN_OCTAVE = 1 << (23 - SHIFT_OF_BUCKETS)
"""From a power of two to the next."""
_EXACT, _SIGNIFICANT = 32, 8
"""Twice a rank is exact below the first number, and has fewer significant bits than the second one from there on."""


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
    """Store the magnitudes of errors of transitions that are still live; nothing where one is not finite as float32.

    Args:
        transitions: (B,) numbers.
        errors: (B,).
        begin: number of the oldest live transition.
        end: number after the newest.
        stored: (rows,), written: transition ``n`` in row ``n % rows``.
        rows: (B,), written: the rows of those that are live.
        magnitudes: (B,), written: what was stored there.

    Returns:
        How many are live, and the largest of their magnitudes; of the first error that is not finite, its position
        less the number of errors, and 0.
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
    """``(sum w)**2 / (B sum w**2)`` of weights (B, 1): 1 where all are equal, 1 / B where one is all."""
    total, squares = 0.0, 0.0
    for i in range(weights.shape[0]):
        weight = float(weights[i, 0])
        total += weight
        squares += weight * weight
    size: float = total * total / (squares * weights.shape[0])
    return size


@kernel
def mean_of(indices: NDArray[np.int64]) -> float:
    """Of numbers of transitions (B, 1)."""
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
    """Move leaves (K,) of a histogram to buckets (K,), -1 for none, one after the other; see ``RankTree``."""
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
    """Round the mean rank of each bucket, and return the leaves of those whose rank is another now, and the ranks."""
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
    """Round a rank, of which twice is given."""
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
    """(K,): ``eta * max + (1 - eta) * mean`` of the magnitudes of the errors of the steps from each start on.

    Kapturowski et al., "Recurrent Experience Replay in Distributed Reinforcement Learning" (R2D2, 2019), section 2.3.

    Args:
        errors: (N,), of the newest transitions, those of a step one after the other.
        broken: (N,), where the next step does not continue a transition's episode.
        starts: (K,), positions in them.
        num_envs: environments in a step.
        longest: steps of a sequence.
        across_episodes: whether a sequence goes on with the environment's next episode.
        eta: share of the largest.
    """
    out = np.empty(starts.shape[0], np.float32)
    for k in range(starts.shape[0]):
        largest, total, steps, position = 0.0, 0.0, 0, starts[k]
        while position < errors.shape[0] and steps < longest:
            magnitude = abs(float(errors[position]))
            # NaN would not be the largest.
            largest = magnitude if magnitude != magnitude else max(largest, magnitude)
            total += magnitude
            steps += 1
            if broken[position] and not across_episodes:
                break
            position += num_envs
        out[k] = eta * largest + (1 - eta) * (total / steps)
    return out
