"""What every writer of a data set is: it takes episodes one by one, and all of them are alike."""

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from storages.core.ring.layout import LeafLayout, leaves, text
from storages.datasets.dataset import About
from storages.episode import Episode
from storages.errors import DatasetError
from storages.transition import ACT, OBS, REW


class Writer(ABC):
    """Writes a data set.

    Args:
        path: where; nothing is there yet.
        about: what it is to say of itself.
    """

    def __init__(self, path: Path, about: About) -> None:
        self.path, self.about = path, about
        self.episodes = self.steps = 0
        self._layout: dict[str, LeafLayout] = {}

    def add(self, episode: Episode) -> None:
        """Write one more; an episode without a step is nothing.

        Raises:
            DatasetError: it is not like the first one; the text names the field.
        """
        if not len(episode):
            return
        self._refuse_unlike(episode)
        self._add(episode)
        self.episodes += 1
        self.steps += len(episode)

    def finish(self) -> None:
        """Make a data set of what was added.

        Raises:
            DatasetError: that is nothing.
        """
        if not self.episodes:
            raise DatasetError("there is no episode to write, and a data set without one cannot say what is in it")
        self._finish()

    @abstractmethod
    def close(self) -> None:
        """Let go of files, finished or not; a second call does nothing."""

    @abstractmethod
    def _add(self, episode: Episode) -> None: ...

    @abstractmethod
    def _finish(self) -> None: ...

    def _refuse_unlike(self, episode: Episode) -> None:
        layout = layout_of(episode)
        if not self._layout:
            self._layout = layout
        if layout != self._layout:
            shown = (
                ", ".join(f"{name} {leaf.dtype}{leaf.shape}" for name, leaf in of.items())
                for of in (self._layout, layout)
            )
            raise DatasetError(f"episode {self.episodes} is not like the first: {' beside '.join(shown)}")


def layout_of(episode: Episode) -> dict[str, LeafLayout]:
    """Shapes and dtypes of what a step has, by name.

    Raises:
        DatasetError: a field is missing, or has too few or too many rows.
    """
    for key in (ACT, REW):
        if key not in episode.fields:
            raise DatasetError(f"an episode needs {ACT} and {REW}, and has {', '.join(episode.fields)}")
    layout = {}
    for path, leaf in leaves({OBS: episode.observations, **episode.fields}):
        array = np.asarray(leaf)
        if len(array) != len(episode) + (path[0] == OBS):
            raise DatasetError(f"an episode of {len(episode)} steps has {len(array)} rows of {text(path)}")
        layout[text(path)] = LeafLayout(tuple(array.shape[1:]), array.dtype)
    return layout
