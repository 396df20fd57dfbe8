"""The episodes that PPO+D repeats: demonstrations, and those of the agent that are worth it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pytorchrl.agent.algorithms.imitation.parts.whole_episodes import loaded, of_fields, saved
from storages.episode import Episode
from storages.transition import REW

_LEAST_VALUE = 1e-8
"""Of an episode, where probabilities are made of values."""


@dataclass(eq=False)
class Kept:
    """An episode that may be repeated."""

    episode: Episode
    number: int
    """No other episode of the run has it."""
    value: float
    """The largest value of its observations, when they were last valued."""


class ReplayedEpisodes:
    """Rewarded episodes, of which the demonstrations are never dropped, and valued ones.

    Libardi, Dittert and De Fabritiis (arXiv 2007.03328): an episode of the agent whose return reaches that of a
    demonstration is rewarded; of the others, those with the largest values are kept. With every rewarded one, chance
    turns from valued episodes to rewarded ones.

    Args:
        demonstrations: at least one.
        capacity: episodes of the agent that are kept.
        rho: share of rewarded episodes at the beginning.
        phi: share of valued ones.
        alpha: a valued episode is drawn with a probability proportional to its value to this power.
    """

    def __init__(self, demonstrations: Sequence[Episode], capacity: int, rho: float, phi: float, alpha: float) -> None:
        self.rewarded = [Kept(of_fields(each), number, 0.0) for number, each in enumerate(demonstrations)]
        self.valued: list[Kept] = []
        self.rho, self.phi = rho, phi
        self._shares = (rho, phi)
        self._capacity, self._alpha = capacity, alpha
        self._demonstrations = self._seen = len(self.rewarded)
        self.threshold = min(_return_of(kept.episode) for kept in self.rewarded)
        """The return from which on an episode is rewarded."""

    def add(self, episode: Episode, value: float) -> None:
        """Keep an episode of the agent if it is worth it; ``value`` is the largest of its observations'."""
        kept = Kept(episode, self._seen, value)
        self._seen += 1
        if _return_of(episode) >= self.threshold:
            self.rewarded.append(kept)
            if self.valued:
                moved = min(self.phi, self._shares[1] / len(self.valued))
                self.rho, self.phi = self.rho + moved, self.phi - moved
        else:
            self.valued.append(kept)
        if self.valued and len(self) > self._capacity:
            self.valued.remove(min(self.valued, key=lambda each: each.value))
        elif len(self) > self._capacity:
            # The oldest of the agent's.
            del self.rewarded[self._demonstrations]

    def draw(self, generator: torch.Generator) -> Kept:
        """An episode to repeat: any of the rewarded, or one of the valued by its value."""
        of_kind, position = torch.rand(2, generator=generator, device=generator.device, dtype=torch.float64).tolist()
        if not self.valued or of_kind * (self.rho + self.phi) < self.rho:
            return self.rewarded[int(position * len(self.rewarded))]
        values = np.array([max(each.value, _LEAST_VALUE) for each in self.valued])
        chances = np.cumsum((values / values.max()) ** self._alpha)
        return self.valued[int(np.searchsorted(chances, position * chances[-1], side="right"))]

    def set_value(self, number: int, value: float) -> None:
        """Say what an episode was worth when it was last repeated, if it is still kept."""
        for kept in self.valued:
            if kept.number == number:
                kept.value = value

    def __len__(self) -> int:
        """Episodes of the agent."""
        return len(self.rewarded) - self._demonstrations + len(self.valued)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the demonstrations, as tensors and plain data."""
        kinds = {"rewarded": self.rewarded[self._demonstrations :], "valued": self.valued}
        episodes = {name: [state_of(kept) for kept in kind] for name, kind in kinds.items()}
        return {**episodes, "rho": self.rho, "phi": self.phi, "seen": self._seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        own, valued = ([kept_of(each) for each in state[name]] for name in ("rewarded", "valued"))
        self.rewarded[self._demonstrations :], self.valued = own, valued
        self.rho, self.phi, self._seen = state["rho"], state["phi"], state["seen"]


def state_of(kept: Kept) -> dict[str, Any]:
    """An episode as tensors and plain data."""
    return {"episode": saved(kept.episode), "number": kept.number, "value": kept.value}


def kept_of(state: Mapping[str, Any]) -> Kept:
    """What :func:`state_of` returned, as an episode."""
    return Kept(loaded(state["episode"]), state["number"], state["value"])


def _return_of(episode: Episode) -> float:
    return float(np.sum(episode.fields[REW], dtype=np.float64))
