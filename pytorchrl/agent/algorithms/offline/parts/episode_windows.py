"""Windows of a few steps of whole episodes, and the returns that follow each step."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from storages.transition import ACT, MASK, OBS, REW, WEIGHTS, Batch


class Windows(NamedTuple):
    """N windows of K steps each, of one episode each; what fills a window up repeats its last step."""

    obs: Any
    """(N * K, *obs), or a dict of such, the steps of a window one after the other."""
    action: Tensor
    """(N * K, *action), as stored."""
    returns: Tensor
    """(N, K, 1): sums of rewards from a step on to the end of its episode."""
    first: Tensor
    """(N, 1) int64: where in its episode a window begins."""
    weight: Tensor
    """(N, K, 1): what a step counts in a loss, 0 where a window is filled up; the sum is that of importance weights
    over their number."""
    episode_returns: Tensor
    """(B, 1): of the batch's episodes."""

    def per_episode(self, values: Tensor) -> Tensor:
        """(B, 1): the mean of values (N, K, 1) over the steps of an episode's windows."""
        episodes = len(self.episode_returns)
        real = (self.weight > 0).float()
        sums = [each.view(-1, episodes, *each.shape[1:]).sum((0, 2)) for each in (real * values, real)]
        return sums[0] / sums[1]


def draw_windows(batch: Batch, length: int, each: int, generator: torch.Generator) -> Windows:
    """Windows that begin at any step of their episode, which all are as likely.

    Windows of an episode count as much as it has steps, so that each step of the data is as likely a beginning,
    although a storage draws short and long episodes alike.

    Args:
        batch: of whole episodes (T, B, ...), padded.
        length: K, steps of a window.
        each: windows of each episode; N is so many times B.
        generator: of the beginnings.
    """
    mask = batch[MASK]
    lengths = mask.sum(0).long()[:, 0].repeat(each)
    returns = (batch[REW] * mask).flip(0).cumsum(0).flip(0)
    drawn = torch.empty(len(lengths), device=mask.device).uniform_(generator=generator)
    # Rounding may make the product the length itself.
    first = (drawn * lengths).long().minimum(lengths - 1)
    steps = first[:, None] + torch.arange(length, device=mask.device)
    is_real = steps < lengths[:, None]
    steps = steps.minimum(lengths[:, None] - 1)
    episodes = torch.arange(mask.shape[1], device=mask.device).repeat(each)[:, None]
    share = is_real * lengths[:, None]
    weight = share / share.sum()
    if WEIGHTS in batch:
        weight = weight * batch[WEIGHTS][episodes[:, 0]]
    return Windows(
        _taken(batch[OBS], steps, episodes),
        _taken(batch[ACT], steps, episodes),
        returns[steps, episodes],
        first[:, None],
        weight[..., None],
        returns[0],
    )


def _taken(field: Any, steps: Tensor, episodes: Tensor) -> Any:
    if isinstance(field, dict):
        return {name: _taken(part, steps, episodes) for name, part in field.items()}
    return field[steps, episodes].flatten(0, 1)
