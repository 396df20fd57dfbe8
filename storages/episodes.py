"""Whole episodes instead of single transitions, for actors with memory."""

from dataclasses import dataclass

from storages.hyper_parameters import Count, UnitInterval
from storages.setting import Setting


@dataclass(frozen=True)
class Episodes(Setting):
    """How batches of whole episodes are made: the sequential updates of Hausknecht and Stone (arXiv 1507.06527).

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

    Raises:
        ValueError: a value is of a wrong type or outside its range.
    """

    longest: Count | None = None
    packed: bool = False
    whole: bool = True
    eta: UnitInterval = 0.9
