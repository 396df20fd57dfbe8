"""Presets: an algorithm, an actor and a storage with the hyper-parameters of a paper."""

from typing import Any, TypedDict

from storages.component.factory import Factory


class Preset(TypedDict):
    """Arguments of a scheme: ``prl.Scheme(**preset, train_envs_factory=...)``; ``preset | {...}`` changes some."""

    algo_factory: Factory[Any]
    actor_factory: Factory[Any]
    storage_factory: Factory[Any]
