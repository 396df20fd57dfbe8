"""How much of the newest experience to draw from: Wang and Ross, "Boosting Soft Actor-Critic" (arXiv 1906.04009)."""

from collections import deque
from collections.abc import Mapping
from typing import Any

_EPISODES_COMPARED = 20


def newest_count(stored: int, eta: float, cmin: int, update: int, updates: int) -> int:
    """``c_k = max(N * eta**(1000 k / K), cmin)``, at most ``N``: from how many of the newest transitions to draw.

    Args:
        stored: N, transitions that are stored.
        eta: how fast the number falls within an update phase; 1 not at all.
        cmin: how far at most.
        update: k, from 1.
        updates: K, updates of the phase.
    """
    return min(stored, max(int(stored * eta ** (1000 * update / updates)), cmin))


class Improvement:
    """How fast returns rise now, beside how fast they ever rose."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=2 * _EPISODES_COMPARED)
        self._largest = 0.0

    def observe(self, episode_return: float) -> None:
        """Note a return of training."""
        self._returns.append(episode_return)
        self._largest = max(self._largest, self._recent)

    @property
    def share_of_largest(self) -> float:
        """Recent improvement over the largest, in [0, 1]; 1 as long as too little is known."""
        if len(self._returns) < 2 * _EPISODES_COMPARED or self._largest == 0:
            return 1.0
        return min(1.0, max(0.0, self._recent / self._largest))

    @property
    def _recent(self) -> float:
        """The mean of the newest returns less the mean of those before them; 0 as long as too few are there."""
        if len(self._returns) < 2 * _EPISODES_COMPARED:
            return 0.0
        returns = list(self._returns)
        return (sum(returns[_EPISODES_COMPARED:]) - sum(returns[:_EPISODES_COMPARED])) / _EPISODES_COMPARED

    def state_dict(self) -> dict[str, Any]:
        """Returns and the largest improvement, as plain data."""
        return {"returns": list(self._returns), "largest": self._largest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Be what was saved."""
        self._returns.clear()
        self._returns.extend(state["returns"])
        self._largest = state["largest"]
