"""What an algorithm needs of a source of batches."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

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
        partial: whether it learns from rollouts before they are full.
        log_probs: whether it gives rollouts the log probabilities of actions, and its actor tells them anew.
        action_values: whether its actor tells the values of actions that a rollout holds.
        next_actions: whether its batches must hold the actions that were taken next.
        values: whether it gives rollouts the values of observations, and its actor tells those of others.
        older_policies: whether rollouts may be of older policies, for which the storage must correct.
        intrinsic: whether it gives rollouts intrinsic rewards, of which the storage must make returns.
        segments: whether it learns from the newest steps of all environments, and from replayed sequences or episodes,
            of single steps each; with or without a memory.
        returns_to_go: whether its batches must hold what the data earned from each step to the end of its episode.
        single_steps: whether what followed must have followed one step later.
        whole_episodes: whether its batches must be of whole episodes, padded, of single steps each.
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
