"""A storage that is filled from a data set when it is made."""

import os
from types import SimpleNamespace
from typing import Any

from pytorchrl.agent.envs.spaces import space_from_data
from storages.factory import Factory
from storages.persistent import fill
from storages.persistent.datasets import open_dataset
from storages.persistent.errors import DatasetError
from storages.storage import Storage


class DatasetFactory(Factory[Storage]):
    """Makes a storage and fills it from a data set; see :func:`from_dataset`."""

    def __init__(self, storage_factory: Factory[Storage], path: str) -> None:
        super().__init__(storage_factory.cls, storage_factory.hyper_parameters)
        self.path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Storage:
        """The storage; one that holds something already, since its directory did, is not filled again."""
        storage = super().__call__(*args, **kwargs)
        if not len(storage):
            envs = args[3] if len(args) > 3 else kwargs["envs"]
            fill(storage, open_dataset(self.path), envs=envs)
        return storage

    def spaces(self) -> Any:
        """The spaces of one environment of the data set.

        Raises:
            DatasetError: the data set does not say what they are.
        """
        about = open_dataset(self.path).about
        if about.observation_space is None or about.action_space is None:
            raise DatasetError(
                f"{self.path} does not say which spaces its observations and actions are of; give the scheme "
                f"test_envs_factory"
            )
        observation, action = (space_from_data(space) for space in (about.observation_space, about.action_space))
        return SimpleNamespace(observation_space=observation, action_space=action, num_envs=1, stacked_frames=0)

    @property
    def config(self) -> dict[str, Any]:
        """Plain data that says what this is."""
        return super().config | {"dataset": self.path}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetFactory) and self.path == other.path and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((super().__hash__(), self.path))

    def __repr__(self) -> str:
        return f"from_dataset({super().__repr__()}, {self.path!r})"


def from_dataset(storage_factory: Factory[Storage], path: str | os.PathLike[str]) -> Factory[Storage]:
    """A factory of a storage that is filled from a data set when it is made.

    Args:
        storage_factory: how the data is kept; its size must hold what is to be learnt from.
        path: of a data set that `open_dataset` reads: Minari's, D4RL's, ``.npz``, or a storage's directory.
    """
    return DatasetFactory(storage_factory, os.fspath(path))
