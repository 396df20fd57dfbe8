"""Random windows of steps from whole episodes, with returns-to-go."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from storages.transition import ACT, MASK, OBS, REW, WEIGHTS, Batch


class Windows(NamedTuple):
    """N windows of K steps within an episode; padding repeats the last step."""

    obs: Any
    """(N * K, *obs), or a dict of such, the steps of a window consecutively."""
    action: Tensor
    """(N * K, *action), as stored."""
    returns: Tensor
    """(N, K, 1): undiscounted returns-to-go."""
    first: Tensor
    """(N, 1) int64: timestep at which a window begins."""
    weight: Tensor
    """(N, K, 1): weight of each step in a loss, 0 for padding; sums to 1 without importance weights, which multiply
    it."""
    episode_returns: Tensor
    """(B, 1): returns of the batch's episodes."""

    def per_episode(self, values: Tensor) -> Tensor:
        """Return the mean (B, 1) of values (N, K, 1) over the steps of an episode's windows."""
        episodes = len(self.episode_returns)
        real = (self.weight > 0).float()
        sums = [each.view(-1, episodes, *each.shape[1:]).sum((0, 2)) for each in (real * values, real)]
        return sums[0] / sums[1]


def draw_windows(batch: Batch, length: int, each: int, generator: torch.Generator) -> Windows:
    """Draw windows that begin at uniformly drawn steps of their episodes.

    Windows are weighted by the length of their episode, because storages draw episodes with equal probability: each
    step of the data is then equally likely as a beginning.

    Args:
        batch: of whole episodes (T, B, ...), padded.
        length: K, steps of a window.
        each: windows per episode, so that N is ``each * B``.
        generator: of random numbers.
    """
    mask = batch[MASK]
    lengths = mask.sum(0).long()[:, 0].repeat(each)
    returns = (batch[REW] * mask).flip(0).cumsum(0).flip(0)
    drawn = torch.empty(len(lengths), device=mask.device).uniform_(generator=generator)
    # Rounding can make the product equal to the length.
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
