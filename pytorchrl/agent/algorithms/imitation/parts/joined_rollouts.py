"""Rollouts of several storages that an algorithm learns from as if they were one."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from storages.storage import Storage
from storages.transition import DONE, RHS, Batch


class JoinedRollouts:
    """Makes batches of the rows of several rollouts, or of their sequences, which then have as many steps.

    Args:
        rollouts: each divides into as many batches as are asked for.
    """

    def __init__(self, rollouts: Sequence[Storage]) -> None:
        self._rollouts = rollouts

    def before_gradients(self) -> None:
        """Make returns and advantages of each."""
        for rollout in self._rollouts:
            rollout.before_gradients()

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None = None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Every transition of each once an epoch, as :class:`VanillaOnPolicyBuffer` makes batches."""
        each = [rollout.generate_batches(num_mini_batch, mini_batch_size, num_epochs) for rollout in self._rollouts]
        for batches in zip(*each, strict=True):
            # The steps of sequences are the first axis, and the memory before the first of them has none.
            axis = int(batches[0][DONE].ndim == 3)
            yield {key: _joined([batch[key] for batch in batches], 0 if key == RHS else axis) for key in batches[0]}

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing that rollouts have to say."""
        return dict(info)


def _joined(parts: Sequence[Any], axis: int) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts], axis) for name in parts[0]}
    return torch.cat(list(parts), dim=axis)
