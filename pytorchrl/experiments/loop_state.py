"""State of the training loop itself, apart from its scheme and its metrics."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class LoopState:
    """The training loop's state in checkpoints."""

    seconds: float = 0.0
    """Time spent collecting and updating."""
    settled_at: int = 0
    """Steps when updates were last due."""
    settled_before: int = 0
    """Steps when they were due the time before."""
    phases_due: int = 0
    """Update phases that are due and not made yet."""
    evaluated_at: int = -1
    """Steps at the last evaluation."""
    evaluation_is_due: bool = False
    best_return: float = -math.inf
    """Largest mean return of an evaluation."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`; other keys are ignored."""
        for field in fields(self):
            setattr(self, field.name, state[field.name])
