"""Settings of what a batch holds instead of single transitions: sequences of steps, or whole episodes."""

from dataclasses import dataclass

from storages.component.hyper_parameters import Count, CountOrZero, UnitInterval
from storages.component.setting import Setting


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


@dataclass(frozen=True)
class Episodes(Setting):
    """How batches of episodes are made: Hausknecht and Stone, "Deep Recurrent Q-Learning" (arXiv 1507.06527).

    Each episode is as likely as any other, or its priority says how likely. It is whole where its first step is stored
    (it has DONE) and an end of either kind; one that broke off, without an end, is not.

    Args:
        longest: longer episodes are cut into pieces of so many steps, which count as episodes: each is drawn by itself,
            and is whole where all its steps are stored. Batches then have so many steps. None cuts nothing; a batch
            has as many steps as its longest episode.
        packed: leave out what fills shorter episodes up: steps lie one after the other as in a ``PackedSequence``.
        whole: draw whole episodes alone; as long as there is none, what is stored of the running ones. False also draws
            what is stored of episodes that are running, broke off, or were overwritten in part.
        eta: an episode's priority is that of ``eta`` times its largest error and ``1 - eta`` times its mean error.
        max_steps: of an episode that has more steps, take a random piece of so many consecutive ones, each as likely as
            any other: the paper's random updates. Padded batches then have so many steps. INDICES name the episode,
            whose priority follows the errors of the piece. None takes all steps.

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
        """Whether a row may be a part of an episode whose steps go on after it."""
        return self.longest is not None or self.max_steps is not None
