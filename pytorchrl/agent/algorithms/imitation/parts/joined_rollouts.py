"""Several rollout storages that make joint batches."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from storages.storage import Storage
from storages.transition import DONE, RHS, Batch


class JoinedRollouts:
    """Concatenates the batches of several rollouts; their sequences must be of equal length.

    Args:
        rollouts: each must divide into the requested number of batches.
    """

    def __init__(self, rollouts: Sequence[Storage]) -> None:
        self._rollouts = rollouts

    def before_gradients(self) -> None:
        """Compute returns and advantages of each rollout."""
        for rollout in self._rollouts:
            rollout.before_gradients()

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None = None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """Yield batches with every transition once per epoch, as :class:`VanillaOnPolicyBuffer` does."""
        each = [rollout.generate_batches(num_mini_batch, mini_batch_size, num_epochs) for rollout in self._rollouts]
        for batches in zip(*each, strict=True):
            # In sequences, the first axis is time, which the initial recurrent state does not have.
            axis = int(batches[0][DONE].ndim == 3)
            yield {key: _joined([batch[key] for batch in batches], 0 if key == RHS else axis) for key in batches[0]}

    def after_gradients(self, batch: Batch, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return the info unchanged; rollouts have no metrics."""
        return dict(info)


def _joined(parts: Sequence[Any], axis: int) -> Any:
    if isinstance(parts[0], Mapping):
        return {name: _joined([part[name] for part in parts], axis) for name in parts[0]}
    return torch.cat(list(parts), dim=axis)
