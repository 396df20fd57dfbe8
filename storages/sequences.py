"""Sequences of steps instead of single transitions, for actors with memory."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from storages.hyper_parameters import Count, CountOrZero, UnitInterval, check_fields

_RANGES: Mapping[str, Any] = {
    "length": Count,
    "burn_in": CountOrZero,
    "overlap": CountOrZero | None,
    "across_episodes": bool,
    "eta": UnitInterval,
}


@dataclass(frozen=True)
class Sequences:
    """How batches of sequences are made: Kapturowski et al., "Recurrent Experience Replay" (R2D2, ICLR 2019).

    Args:
        length: steps of a sequence that are learnt from.
        burn_in: steps before them that only warm the memory up.
        overlap: steps that a sequence shares with the next one; None lets sequences begin anywhere.
        across_episodes: whether a sequence goes on into the environment's next episode, instead of ending, filled up,
            with its own.
        eta: a sequence's priority is that of ``eta`` times its largest error and ``1 - eta`` times its mean error.

    Raises:
        ValueError: a value is of a wrong type or outside its range, or the overlap is as long as a sequence.
    """

    length: int
    burn_in: int = 0
    overlap: int | None = None
    across_episodes: bool = False
    eta: float = 0.9

    def __post_init__(self) -> None:
        check_fields(self, _RANGES)
        if self.overlap is not None and self.overlap >= self.length:
            raise ValueError(f"Sequences: overlap must be less than length={self.length}, got {self.overlap}")

    @property
    def stride(self) -> int:
        """Steps from where a sequence may begin to where the next may."""
        return 1 if self.overlap is None else self.length - self.overlap

    @property
    def config(self) -> Mapping[str, Any]:
        """Plain data from which it can be made again."""
        return {"name": type(self).__name__, "hyper_parameters": asdict(self)}
