"""The words: what the fields of a transition are called, everywhere.

A *transition* is what one environment step adds. A *step* holds one transition for each of ``E`` environments, so the
shapes below are those of a step; a batch of ``B`` transitions has ``B`` in the place of ``E``. Scalars keep their
trailing axis of one. Flags (:data:`FLAGS`) may come in as any numeric or boolean type, take one byte each in a storage
and leave it as float32, ready to be multiplied with. Whole numbers and half precision (float16, bfloat16) in the other
scalars (:data:`SCALARS`), such as rewards, are kept as float32, because batches hold their discounted sums. Every other
dtype is kept as it came.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

OBS = "Observation"
"""(E, *obs) or a dict of such: what the actor saw, dtype as the environment gives it."""
RHS = "RecurrentHiddenStates"
"""(E, *hidden): the actor's memory before OBS; absent unless the actor is recurrent."""
DONE = "Done"
"""(E, 1) flag: OBS is the first of an episode (memory starts anew)."""
ACT = "Action"
"""(E, *action): what the actor did."""
REW = "Reward"
"""(E, 1): what the environment paid for it."""
IREW = "IntrinsicReward"
"""(E, 1): what curiosity paid; absent unless an algorithm gives it."""
OBS2 = "NextObservation"
"""As OBS: what followed; the true last observation where an episode ended."""
RHS2 = "NextRecurrentHiddenStates"
"""As RHS: the memory before OBS2."""
DONE2 = "NextDone"
"""(E, 1) flag: the environment *terminated*, OBS2 has no value."""
TRUNC2 = "NextTruncated"
"""(E, 1) flag: a limit *cut* the episode, OBS2 still has value. Absent means never."""
SKIPPED = "Skipped"
"""(E, 1) flag: the environment made no transition, it began its next episode in a step of all. Batches are made without
such rows, which are episodes of one step to their neighbours (DONE and TRUNC2). Absent means never."""
ACTPROBS = "ActionProbs"
"""(E, n): probabilities (or log probability) under the acting policy."""

RTG = "ReturnToGo"
"""(E, 1): rewards from this step to the end of the episode, of data sets that are asked for it."""
INFO = "Info"
"""A dict of (E, 1) or (E, *info): what the environment reported of the step; those that a storage asks for."""

VAL = "Value"
"""(E, 1): the critic's value of OBS when acting."""
LOGP = "LogProbability"
"""(E, 1): log probability of ACT under the acting policy."""
ADV = "Advantage"
"""(E, 1): advantage of ACT, made by ``before_gradients``."""
RET = "ExternalReturn"
"""(E, 1): return that VAL should have predicted, made by ``before_gradients``."""
IVAL = "IntrinsicValue"
"""(E, 1): as VAL, for IREW."""
IADV = "IntrinsicAdvantage"
"""(E, 1): as ADV, for IREW."""
IRET = "IntrinsicReturn"
"""(E, 1): as RET, for IREW."""

DISCOUNT = "Discount"
"""(B, 1), off-policy batches: what the value of OBS2 is multiplied by, 0 where the environment terminated."""
WEIGHTS = "Weights"
"""(B, 1), off-policy batches: importance weights, ones unless prioritised."""
INDICES = "Indices"
"""(B, 1) int64, off-policy batches: which transitions these are. Numbers only grow: from 0 for the first ever inserted,
and after ``reset()`` on from a larger one, so that none stands for two transitions."""
ACT2 = "NextAction"
"""(B, *action) as ACT, off-policy batches of an algorithm that asks for it: what the actor did next, after OBS2; where
that is not known, ACT of the step before OBS2."""
TAKEN2 = "NextActionTaken"
"""(B, 1) float32, beside ACT2: 1 where ACT2 was done after OBS2; 0 where the episode ended or broke off there, and at
the newest step."""

MASK = "Mask"
"""(T, B, 1) float32, batches of sequences: 1 where a step is real, 0 where it repeats the last one."""
WINDOW = "Window"
"""(T, B, 1) int64, batches of sequences: steps k in the n-step window of a step; OBS2 followed k - 1 steps later."""
BURN_IN = "BurnIn"
"""Batches of sequences: OBS (b, B, ...), DONE (b, B, 1) and RHS (B, *hidden) of the steps that warm the memory up."""
LEAD_OUT = "LeadOut"
"""Batches of sequences: OBS and DONE of the n - 1 steps after them, which lead up to the last OBS2."""

BATCH_SIZES = "BatchSizes"
"""(T,) int64, packed episodes: how many have a step t; on the CPU. As of a ``torch.nn.utils.rnn.PackedSequence``."""
SORTED_INDICES = "SortedIndices"
"""(B,) int64, packed episodes: which of them the rows of each step are of, the longest first."""
UNSORTED_INDICES = "UnsortedIndices"
"""(B,) int64, packed episodes: where each of them is among the sorted ones."""
EPISODE = "Episode"
"""(N, 1) int64, packed episodes: which of them a row is of, ``WEIGHTS[EPISODE[:, 0]]`` is its weight."""

SOURCE_SIZES = "SourceSizes"
"""(S,) int64, batches of several storages: how many of the B rows, sequences or episodes each gave; on the CPU. Those
of the first come first, in the order of INDICES."""

ERRORS = "Errors"
"""(B, 1), or (T, B, 1) for sequences, (N, 1) for packed episodes, in the ``info`` of an update: the error of each row,
which priorities follow."""

FLAGS = frozenset({DONE, DONE2, TRUNC2, SKIPPED})
SUCCESSORS = {OBS2: OBS, RHS2: RHS}
"""Fields that repeat what the next step begins with, and the field they repeat."""
SCALARS = (DONE, DONE2, TRUNC2, SKIPPED, REW, IREW, VAL, LOGP, IVAL)
"""Fields of shape (E, 1)."""
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
"""Fields that batches add; no sample may have them."""
REQUIRED = (OBS, DONE, ACT, REW, OBS2, DONE2)
"""What every inserted sample must hold."""

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Leaf: TypeAlias = Array | torch.Tensor
Sample: TypeAlias = Mapping[str, Leaf | Mapping[str, Leaf]]
Batch: TypeAlias = dict[str, Any]
"""A dict of tensors; OBS and OBS2 are dicts of tensors where the environment's observation is a dict."""
