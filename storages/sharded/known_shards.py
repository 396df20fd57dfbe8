"""What a learner knows of shards: which one a batch is drawn of, and what its rows weigh among those of all."""

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

    A batch is drawn of one shard, chosen with the probability in which the sum of the shard's priorities stands to that
    of all (of uniform shards, the number of rows). A row of priority ``p`` is then drawn with probability
    ``P = p / sum``, as if one storage held all. Importance weights ``(N P)**-beta`` are of the number of rows ``N`` of
    all shards, over the largest such weight among them: Schaul et al., arXiv 1511.05952, section 3.4. Summaries are a
    little older than the batches; weights are of the probability by which a row was drawn in fact.

    Args:
        count: how many shards there are.
    """

    def __init__(self, count: int) -> None:
        self.summaries: list[Summary | None] = [None] * count
        """By position; None of a shard that has not answered yet, or does not answer."""
        self._identities: list[_Identity] = []
        """Of all shards that ever answered, those that died included."""
        self._current: list[int | None] = [None] * count
        """Which of these each shard is."""
        self._transitions = [0] * count
        """How many each held when it answered last."""

    def learn(self, shard: int, summary: Summary) -> bool:
        """Note an answer; returns whether the shard has taken the place of another, of which a warning tells."""
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
        """Summaries of the shards that answer."""
        return [summary for summary in self.summaries if summary is not None]

    def lose(self, shard: int) -> None:
        """Draw nothing of a shard until it answers again."""
        self.summaries[shard] = None

    # Which shard a row is of

    def first_index(self, shard: int) -> int:
        """What is added to the numbers of a shard's transitions, so that no two shards that ever were share one."""
        current = self._current[shard]
        assert current is not None
        return current << _BITS_OF_A_NUMBER

    def shard_of(self, index: int) -> tuple[int, str] | None:
        """The position and the identity of the shard of a row; None where it has died since."""
        identity = index >> _BITS_OF_A_NUMBER
        if not 0 <= identity < len(self._identities):
            raise ValueError(f"ShardedReplay: INDICES has {index}, which is of no shard; give it batches of its own")
        found = self._identities[identity]
        return found if self._current[found.shard] == identity else None

    # What is drawn

    @property
    def eta(self) -> float | None:
        """Share of a sequence's largest error in that of the sequence; None where shards follow no errors."""
        return next((summary.eta for summary in self.answering if summary.eta is not None), None)

    @property
    def rows(self) -> int:
        """Of all shards that answer."""
        return sum(summary.mass.rows for summary in self.answering)

    @property
    def total(self) -> float:
        """The sum of all priorities."""
        return sum(summary.mass.total for summary in self.answering)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """(S,): with which a batch is drawn of each shard; zeros where none holds anything."""
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
        """(count,): the shards of batches, each drawn from its own part of the whole mass, in random order."""
        bounds = np.cumsum(self.probabilities)
        places = (np.arange(count) + generator.random(count)) / count * bounds[-1]
        chosen = np.searchsorted(bounds, places, side="right")
        shards: NDArray[np.int64] = generator.permutation(
            np.minimum(chosen, np.flatnonzero(np.diff(bounds, prepend=0))[-1])
        )
        return shards

    def factor(self, mass: Mass, probability: float) -> float:
        """What importance weights of a shard are multiplied with to be weights among the rows of all shards.

        Args:
            mass: of the shard, when it drew the batch.
            probability: by which the shard was chosen.
        """
        if mass.beta == 0 or mass.total == 0:
            return 1.0
        own = probability / mass.rows * mass.smallest
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
        f"its directory gave {holds:,} back"
        if holds
        else "they are lost, because it had no directory, or had committed nothing"
    )
    warnings.warn(
        f"shard {shard} died and was replaced: it held {held:,} transitions, {came_back}; errors of batches that it "
        f"drew before are left out",
        RuntimeWarning,
        stacklevel=3,
    )
