"""Checks of samples before they are inserted into a rollout."""

from collections.abc import Sequence

from storages.core.parts import RingObserver
from storages.core.ring.layout import SampleError
from storages.core.ring.ring import Ring
from storages.transition import LOGP, VAL, Sample


class RolloutGuard(RingObserver):
    """Refuses steps beyond a full rollout, and samples without a field that returns are computed from.

    Args:
        needed: the fields that samples must have.
    """

    def __init__(self, needed: Sequence[str]) -> None:
        self._needed = needed

    def before_insert(self, ring: Ring, sample: Sample) -> None:
        """Raise an error if the rollout is full or the sample lacks a field."""
        if ring.live_steps == ring.size:
            raise RuntimeError(f"{ring.owner}: the rollout of {ring.size} steps is full; call reset() first")
        for field in self._needed:
            if field not in sample:
                raise SampleError(f"{ring.owner}: {_NEED[field]}; got {list(sample)}")

    def steps_at_once(self, ring: Ring) -> int:
        """Return the number of steps until the rollout is full."""
        return ring.size - ring.live_steps


_NEED = {
    LOGP: f"a sample needs {LOGP}, the log probability of its action under the policy that acted",
    VAL: f"an on-policy sample needs {VAL}, or an algorithm with {VAL} in its values_when_full",
}
