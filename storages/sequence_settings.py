"""Settings for batches of sequences or episodes instead of single transitions.

The window of each setting is chosen in :func:`storages.core.windows.segments.window_of`. Other modules ask a setting
for what they need; only for the index of episodes do they ask whether it is one of :class:`Episodes`.
"""

import sys
from abc import abstractmethod
from dataclasses import dataclass

from storages.component.hyper_parameters import Count, CountOrZero, UnitInterval
from storages.component.setting import Setting


class MultiStepRows(Setting):
    """Base class of settings of batches whose rows consist of several steps."""

    eta: float
    """Weight of the largest TD error in a row's priority: ``eta * max + (1 - eta) * mean``."""

    @property
    @abstractmethod
    def least_size(self) -> int:
        """Steps that a storage must hold at least, so that rows can be drawn."""

    @property
    @abstractmethod
    def longest_row(self) -> int:
        """Steps of the longest row that has a priority of its own."""

    @property
    def is_of_episodes(self) -> bool:
        """Whether rows are episodes or pieces of them, which the storage's index of episodes lists."""
        return False

    @property
    def stride(self) -> int:
        """Steps between those at which rows begin; 1 if a row may begin at any step."""
        return 1

    @property
    def across_episodes(self) -> bool:
        """Whether a row continues into the next episode."""
        return False

    @property
    def is_of_whole_episodes(self) -> bool:
        """Whether rows are whole episodes, padded to the longest of the batch."""
        return False

    @property
    def omits_following_steps(self) -> bool:
        """Whether a batch may lack the steps after a row in its episode, which n-step returns need."""
        return False


@dataclass(frozen=True)
class Sequences(MultiStepRows):
    """Batches of fixed-length sequences: Kapturowski et al., "Recurrent Experience Replay" (R2D2, ICLR 2019).

    Args:
        length: steps of a sequence that are learnt from.
        burn_in: preceding steps that only warm up the recurrent state.
        overlap: steps that consecutive sequences share; None lets sequences begin at any step. Rows are then multiples
            of ``length - overlap`` steps. Where episodes begin between two rows, the first one also stands for the
            sequences that begin with these episodes, of which one is drawn; they share its priority.
        across_episodes: whether a sequence continues into the environment's next episode, instead of being padded from
            the end of its own.
        eta: weight of the largest TD error in a sequence's priority: ``eta * max + (1 - eta) * mean``.

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
    def least_size(self) -> int:
        """Steps so that a sequence can begin at any step."""
        return max(self.length + self.stride - 1, self.burn_in)

    @property
    def longest_row(self) -> int:
        """Steps of a sequence."""
        return self.length

    @property
    def stride(self) -> int:
        """Steps between the starts of consecutive sequences."""
        return 1 if self.overlap is None else self.length - self.overlap


@dataclass(frozen=True)
class Episodes(MultiStepRows):
    """Batches of episodes: Hausknecht and Stone, "Deep Recurrent Q-Learning" (arXiv 1507.06527).

    Episodes are drawn uniformly, or by priority. An episode is whole if its first step (DONE) and its end (termination
    or truncation) are stored; one that was interrupted without an end is not.

    Args:
        longest: cut longer episodes into pieces of this many steps, which count as episodes: each is drawn on its own,
            and is whole if all its steps are stored. Batches then have this many steps. None cuts nothing; a batch has
            as many steps as its longest episode.
        packed: omit the padding of shorter episodes: steps are concatenated as in a ``PackedSequence``.
        whole: draw only whole episodes or, while there is none, the stored steps of running ones. False also draws the
            stored steps of episodes that are running, interrupted, or partly overwritten.
        eta: weight of the largest TD error in an episode's priority: ``eta * max + (1 - eta) * mean``.
        max_steps: from a longer episode, take this many consecutive steps from a uniformly random start: the paper's
            random updates. Padded batches then have this many steps. INDICES name the episode, whose priority is that
            of the errors of the piece. None takes all steps.

    Raises:
        ValueError: a value is of a wrong type or outside its range, or there are both ``longest`` and ``max_steps``.
    """

    longest: Count | None = None
    packed: bool = False
    whole: bool = True
    eta: UnitInterval = 0.9
    max_steps: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest is not None and self.max_steps is not None:
            raise ValueError(
                f"Episodes: give either longest, which cuts episodes into pieces, or max_steps, which takes a random "
                f"piece of each; got longest={self.longest} and max_steps={self.max_steps}"
            )

    @property
    def in_pieces(self) -> bool:
        """Whether a row may be a piece of an episode that continues after it."""
        return self.longest is not None or self.max_steps is not None

    @property
    def is_of_episodes(self) -> bool:
        """Always: rows are episodes."""
        return True

    @property
    def least_size(self) -> int:
        """Steps of a piece."""
        return self.longest or 1

    @property
    def longest_row(self) -> int:
        """Steps of a piece; unlimited for whole episodes."""
        return self.longest or sys.maxsize

    @property
    def is_of_whole_episodes(self) -> bool:
        """Whether rows are whole episodes, padded to the longest of the batch."""
        return self.whole and not self.in_pieces and not self.packed

    @property
    def omits_following_steps(self) -> bool:
        """Whether rows are packed pieces of episodes."""
        return self.packed and self.in_pieces
