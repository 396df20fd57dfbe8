"""Requirements of an algorithm on the storages that it learns from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from storages.storage import Storage

SourceKind: TypeAlias = Literal["rollout", "replay", "any"]


@dataclass(frozen=True)
class Needs:
    """Requirements of an algorithm on one of its sources.

    Args:
        kind: "rollout" needs trajectories of the current policy, with advantages and returns; "replay" needs
            transitions with next observations; "any" needs observations and actions alone.
        collected: whether transitions of the environments are inserted into it.
        sequences: whether an actor without a memory may learn from sequences.
        optional: whether the algorithm can run without the source.
        partial: whether it learns from rollouts before they are full.
        log_probs: whether it stores log-probabilities of actions in rollouts, and its actor can recompute them.
        action_values: whether its actor computes the values of the actions in a rollout.
        next_actions: whether its batches must hold the next actions.
        values: whether it stores values of observations in rollouts, and its actor can compute others.
        older_policies: whether rollouts may come from older policies, for which the storage must correct.
        intrinsic: whether it stores intrinsic rewards in rollouts, from which the storage must compute returns.
        segments: whether it learns from the newest steps of all environments and from replayed sequences or episodes,
            both of one-step transitions; with or without a memory.
        returns_to_go: whether its batches must hold returns-to-go.
        single_steps: whether transitions must be one-step.
        whole_episodes: whether its batches must be whole padded episodes of one-step transitions.
        multi_step_rows: whether its batches must be of sequences or episodes; with or without a memory.
    """

    kind: SourceKind
    collected: bool = True
    sequences: bool = False
    optional: bool = False
    partial: bool = False
    log_probs: bool = True
    action_values: bool = False
    next_actions: bool = False
    values: bool = True
    older_policies: bool = False
    intrinsic: bool = False
    segments: bool = False
    returns_to_go: bool = False
    single_steps: bool = False
    whole_episodes: bool = False
    multi_step_rows: bool = False

    def request_fields(self, storage: "Storage") -> None:
        """Let a storage add the fields to its batches that the algorithm needs beside the inserted ones."""
        if self.next_actions:
            storage.include_next_actions()
        if self.returns_to_go:
            storage.include_returns_to_go()
