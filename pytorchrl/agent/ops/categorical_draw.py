"""Sampling of categorical actions with their log probabilities, by one compiled call instead of seven operations."""

import numpy as np
import torch
from numba.np.numpy_support import carray
from torch import Tensor

from pytorchrl.agent.ops.dispatch import is_recorded, new_results, plain_address
from storages.core.kernels.compilation import kernel
from storages.core.kernels.memory import pointer


def draw_actions(logits: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor] | None:
    """Draw actions in inference mode; return None where torch has to do it.

    Args:
        logits: (B, k), unnormalised log probabilities.
        generator: random generator.

    Returns:
        Actions (B, 1) int64 and their log probabilities (B, 1).
    """
    if is_recorded() or not torch.is_inference_mode_enabled() or logits.dim() != 2:
        return None
    logits_at = plain_address(logits)
    if logits_at is None:
        return None
    rows, count = logits.shape
    # The numbers of `torch.rand`, without its overhead.
    action, log_prob = new_results((rows, 1), np.int64), new_results((rows, 1)).uniform_(generator=generator)
    _draw(logits_at, action.data_ptr(), log_prob.data_ptr(), rows, count)
    return action, log_prob


@kernel
def _draw(logits_at: int, actions_at: int, numbers_at: int, rows: int, count: int) -> None:
    """Write actions, and overwrite numbers drawn uniformly from [0, 1) by the log probabilities."""
    logits = carray(pointer(logits_at), (rows, count), np.float32)
    actions = carray(pointer(actions_at), rows, np.int64)
    numbers = carray(pointer(numbers_at), rows, np.float32)
    weights = np.empty(count, np.float32)
    for row in range(rows):
        largest = logits[row, 0]
        for action in range(1, count):
            # Written so that NaN stays NaN.
            if not logits[row, action] <= largest:
                largest = logits[row, action]
        total = np.float32(0.0)
        for action in range(count):
            weights[action] = np.exp(logits[row, action] - largest)
            total += weights[action]
        # Inverse transform sampling, in which no action of probability 0 is chosen.
        left, chosen = numbers[row] * total, 0
        for action in range(count):
            if weights[action] > 0:
                chosen = action
                left -= weights[action]
                if left < 0:
                    break
        actions[row] = chosen
        numbers[row] = logits[row, chosen] - largest - np.log(total)
