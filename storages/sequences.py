"""Sequences of steps instead of single transitions, for actors with memory."""

from dataclasses import dataclass

from storages.hyper_parameters import Count, CountOrZero, UnitInterval
from storages.setting import Setting


@dataclass(frozen=True)
class Sequences(Setting):
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

    length: Count
    burn_in: CountOrZero = 0
    overlap: CountOrZero | None = None
    across_episodes: bool = False
    eta: UnitInterval = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap is not None and self.overlap >= self.length:
            raise ValueError(f"Sequences: overlap must be less than length={self.length}, got {self.overlap}")

    @property
    def stride(self) -> int:
        """Steps from where a sequence may begin to where the next may."""
        return 1 if self.overlap is None else self.length - self.overlap
