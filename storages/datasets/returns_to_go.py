"""Returns-to-go of episodes: what was earned from each step to the end."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from storages.episode import Episode
from storages.transition import REW, RTG


def with_returns_to_go(episodes: Iterable[Episode], gamma: float = 1.0) -> Iterator[Episode]:
    """The episodes, each with a field RTG (L, 1): ``REW[t] + gamma * RTG[t + 1]``.

    Nothing is added after the last step, also where the episode was cut there and would have earned more.

    Args:
        episodes: read one by one.
        gamma: discount of a step; 1 as in Chen et al., "Decision Transformer" (arXiv 2106.01345), section 3.
    """
    for episode in episodes:
        rewards = episode.fields[REW].astype(np.float64)
        to_go = np.empty_like(rewards)
        following = np.zeros_like(rewards[0])
        for step in reversed(range(len(rewards))):
            following = rewards[step] + gamma * following
            to_go[step] = following
        yield replace(episode, fields={**episode.fields, RTG: to_go.astype(np.float32)})
