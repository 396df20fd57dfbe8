"""Batches of all layouts (transitions, sequences, padded or packed episodes) as rows of steps."""

import copy
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from pytorchrl.agent.actors.bodies import flat
from pytorchrl.agent.actors.codec import ActionCodec
from pytorchrl.agent.actors.unrolling import Unrolling
from pytorchrl.agent.actors.view import NextSequenceSteps, Observations, SequenceSteps, View
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
    """The N steps of a batch, one per row: of transitions, sequences, or padded or packed episodes.

    ``rows.now`` are the observations (OBS) as networks take them, ``network(rows.now)``, and ``rows.next`` those that
    followed (OBS2); ``rows[REW]`` is another field, (N, ...). Weights of networks must not change while rows are in
    use, because features of observations are cached.

    Args:
        batch: of a storage; not modified.
        codec: of the actions.
        seen: OBS and OBS2 of the batch as networks take them, if these are not the batch's own; fields that are read by
            name are the batch's.
    """

    def __init__(self, batch: Batch, codec: ActionCodec, seen: Batch | None = None) -> None:
        self.batch = batch
        self._seen = batch if seen is None else seen
        self._codec = codec
        self._is_packed = BATCH_SIZES in batch
        is_padded = batch[REW].ndim == 3
        self._is_flat = not is_padded
        self._is_sequential = is_padded or self._is_packed
        self._make_views()

    def _make_views(self) -> None:
        self._unrolling = Unrolling(self._seen, self.batch) if self._is_sequential else None
        self.now: View = self._observations(OBS) if self._unrolling is None else SequenceSteps(self._unrolling)
        """The observations (OBS), as networks take them."""

    def _observations(self, key: str) -> Observations:
        return Observations(self._seen[key], self.batch[key])

    def without_features(self) -> Self:
        """Return the same rows without the features that they cache, for use after a change of weights."""
        fresh = copy.copy(self)
        following = vars(fresh).pop("next", None)
        fresh._make_views()
        if isinstance(self.now, Observations):
            fresh.now = self.now.without_features()
        if isinstance(following, Observations):
            vars(fresh)["next"] = following.without_features()
        return fresh

    @cached_property
    def next(self) -> View:
        """The observations that followed (OBS2), as networks take them."""
        return self._observations(OBS2) if self._unrolling is None else NextSequenceSteps(self._unrolling)

    @property
    def change(self) -> Tensor:
        """OBS2 - OBS (N, numbers) float32, flattened, of observations that are one array of numbers.

        Of a dict, it is that of the parts of floating-point numbers. They are subtracted before they are rounded to
        float32, which may have no digits for the difference.
        """
        obs: Any = self[OBS]
        following: Any = self[OBS2]
        if not isinstance(obs, Mapping):
            return _difference(obs, following)
        names = [name for name, part in obs.items() if part.is_floating_point()]
        return torch.cat([_difference(obs[name], following[name]) for name in names], dim=1)

    @cached_property
    def action(self) -> Tensor:
        """ACT (N, *action), in the representation of networks."""
        action: Tensor = self.batch[ACT]
        return self._codec.from_storage(action if self._is_flat else flat(action))

    @cached_property
    def next_action(self) -> Tensor:
        """ACT2 (N, *action), in the representation of networks; for algorithms that need next actions."""
        return self._codec.from_storage(self[ACT2])

    @property
    def next_action_taken(self) -> Tensor:
        """TAKEN2 (N, 1): 1 where the next action is known, else 0."""
        return self[TAKEN2]

    @property
    def reward(self) -> Tensor:
        """REW (N, 1)."""
        reward: Tensor = self.batch[REW]
        return reward if self._is_flat else flat(reward)

    @property
    def discount(self) -> Tensor:
        """DISCOUNT (N, 1)."""
        discount: Tensor = self.batch[DISCOUNT]
        return discount if self._is_flat else flat(discount)

    @cached_property
    def weight(self) -> Tensor:
        """(N, 1): weight of each row in a loss, including importance weights; without those it sums to 1."""
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
            weight = self.mean_weights
        return weight

    @cached_property
    def mean_weights(self) -> Tensor:
        """(N, 1): weight of each row in `mean`; they sum to 1."""
        if MASK not in self.batch:
            return torch.full_like(self.reward, 1 / len(self.reward))
        mask: Tensor = self.batch[MASK]
        return (mask / mask.sum()).flatten(0, 1)

    @property
    def share(self) -> Tensor:
        """The name of :attr:`mean_weights` in the version before."""
        warnings.warn("Rows.share is now named mean_weights", DeprecationWarning, stacklevel=2)
        return self.mean_weights

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean () of values (N, 1) over all rows but padding, without importance weights.

        Raises:
            ValueError: the values have another number of axes.
        """
        self._check_shape(values)
        if MASK not in self.batch:
            return values.mean()
        return (self.mean_weights * values).sum()

    def weighted_mean(self, values: Tensor) -> Tensor:
        """Return the mean () of values (N, 1), with importance weights.

        Raises:
            ValueError: the values have another number of axes.
        """
        self._check_shape(values)
        return (self.weight * values).sum()

    def standardised(self, values: Tensor) -> Tensor:
        """Return values (N, 1) with zero mean and unit standard deviation over all rows but padding."""
        if MASK not in self.batch:
            return values if len(values) == 1 else (values - values.mean()) / (values.std() + _TINY)
        centred, number = values - self.mean(values), self.batch[MASK].sum()
        variance: Tensor = self.mean(centred.square()) * number / (number - 1).clamp(min=1)
        return torch.where(number == 1, values, centred / (variance.sqrt() + _TINY))

    def softmax(self, values: Tensor) -> Tensor:
        """Return the softmax (N, 1) of values (N, 1) over all rows but padding, which gets 0."""
        return self._without_padding(values).softmax(0)

    def maximum(self, values: Tensor) -> Tensor:
        """Return the maximum () of values (N, 1) over all rows but padding."""
        return self._without_padding(values).max()

    def _check_shape(self, values: Tensor) -> None:
        """Refuse values such as (N,), which weights (N, 1) would be multiplied with to (N, N)."""
        if values.dim() != self.reward.dim():
            raise ValueError(
                f"Rows: the mean is of values (N, 1), got {tuple(values.shape)}; keep the last axis, as by sum(1, "
                f"keepdim=True)"
            )

    def _without_padding(self, values: Tensor) -> Tensor:
        """Return values (N, 1), with minus infinity in padding."""
        if MASK not in self.batch:
            return values
        return values.masked_fill(self.batch[MASK].flatten(0, 1) == 0, -torch.inf)

    def per_row(self, errors: Tensor) -> Tensor:
        """Return errors (N, 1) in the shape of the batch's rewards, for replay priorities."""
        return errors.view(self.batch[REW].shape)

    def __getitem__(self, key: str) -> Tensor:
        """Return a field as rows (N, ...)."""
        field: Tensor = self.batch[key] if self._is_flat else flat(self.batch[key])
        return field

    @property
    def count(self) -> int | Tensor:
        """Number of rows that are not padding; a 0-dimensional tensor if the batch has a mask."""
        return self.batch[MASK].sum() if MASK in self.batch else len(self)

    def __len__(self) -> int:
        return len(self.reward)


_TINY = 1e-8
"""Avoids division by 0 where all values are equal."""


def _difference(obs: Tensor, following: Tensor) -> Tensor:
    if obs.element_size() < 4:
        obs, following = obs.float(), following.float()
    return (following - obs).flatten(1).float()
