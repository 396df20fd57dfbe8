"""The learner's view of the shards: from which shard to sample a batch, and how to correct importance weights."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.parts import Mass
from storages.sharded.replay_shard import Summary

_BITS_OF_A_NUMBER = 40


class _Identity(NamedTuple):
    shard: int
    identity: str


class KnownShards:
    """The latest summary of each shard.

    Each batch is sampled from one shard, chosen with probability proportional to the sum of its priorities (of uniform
    shards, to its number of rows). A row of priority ``p`` is then drawn with probability ``P = p / sum``, as from a
    single storage of all rows. Importance weights are ``(N P)**-beta``, with the number of rows ``N`` of all shards,
    divided by the largest such weight: Schaul et al., arXiv 1511.05952, section 3.4. Summaries are a little older than
    the batches; weights are those of the probability with which a row was actually drawn.

    Args:
        count: number of shards.
    """

    def __init__(self, count: int) -> None:
        self.summaries: list[Summary | None] = [None] * count
        """Summaries by position; None for a shard that has not answered yet, or does not answer any more."""
        self._identities: list[_Identity] = []
        """All shards that ever answered, including those that died."""
        self._current: list[int | None] = [None] * count
        """Index into ``_identities`` of the present shard at each position."""
        self._transitions = [0] * count
        """Number of transitions in each shard when it last answered."""

    def record_summary(self, shard: int, summary: Summary) -> bool:
        """Store a summary; return whether the shard has replaced one that died, and warn of that."""
        current = self._current[shard]
        is_new = current is None or self._identities[current].identity != summary.identity
        if is_new:
            if current is not None:
                _warn_of_replacement(shard, self._transitions[shard], summary.transitions)
            self._current[shard] = len(self._identities)
            self._identities.append(_Identity(shard, summary.identity))
        self.summaries[shard], self._transitions[shard] = summary, summary.transitions
        return is_new and current is not None

    @property
    def answering(self) -> list[Summary]:
        """Summaries of the shards that answer at present."""
        return [summary for summary in self.summaries if summary is not None]

    def mark_lost(self, shard: int) -> None:
        """Sample no batches from a shard until it answers again."""
        self.summaries[shard] = None

    # Row indices

    def first_index(self, shard: int) -> int:
        """Return the offset of a shard's transition numbers that makes them unique among all shards, past ones too."""
        current = self._current[shard]
        assert current is not None
        return current << _BITS_OF_A_NUMBER

    def shard_of(self, index: int) -> tuple[int, str] | None:
        """Return the position and the identity of the shard of a row; None if that shard has died."""
        identity = index >> _BITS_OF_A_NUMBER
        if not 0 <= identity < len(self._identities):
            raise ValueError(f"ShardedReplay: INDICES has {index}, which belongs to no shard; give it its own batches")
        found = self._identities[identity]
        return found if self._current[found.shard] == identity else None

    # Sampling

    @property
    def eta(self) -> float | None:
        """Weight of the largest error in the error of a sequence (R2D2); None if shards have no priorities."""
        return next((summary.eta for summary in self.answering if summary.eta is not None), None)

    @property
    def rows(self) -> int:
        """Number of rows in all shards that answer."""
        return sum(summary.mass.rows for summary in self.answering)

    @property
    def total(self) -> float:
        """Sum of all priorities."""
        return sum(summary.mass.total for summary in self.answering)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Probability with which a batch is sampled from each shard, (S,); zeros if all shards are empty."""
        masses = [Mass(0, 0.0) if summary is None else summary.mass for summary in self.summaries]
        rows, totals = (np.array([mass[field] for mass in masses], np.float64) for field in (0, 1))
        uniform: NDArray[np.float64]
        if not rows.any():
            return rows
        uniform = rows / rows.sum()
        if not totals.any():
            return uniform
        shares = np.array([mass.uniform_share for mass in masses])
        mixed = shares * uniform + (1 - shares) * totals / totals.sum()
        probabilities: NDArray[np.float64] = mixed / mixed.sum()
        return probabilities

    def choose(self, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Choose the shards (count,) of batches, by stratified sampling, in random order."""
        bounds = np.cumsum(self.probabilities)
        places = (np.arange(count) + generator.random(count)) / count * bounds[-1]
        chosen = np.searchsorted(bounds, places, side="right")
        shards: NDArray[np.int64] = generator.permutation(
            np.minimum(chosen, np.flatnonzero(np.diff(bounds, prepend=0))[-1])
        )
        return shards

    def factor(self, mass: Mass, probability: float) -> float:
        """Return the factor that converts a shard's importance weights to those of a single storage of all rows.

        Args:
            mass: mass of the shard when it sampled the batch.
            probability: probability with which the shard was chosen.
        """
        if mass.beta == 0 or mass.total == 0:
            return 1.0
        own = probability / mass.rows * mass.smallest
        if not mass.is_normalised:
            return float((own * self.rows) ** -mass.beta)
        smallest = min(
            (
                chance / summary.mass.rows * summary.mass.smallest
                for chance, summary in zip(self.probabilities, self.summaries, strict=True)
                if summary is not None and chance > 0
            ),
            default=own,
        )
        return float((own / smallest) ** -mass.beta)


def _warn_of_replacement(shard: int, held: int, holds: int) -> None:
    came_back = (
        f"{holds:,} were restored from its directory"
        if holds
        else "they are lost, because it had no directory, or had committed nothing"
    )
    warnings.warn(
        f"shard {shard} died and was replaced: it held {held:,} transitions, {came_back}; errors of batches that it "
        f"drew before are ignored",
        RuntimeWarning,
        stacklevel=3,
    )
