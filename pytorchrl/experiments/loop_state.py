"""Where a run's loop stands, beside what its scheme and its measurements know."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class LoopState:
    """What a checkpoint holds of a loop."""

    seconds: float = 0.0
    """Spent collecting and updating."""
    settled_at: int = 0
    """Steps when all that was due was last done."""
    evaluated_at: int = -1
    """Steps at the last evaluation."""
    evaluation_is_due: bool = False
    best_return: float = -math.inf
    """The largest mean return of an evaluation."""

    def state_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`, from among what else a checkpoint holds."""
        for field in fields(self):
            setattr(self, field.name, state[field.name])
