"""Look up the classes that a run is composed of by name."""

import difflib
import inspect
from collections.abc import Iterator
from typing import Any

import pytorchrl as prl
from pytorchrl.agent.actors import Actor, OffPolicyActor, OnPolicyActor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.experiments.runs.composition import is_ours
from pytorchrl.scheme.compatibility import CompositionError
from storages import GAEBuffer, ReplayBuffer, Storage, VanillaOnPolicyBuffer, VTraceBuffer


def part_named(kind: type[Any], name: str) -> type[Any]:
    """Find a class by its name or short name: "per" and "per-buffer" mean PERBuffer, "off-policy" OffPolicyActor.

    Raises:
        CompositionError: there is none.
    """
    found: dict[str, type[Any]] = {}
    for cls in _concrete(kind):
        key = _key(cls.__name__)
        for name_of_kind in ("actor", "buffer", "replaybuffer"):
            found.setdefault(key.removesuffix(name_of_kind) or key, cls)
    # A whole name comes before a shortened one.
    found |= {_key(cls.__name__): cls for cls in _concrete(kind)}
    if _key(name) in found:
        return found[_key(name)]
    near = difflib.get_close_matches(_key(name), found, n=1)
    hint = f"; did you mean {found[near[0]].__name__}?" if near else ""
    names = ", ".join(names_of(kind))
    raise CompositionError(f"there is no {kind.__name__.lower()} {name!r}{hint} (choose from {names})")


def names_of(kind: type[Any]) -> list[str]:
    """Return the names of all classes of a kind, sorted."""
    return sorted({cls.__name__ for cls in _concrete(kind)})


def storage_for(algorithm: type[Algorithm]) -> type[Storage]:
    """Return the default storage class of an algorithm."""
    if algorithm.sources["main"].older_policies:
        return VTraceBuffer
    if algorithm.sources["main"].kind == "rollout":
        return GAEBuffer if algorithm.sources["main"].values else VanillaOnPolicyBuffer
    return ReplayBuffer


def actor_for(storage: type[Storage]) -> type[Actor]:
    """Return the default actor class for a storage."""
    return OnPolicyActor if storage.on_policy else OffPolicyActor


def _concrete(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield the concrete classes that the toolkit exports or that users define."""
    for cls in _subclasses(kind):
        if not inspect.isabstract(cls) and (cls.__name__ in prl.__all__ or not is_ours(cls)):
            yield cls


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _key(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
