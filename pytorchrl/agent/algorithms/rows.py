"""A batch as rows of steps, whether its actor has a memory or not, and however its steps lie."""

from functools import cached_property

import torch
from torch import Tensor

from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.memory import flat
from pytorchrl.agent.actors.unrolling import Unrolling
from pytorchrl.agent.actors.view import NextSteps, Observations, Steps, View
from storages.transition import (
    ACT,
    ACT2,
    BATCH_SIZES,
    DISCOUNT,
    EPISODE,
    MASK,
    OBS,
    OBS2,
    REW,
    TAKEN2,
    WEIGHTS,
    Batch,
)


class Rows:
    """The N steps of a batch, one a row: those of single transitions, of sequences, or of padded or packed episodes.

    Weights of networks must not change while rows are in use: what networks make of observations is computed once.

    Args:
        batch: as a storage makes it; not changed.
        codec: of the actions.
    """

    def __init__(self, batch: Batch, codec: ActionCodec) -> None:
        self.batch = batch
        self._codec = codec
        self._is_packed = BATCH_SIZES in batch
        is_padded = batch[REW].ndim == 3
        self._is_flat = not is_padded
        self._unrolling = Unrolling(batch) if is_padded or self._is_packed else None
        self.now: View = Observations(batch[OBS]) if self._unrolling is None else Steps(self._unrolling)
        """OBS."""

    @cached_property
    def next(self) -> View:
        """OBS2."""
        return Observations(self.batch[OBS2]) if self._unrolling is None else NextSteps(self._unrolling)

    @cached_property
    def action(self) -> Tensor:
        """ACT (N, *action), as networks have it."""
        return self._codec.from_storage(self[ACT])

    @cached_property
    def next_action(self) -> Tensor:
        """ACT2 (N, *action), as networks have it; in the batches of algorithms that need next actions."""
        return self._codec.from_storage(self[ACT2])

    @property
    def next_action_taken(self) -> Tensor:
        """TAKEN2 (N, 1): 1 where the next action was taken, 0 where none is known."""
        return self[TAKEN2]

    @property
    def reward(self) -> Tensor:
        """REW (N, 1)."""
        return self[REW]

    @property
    def discount(self) -> Tensor:
        """DISCOUNT (N, 1)."""
        return self[DISCOUNT]

    @cached_property
    def weight(self) -> Tensor:
        """(N, 1): what each row counts in a loss, importance weights in it; without those it sums to 1."""
        batch = self.batch
        weight: Tensor
        if self._is_packed:
            weight = batch[WEIGHTS][batch[EPISODE][:, 0]] / len(batch[EPISODE])
        elif MASK in batch:
            mask = batch[MASK]
            weight = (mask * batch.get(WEIGHTS, 1.0) / mask.sum()).flatten(0, 1)
        elif WEIGHTS in batch:
            weight = batch[WEIGHTS] / len(batch[WEIGHTS])
        else:
            weight = self.share
        return weight

    @cached_property
    def share(self) -> Tensor:
        """(N, 1): what each row counts in `mean`; sums to 1."""
        if MASK not in self.batch:
            return torch.full_like(self.reward, 1 / len(self.reward))
        mask: Tensor = self.batch[MASK]
        return (mask / mask.sum()).flatten(0, 1)

    def mean(self, values: Tensor) -> Tensor:
        """(): the mean of values (N, 1) over all rows that are not padding, without importance weights."""
        if MASK not in self.batch:
            return values.mean()
        return (self.share * values).sum()

    def weighted_mean(self, values: Tensor) -> Tensor:
        """(): the mean of values (N, 1), importance weights in it."""
        return (self.weight * values).sum()

    def standardised(self, values: Tensor) -> Tensor:
        """Values (N, 1) less their mean, over their standard deviation; both of all rows that are not padding."""
        if MASK not in self.batch:
            return values if len(values) == 1 else (values - values.mean()) / (values.std() + _TINY)
        centred, number = values - self.mean(values), self.batch[MASK].sum()
        variance: Tensor = self.mean(centred.square()) * number / (number - 1).clamp(min=1)
        return centred / (variance.sqrt() + _TINY)

    def softmax(self, values: Tensor) -> Tensor:
        """(N, 1): exponentials of values (N, 1) over their sum; both of all rows that are not padding, which have 0."""
        if MASK in self.batch:
            values = values.masked_fill(self.batch[MASK].flatten(0, 1) == 0, -torch.inf)
        return values.softmax(0)

    def per_row(self, errors: Tensor) -> Tensor:
        """Errors (N, 1) in the shape of the batch's rewards, for priorities."""
        return errors.view(self.batch[REW].shape)

    def __getitem__(self, key: str) -> Tensor:
        """A field as rows (N, ...)."""
        field: Tensor = self.batch[key] if self._is_flat else flat(self.batch[key])
        return field

    @property
    def count(self) -> int | Tensor:
        """How many rows are not padding; a tensor of no axes where some may be."""
        return self.batch[MASK].sum() if MASK in self.batch else len(self)

    def __len__(self) -> int:
        return len(self.reward)


_TINY = 1e-8
"""Keeps equal values from being divided by 0."""
