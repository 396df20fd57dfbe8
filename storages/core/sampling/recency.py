"""Emphasising recent experience: Wang and Ross, "Boosting Soft Actor-Critic" (arXiv 1906.04009)."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from storages.core.parts import RingObserver
from storages.core.ring.ring import Ring

_EPISODES_COMPARED = 20


def newest_count(stored: int, eta: float, cmin: int, update: int, updates: int) -> int:
    """Return how many newest transitions to draw from: ``c_k = max(N * eta**(1000 k / K), cmin)``, at most ``N``.

    Args:
        stored: N, number of stored transitions.
        eta: rate of decay within an update phase; 1 for none.
        cmin: lower bound of the result.
        update: k, from 1.
        updates: K, updates of the phase.
    """
    return min(stored, max(int(stored * eta ** (1000 * update / updates)), cmin))


class Recency(RingObserver):
    """Limits sampling to the newest transitions, fewer with each batch of an update phase."""

    def __init__(self) -> None:
        self.eta, self.cmin, self.adapts = 1.0, 1, False
        """Hyper-parameters, see :class:`storages.EREBuffer`."""
        self.improvement = ReturnImprovement()

    @property
    def current_eta(self) -> float:
        """Current value of eta: ``eta`` itself unless it adapts."""
        if not self.adapts:
            return self.eta
        # The paper: eta_0 * I_recent / I_max + eta_max * (1 - I_recent / I_max), I the improvement of returns.
        share = self.improvement.share_of_largest
        return self.eta * share + 1.0 * (1 - share)

    def first(self, ring: Ring, update: int, updates: int) -> int:
        """Return the number of the oldest transition that the ``update``-th of ``updates`` batches is drawn from."""
        return ring.end - newest_count(ring.live_transitions, self.current_eta, self.cmin, update, updates)

    def state_dict(self) -> dict[str, Any]:
        """Return entries of the storage's state."""
        return {"improvement": self.improvement.state_dict()}

    def load_state_dict(self, ring: Ring, state: Mapping[str, Any]) -> None:
        """Restore the entries; without any, no returns have been observed."""
        self.improvement = ReturnImprovement()
        if "improvement" in state:
            self.improvement.load_state_dict(state["improvement"])


class ReturnImprovement:
    """Recent improvement of returns, relative to the largest so far."""

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=2 * _EPISODES_COMPARED)
        self._largest = 0.0

    def observe(self, episode_return: float) -> None:
        """Add the return of a training episode."""
        self._returns.append(episode_return)
        self._largest = max(self._largest, self._recent)

    @property
    def share_of_largest(self) -> float:
        """Recent improvement over the largest, in [0, 1]; 1 while there are too few episodes."""
        if len(self._returns) < 2 * _EPISODES_COMPARED or self._largest == 0:
            return 1.0
        return min(1.0, max(0.0, self._recent / self._largest))

    @property
    def _recent(self) -> float:
        """Mean of the newest returns minus the mean of those before them; 0 while there are too few episodes."""
        if len(self._returns) < 2 * _EPISODES_COMPARED:
            return 0.0
        returns = list(self._returns)
        return (sum(returns[_EPISODES_COMPARED:]) - sum(returns[:_EPISODES_COMPARED])) / _EPISODES_COMPARED

    def state_dict(self) -> dict[str, Any]:
        """Return the returns and the largest improvement, as plain data."""
        return {"returns": list(self._returns), "largest": self._largest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by :meth:`state_dict`."""
        self._returns.clear()
        self._returns.extend(state["returns"])
        self._largest = state["largest"]
