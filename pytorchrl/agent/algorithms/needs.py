"""What an algorithm needs of a source of batches, and whether a storage provides it."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from storages.factory import Factory
from storages.storage import Storage

SourceKind: TypeAlias = Literal["rollout", "replay", "any"]


@dataclass(frozen=True)
class Needs:
    """What an algorithm needs of one of its sources.

    Args:
        kind: "rollout" needs what the current policy did, with advantages and returns; "replay" needs transitions with
            what followed them; "any" needs observations and actions alone.
        collected: whether the environments' steps are inserted into it.
        sequences: whether an actor without a memory may learn from sequences.
        optional: whether the algorithm does without the source.
    """

    kind: SourceKind
    collected: bool = True
    sequences: bool = False
    optional: bool = False


def mismatch(needs: Needs, algorithm: str, actor: Factory[Any], storage: Factory[Storage]) -> str | None:
    """Why a storage cannot be a source for an algorithm, and what could; None where it can."""
    if needs.kind == "rollout" and not storage.cls.on_policy:
        return (
            f"{algorithm} learns on-policy, but {storage.name} keeps what older policies did; GAEBuffer and "
            f"VanillaOnPolicyBuffer hold rollouts"
        )
    if needs.kind == "rollout":
        return None
    if storage.cls.on_policy:
        return (
            f"{algorithm} learns from replayed transitions, but {storage.name} holds one rollout of the current "
            f"policy; ReplayBuffer keeps them"
        )
    memory, sequences = (f.hyper_parameters.get(n) for f, n in ((actor, "memory"), (storage, "sequences")))
    if memory is not None and sequences is None:
        return (
            f"{actor.name} has a memory ({memory}), which learns from sequences, but {storage.name} makes batches of "
            f"single transitions; give it sequences=Sequences(length=...) or sequences=Episodes()"
        )
    if memory is None and sequences is not None and not needs.sequences:
        return (
            f"{storage.name} makes batches of {sequences}, but {actor.name} has no memory to learn from them; give it "
            f'memory="gru", or the storage sequences=None'
        )
    return None
