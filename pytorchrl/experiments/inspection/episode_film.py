"""Images of the episode of a stored transition: replayed where possible, else stored observations."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.experiments.inspection.episode_seeds import ReenactmentError
from pytorchrl.experiments.inspection.pictures import marked, picture_of
from pytorchrl.experiments.inspection.reenactment import Reenactment, reenact
from pytorchrl.experiments.inspection.saved_storage import SavedStorage
from pytorchrl.experiments.inspection.transitions import StoredTransitions
from pytorchrl.experiments.recordings.filming import FRAMES_PER_SECOND
from pytorchrl.experiments.recordings.video import write_video
from storages.component.factory import Factory
from storages.transition import OBS, OBS2


@dataclass(frozen=True)
class EpisodeFilm:
    """Images of an episode."""

    frames: list[NDArray[np.uint8]]
    """(height, width, 3) each, one more than the number of steps."""
    frames_per_second: int
    moment: int
    """Index of the frame before the transition."""
    description: str
    """Sentences on the source of the images, and on what could not be shown."""

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write a video in which the two frames of the transition have a red border and are shown for a second each.

        Args:
            path: of the file, which ends in ".mp4" or ".gif".

        Raises:
            ImportError: the package that writes videos is not installed.
            ValueError: the suffix is not supported, or the images end before the transition.
        """
        if self.moment >= len(self.frames):
            raise ValueError(f"{self.description} The transition comes after that, so that no frame shows it")
        frames = marked(self.frames, self.moment, self.frames_per_second)
        return write_video(Path(path), frames, self.frames_per_second)


def film_transition(run: str | os.PathLike[str], row: int, envs: Factory[VecEnv] | None = None) -> EpisodeFilm:
    """Return images of the episode of a stored transition, to be written as a video.

    The episode is replayed by :func:`reenact`. If that is not possible, or the environment is not deterministic, the
    stored observations are used if they are images; :attr:`EpisodeFilm.description` says which.

    Args:
        run: the run folder, or a checkpoint.
        row: the transition's number, as in the field INDICES of batches.
        envs: of the training environments, if they cannot be built from ``config.json``.

    Raises:
        CheckpointError: there is no checkpoint, it is damaged, or it contains no storage.
        CompositionError: the environments are defined in a script; pass them as ``envs``.
        ReenactmentError: the episode cannot be replayed, or its environment does not render, and observations are not
            images.
        ValueError: the row is not stored.
    """
    try:
        played = reenact(run, row, envs)
    except ReenactmentError as error:
        return _stored(run, row, f"The episode cannot be replayed: {error}.")
    if played.differs_at is None and played.frames:
        steps = len(played.frames) - 1
        return _film(
            played, f"The episode was replayed from its seed and its {steps:,} actions, and was reproduced exactly."
        )
    if played.differs_at is None:
        return _stored(run, row, "The environment does not render.")
    description = f"The environment is not deterministic: {_where(played.differs_at)} {_what(played.difference)}."
    try:
        return _stored(run, row, description)
    except ReenactmentError:
        if played.differs_at < 0 or not played.frames:
            raise
        return _film(played, f"{description} The frames end there.")


def _film(played: Reenactment, description: str) -> EpisodeFilm:
    return EpisodeFilm(played.frames, played.frames_per_second, played.moment, description)


def _stored(run: str | os.PathLike[str], row: int, description: str) -> EpisodeFilm:
    """Return the stored observations of the episode as images."""
    transitions = StoredTransitions(SavedStorage.read(run))
    ring, rows = transitions.ring, transitions.episode_of(row)
    seen, last = ring.gather(rows, {OBS})[OBS], ring.gather(rows[-1:], {OBS2})[OBS2]
    places = [(seen, place) for place in range(len(rows))] + [(last, 0)]
    found = [
        picture_of(
            {name: part[place] for name, part in of.items()} if isinstance(of, Mapping) else of[place], ring.stacked
        )
        for of, place in places
    ]
    frames = [picture for picture in found if picture is not None]
    if len(frames) < len(found):
        raise ReenactmentError(f"{description} Its observations are not images, so that there is nothing to show")
    first_step = transitions.describe(rows[:1])[0].step_in_episode
    whole = "" if first_step == 0 else f" Its beginning is no longer stored: they are of the last {len(rows):,} steps."
    moment = int(np.searchsorted(rows, row))
    description = f"{description} The frames are the stored observations.{whole}"
    return EpisodeFilm(frames, FRAMES_PER_SECOND, moment, description)


def _where(step: int) -> str:
    return f"in step {step} of the episode" if step >= 0 else f"{-step} steps before the episode"


def _what(difference: str) -> str:
    if difference == "end":
        return "the end of the episode differs from the stored one"
    return f"its {difference} differs from the stored one"
