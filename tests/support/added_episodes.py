"""The history of a buffer of whole episodes to which only whole episodes are added."""

from itertools import accumulate
from typing import Any

import numpy as np

from storages.episode import Episode
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2
from tests.support.episodic import EpisodesModel, Transition
from tests.support.histories import EpisodicHistory
from tests.support.model import Stream

_LONGEST = 6


class AddedHistory(EpisodicHistory):
    """History of a buffer of whole episodes; each insertion adds one episode."""

    def __init__(self, kind: str, checkpoints: bool = False, durable: bool = False, **given: Any) -> None:
        super().__init__(kind, checkpoints, durable, **given)
        everything = EpisodesModel(10_000, _LONGEST)
        stream = Stream(1, kind, False, np.random.default_rng(1))
        while len(everything.finished) < len(self.samples):
            everything.insert({key: np.array(value) for key, value in stream.step().items()})
        self._episodes = everything.finished[: len(self.samples)]
        for episode in self._episodes:
            for place, (sample, _) in enumerate(episode):
                sample[DONE][...] = place == 0

    def insert(self, storage: Any, number: int) -> None:
        storage.add_episode(_whole(self._episodes[number]))

    def steps_in(self, storage: Any) -> int:
        ends = [0, *accumulate(map(len, self._episodes))]
        return ends.index(storage._directory.live_range.next)

    def model(self, steps: int) -> EpisodesModel:
        model = EpisodesModel(self._given["size"], finished=list(self._episodes[:steps]))
        while sum(map(len, model.finished)) > model.size:
            model.finished.pop(0)
        return model


def _whole(transitions: list[Transition]) -> Episode:
    samples = [sample for sample, _ in transitions]
    last = samples[-1]
    return Episode(
        np.concatenate([sample[OBS] for sample in samples] + [last[OBS2]]),
        {key: np.concatenate([sample[key] for sample in samples]) for key in (ACT, REW)},
        terminated=bool(last[DONE2][0, 0]),
        truncated=bool(last[TRUNC2][0, 0]),
    )
