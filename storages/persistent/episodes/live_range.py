"""Which episodes a storage still holds: all from a number on, and how many transitions these are."""

from collections import deque


class Ledger:
    """Transitions are numbered in the order in which their episodes ended; the oldest go first.

    Numbers may be left out: of episodes that were lost.
    """

    def __init__(self) -> None:
        self.begin(0, 0)

    def begin(self, live: int, following: int) -> None:
        """Hold nothing; ``live`` is the number of the oldest transition to come, ``following`` that of the next."""
        self.live, self.next, self.stored = live, following, 0
        self._episodes: deque[tuple[int, int]] = deque()
        """First transition and length of each."""

    @property
    def episodes(self) -> int:
        """How many there are."""
        return len(self._episodes)

    def count(self, first: int, lengths: list[int]) -> None:
        """Take up episodes one after the other, but for those that are gone already."""
        for length in lengths:
            if first >= self.live:
                self._episodes.append((first, length))
                self.stored += length
            first += length
        self.next = max(self.next, first)

    def keep(self, size: int) -> int:
        """Let go of the oldest until no more transitions are left; returns how many episodes went."""
        gone = 0
        while self.stored > size:
            self.stored -= self._episodes.popleft()[1]
            gone += 1
        if gone:
            self.live = self._episodes[0][0] if self._episodes else self.next
        return gone

    def let_go(self, live: int) -> int:
        """Let go of all before a transition; returns how many episodes went."""
        gone = 0
        while self._episodes and self._episodes[0][0] < live:
            self.stored -= self._episodes.popleft()[1]
            gone += 1
        self.live = max(self.live, live)
        return gone
