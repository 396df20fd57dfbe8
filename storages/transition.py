"""Names, shapes and dtypes of the fields of a transition.

A *transition* is what one environment step adds. A *step* holds one transition for each of ``E`` environments, so the
shapes below are those of a step; a batch of ``B`` transitions has ``B`` in the place of ``E``. Scalars keep their
trailing axis of one. Flags (:data:`FLAGS`) may be inserted as any numeric or boolean dtype, are stored in one byte
each, and are float32 in batches, ready to be multiplied with. Integers and half precision (float16, bfloat16) in the
other scalars (:data:`SCALARS`), such as rewards, and in components of rewards, are stored as float32, because batches
hold their discounted sums.
Any other dtype is kept.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

OBS = "Observation"
"""(E, *obs) or a dict of such: observation, in the environment's dtype."""
RHS = "RecurrentHiddenStates"
"""(E, *hidden): the actor's recurrent state before OBS; absent unless the actor is recurrent."""
DONE = "Done"
"""(E, 1) flag: OBS is the first of an episode (the recurrent state is reset)."""
ACT = "Action"
"""(E, *action): action."""
REW = "Reward"
"""(E, 1): reward of the environment."""
IREW = "IntrinsicReward"
"""(E, 1): intrinsic reward, such as a curiosity bonus; absent unless an algorithm has one."""
REWC = "RewardComponents"
"""(E, m): components of the reward, whose weighted sum an algorithm maximises; absent unless an algorithm has them."""
OBS2 = "NextObservation"
"""As OBS: next observation; where an episode ended, its final observation, not that after the reset."""
RHS2 = "NextRecurrentHiddenStates"
"""As RHS: the recurrent state before OBS2."""
DONE2 = "NextDone"
"""(E, 1) flag: the environment *terminated*; the value of OBS2 is 0."""
TRUNC2 = "NextTruncated"
"""(E, 1) flag: the episode was *truncated*, as by a time limit; OBS2 is bootstrapped from. Absent means never."""
SKIPPED = "Skipped"
"""(E, 1) flag: the environment made no transition, because it was reset while the others stepped. Batches exclude such
rows, which are marked as episodes of one step (DONE and TRUNC2). Absent means never."""
ACTPROBS = "ActionProbs"
"""(E, n): probabilities (or log-probability) under the behaviour policy."""

RTG = "ReturnToGo"
"""(E, 1): discounted return from this step to the end of the episode, on request; NaN where it has not ended."""
INFO = "Info"
"""A dict of (E, 1) or (E, *info): those entries of the environment's info that a storage asks for."""

VAL = "Value"
"""(E, 1): the critic's value of OBS at the time of acting."""
LOGP = "LogProbability"
"""(E, 1): log-probability of ACT under the behaviour policy."""
ADV = "Advantage"
"""(E, 1): advantage of ACT, computed by ``before_gradients``."""
RET = "ExternalReturn"
"""(E, 1): return, the regression target of VAL, computed by ``before_gradients``."""
IVAL = "IntrinsicValue"
"""(E, 1): as VAL, for IREW."""
IADV = "IntrinsicAdvantage"
"""(E, 1): as ADV, for IREW."""
IRET = "IntrinsicReturn"
"""(E, 1): as RET, for IREW."""

DISCOUNT = "Discount"
"""(B, 1), off-policy batches: factor of the bootstrapped value of OBS2, 0 where the environment terminated."""
WEIGHTS = "Weights"
"""(B, 1), off-policy batches: importance weights, 1 unless prioritised."""
INDICES = "Indices"
"""(B, 1) int64, off-policy batches: numbers of the transitions. They increase from 0 with each insertion, also
after ``reset()``; a loaded state continues those of the storage that it was saved by."""
ACT2 = "NextAction"
"""(B, *action), as ACT, off-policy batches of algorithms that need it: the action taken in OBS2; where it is not known,
ACT of the step before OBS2."""
TAKEN2 = "NextActionTaken"
"""(B, 1) float32, beside ACT2: 1 where ACT2 was taken in OBS2; 0 where the episode ended or was interrupted there, and
at the newest step."""

MASK = "Mask"
"""(T, B, 1) float32, batches of sequences: 1 where a step is real, 0 where it repeats the last one."""
WINDOW = "Window"
"""(T, B, 1) int64, batches of sequences: length k of a step's n-step window; OBS2 is that of the step k - 1 later."""
BURN_IN = "BurnIn"
"""Batches of sequences: OBS (b, B, ...), ACT (b, B, *action), DONE (b, B, 1) and MASK (b, B, 1) of the burn-in steps
before them.

Where a step is missing, because an episode began or an older one is not stored, the first real step is repeated in
front as padding; RHS (B, *hidden) is the recurrent state before the first real step, which padding must not change.
"""
LEAD_OUT = "LeadOut"
"""Batches of sequences: OBS and DONE of the n - 1 steps after them, up to OBS2 of the last n-step window."""

BATCH_SIZES = "BatchSizes"
"""(T,) int64, packed episodes: how many have a step t; on the CPU. As in ``torch.nn.utils.rnn.PackedSequence``."""
SORTED_INDICES = "SortedIndices"
"""(B,) int64, packed episodes: their indices by length, the longest first; the order of the rows of each step."""
UNSORTED_INDICES = "UnsortedIndices"
"""(B,) int64, packed episodes: the position of each in SORTED_INDICES."""
EPISODE = "Episode"
"""(N, 1) int64, packed episodes: index of each row's episode; ``WEIGHTS[EPISODE[:, 0]]`` are the rows' weights."""

SOURCE_SIZES = "SourceSizes"
"""(S,) int64, batches of several storages: how many of the B rows, sequences or episodes come from each, in the order
of INDICES; on the CPU."""

ERRORS = "Errors"
"""(B, 1), or (T, B, 1) for sequences, (N, 1) for packed episodes, in the ``info`` of an update: the TD error of each
row, from which priorities are computed."""
OF_ROWS = frozenset({ERRORS, RHS})
"""What the ``info`` of an update may hold for each row, beside its metrics."""

FLAGS = frozenset({DONE, DONE2, TRUNC2, SKIPPED})
SUCCESSORS = {OBS2: OBS, RHS2: RHS}
"""Fields of the next state, and the field of the following step that holds the same values."""
SCALARS = (DONE, DONE2, TRUNC2, SKIPPED, REW, IREW, VAL, LOGP, IVAL)
"""Fields of shape (E, 1)."""
SINGLES = frozenset({*SCALARS, REWC})
"""Fields whose integers and half precision are stored as float32."""
BATCH_FIELDS = frozenset(
    {
        DISCOUNT,
        WEIGHTS,
        INDICES,
        ACT2,
        TAKEN2,
        MASK,
        WINDOW,
        BURN_IN,
        LEAD_OUT,
        BATCH_SIZES,
        SORTED_INDICES,
        UNSORTED_INDICES,
        EPISODE,
        SOURCE_SIZES,
    }
)
"""Fields that exist only in batches; samples must not have them."""
REQUIRED = (OBS, DONE, ACT, REW, OBS2, DONE2)
"""Fields that every inserted sample must have."""

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Leaf: TypeAlias = Array | torch.Tensor
Sample: TypeAlias = Mapping[str, Leaf | Mapping[str, Leaf]]
Batch: TypeAlias = dict[str, Any]
"""A dict of tensors; OBS and OBS2 are dicts of tensors where the environment's observation is a dict."""
