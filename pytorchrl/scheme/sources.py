"""The storages of a scheme, and the sources that its algorithm draws batches from."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.scheme.collector import to_device
from pytorchrl.scheme.compatibility import storages_read
from pytorchrl.scheme.dataset_factory import DatasetFactory, LoadedData
from storages.component.factory import Factory
from storages.datasets import episodes_of
from storages.off_policy.mixed_storage import MixedSource, MixedStorage
from storages.storage import Storage


def sources_of(
    algorithm: Algorithm, storages: Mapping[str, Storage], mixed: Mapping[str, MixedSource]
) -> dict[str, Storage]:
    """Return the algorithm's sources by name: storages, or mixes of storages."""
    sources = {}
    for name in algorithm.sources:
        read = {part: storages[part] for part in storages_read(name, mixed) if part in storages}
        for storage in read.values():
            algorithm.request_fields(name, storage)
        if name in mixed:
            # A mix has all methods that algorithms call on a source of replayed transitions.
            sources[name] = cast("Storage", MixedStorage(read, mixed[name].shares, algorithm.optional_fields))
        elif read:
            sources[name] = read[name]
    return sources


def state_of_source(
    name: str, storage: Storage, factory: Factory[Storage], *, is_collected: bool
) -> Storage | LoadedData:
    """Return the object whose state is in checkpoints; it omits contents that a data set can refill."""
    is_filled_again = isinstance(factory, DatasetFactory) and factory.hyper_parameters.get("directory") is None
    if is_collected or not is_filled_again:
        return storage
    assert isinstance(factory, DatasetFactory)
    return LoadedData(name, storage, factory.path)


def count_data(actor: Actor, storages: Iterable[Storage]) -> None:
    """Compute the normalisation statistics of observations from data, unless they were restored from a checkpoint."""
    normalization = actor.normalization
    if normalization is None or normalization.has_counted:
        return
    for storage in storages:
        for episode in episodes_of(storage):
            seen: Any = episode.observations
            before = {key: part[:-1] for key, part in seen.items()} if isinstance(seen, Mapping) else seen[:-1]
            normalization.add(to_device(before, actor.device))
    normalization.use_newest()
