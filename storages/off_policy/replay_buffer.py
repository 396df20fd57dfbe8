"""The plain replay buffer: every stored transition is as likely as any other."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from storages.core import samplers
from storages.core.transfer import to_batch
from storages.hyper_parameters import Count
from storages.storage import Discounting, Environments, Storage
from storages.transition import DISCOUNT, DONE2, INDICES, WEIGHTS, Batch


class ReplayBuffer(Storage):
    """Uniform experience replay, after Lin, "Self-Improving Reactive Agents" (Machine Learning 8, 1992).

    Args:
        size: capacity along the time axis; ``size * num_envs`` transitions fit, the newest stay.
        allow_nonfinite: keep NaN and infinity in rewards and observations instead of refusing them.
    """

    on_policy = False

    def __init__(
        self,
        device: torch.device | str,
        actor: Any,
        algorithm: Discounting,
        envs: Environments | None,
        size: Count,
        *,
        allow_nonfinite: bool = False,
    ) -> None:
        super().__init__(device, actor, algorithm, envs, size, allow_nonfinite)

    def generate_batches(
        self, num_mini_batch: int, mini_batch_size: int | None, num_epochs: int = 1
    ) -> Iterator[Batch]:
        """``num_epochs * num_mini_batch`` batches of ``mini_batch_size`` transitions, drawn with replacement.

        Beside what was inserted, a batch holds DISCOUNT, WEIGHTS and INDICES.

        Raises:
            EmptyStorageError: nothing is stored yet.
            ValueError: a number is less than 1, or ``mini_batch_size`` None, which only on-policy storages make sense
                of.
        """
        self._refuse_if_empty()
        if mini_batch_size is None:
            raise ValueError(f"{type(self).__name__}: a replay buffer needs a mini_batch_size, got None")
        for name, number in (
            ("num_mini_batch", num_mini_batch),
            ("mini_batch_size", mini_batch_size),
            ("num_epochs", num_epochs),
        ):
            if number < 1:
                raise ValueError(f"{type(self).__name__}: {name} must be at least 1, got {number}")
        return (self._batch(mini_batch_size) for _ in range(num_epochs * num_mini_batch))

    def _batch(self, batch_size: int) -> Batch:
        ring, envs = self._ring, self.num_envs
        transitions = samplers.uniform(self._generator, ring.oldest * envs, ring.steps * envs, batch_size)
        fields = ring.gather(transitions)
        fields[DISCOUNT] = np.where(fields[DONE2], np.float32(0), np.float32(self.algorithm.gamma))
        fields[WEIGHTS] = np.ones((batch_size, 1), np.float32)
        fields[INDICES] = transitions[:, None]
        return to_batch(fields, self.device)
