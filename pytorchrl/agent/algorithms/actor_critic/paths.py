"""Batches of trajectories in time-major layout, discounted sums along them, and Retrace's targets."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import ACT, BATCH_SIZES, DISCOUNT, DONE, EPISODE, MASK, OBS, OBS2, REW, WEIGHTS, Batch


class Paths:
    """Sequences or episodes, padded or packed, as B paths of T steps; a path may span several episodes.

    Args:
        rows: of one-step transitions.
    """

    def __init__(self, rows: Rows) -> None:
        batch = rows.batch
        self._places: Tensor | None = None
        """(N,): index of each packed row among T * B; None for padded rows."""
        if BATCH_SIZES in batch:
            sizes = batch[BATCH_SIZES]
            real = torch.arange(int(sizes[0])) < sizes[:, None]
            self._shape = (*real.shape, 1)
            self._places = real.flatten().nonzero()[:, 0].to(rows.reward.device)
            begins = self.in_time(rows[DONE])
            real_steps: Tensor | None = self.in_time(torch.ones_like(rows.reward))
        else:
            self._shape = tuple(batch[REW].shape)
            begins, real_steps = batch[DONE], batch.get(MASK)
        goes_on = 1 - begins[1:]
        if real_steps is not None:
            goes_on = goes_on * real_steps[1:]
        self.continues = F.pad(goes_on, (0, 0, 0, 0, 0, 1))
        """(T, B, 1): 1 where the next step of the path continues the episode."""

    def in_time(self, values: Tensor) -> Tensor:
        """Return rows (N, 1) as (T, B, 1), with 0 where there is no row."""
        if self._places is None:
            return values.view(self._shape)
        steps, paths, _ = self._shape
        return values.new_zeros((steps * paths, 1)).index_copy(0, self._places, values).view(self._shape)

    def rows(self, values: Tensor) -> Tensor:
        """Return values (T, B, 1) as rows (N, 1)."""
        flat = values.flatten(0, 1)
        return flat if self._places is None else flat[self._places]


class FirstSteps:
    """The first H steps of each of B sequences of a batch, of single transitions, or of episodes, as (H, B, ...).

    Args:
        rows: of one-step transitions.
        horizon: H; fewer where all are shorter.
    """

    def __init__(self, rows: Rows, horizon: int) -> None:
        self.all_rows, batch = rows, rows.batch
        """Of the batch."""
        number = torch.arange(len(rows), device=rows.reward.device).unsqueeze(1)
        if batch[REW].ndim == 2 and BATCH_SIZES not in batch:
            places, alive = number.T, torch.ones_like(rows.reward)[None]
        else:
            paths = Paths(rows)
            places = paths.in_time(number)[:horizon, :, 0]
            goes_on = paths.continues[: len(places) - 1]
            alive = torch.cat([torch.ones_like(paths.continues[:1]), goes_on]).cumprod(0)
        self.rows = places
        """(H, B) int64: which row each step is; another one where there is none."""
        self.alive = alive
        """(H, B, 1): 1 where a step continues the episode of the first."""

    def of(self, key: str) -> Tensor:
        """Return a field (H, B, ...)."""
        return self.all_rows[key][self.rows]

    @property
    def action(self) -> Tensor:
        """(H, B, *action), in the representation of networks."""
        return self.all_rows.action[self.rows]

    @property
    def weight(self) -> Tensor:
        """(B, 1): importance weights, ones without."""
        batch = self.all_rows.batch
        if WEIGHTS not in batch:
            return torch.ones_like(self.alive[0])
        # Packed episodes are in the order of their lengths, weights in that of the draws.
        weights: Tensor = batch[WEIGHTS]
        return weights[batch[EPISODE][self.rows[0], 0]] if BATCH_SIZES in batch else weights

    def transitions(self) -> Batch:
        """Return the first step of each as a batch of single transitions (B, ...)."""
        first = self.rows[0]
        fields = {key: field_of(self.all_rows, key, first) for key in (OBS, ACT, REW, OBS2, DISCOUNT)}
        return {**fields, WEIGHTS: self.weight}

    def returns(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return discounted sums of rewards (B, 1), the discount of what follows, and the last row (B,) of each."""
        total, factor, last = torch.zeros_like(self.alive[0]), torch.ones_like(self.alive[0]), self.rows[0]
        for alive, reward, discount, row in zip(self.alive, self.of(REW), self.of(DISCOUNT), self.rows, strict=True):
            total = total + alive * factor * reward
            factor = torch.where(alive > 0, factor * discount, factor)
            last = torch.where(alive[:, 0] > 0, row, last)
        return total, factor, last

    def per_row(self, errors: Tensor) -> Tensor:
        """Return errors (B, 1) of sequences in the shape of the batch's rewards, for replay priorities."""
        batch = self.all_rows.batch
        if BATCH_SIZES not in batch:
            return errors.expand_as(batch[REW])
        episode = batch[EPISODE][:, 0]
        return errors.new_empty(errors.shape).index_copy(0, episode[self.rows[0]], errors)[episode]


def field_of(rows: Rows, key: str, chosen: Tensor) -> Any:
    """Return a field (n, ...) of some rows, numbered (n,), or a dict of such, as the storage gave it."""
    field: Any = rows[key]
    return {name: part[chosen] for name, part in field.items()} if isinstance(field, dict) else field[chosen]


def retrace(paths: Paths, rows: Rows, taken: Tensor, value: Tensor, next_value: Tensor, trace: Tensor) -> Tensor:
    """Return targets (N, 1): ``r + discount * (trace' * (target' - Q(s', a')) + V(s'))``, backwards along paths.

    Munos et al., "Safe and Efficient Off-Policy Reinforcement Learning" (arXiv 1606.02647), equation 3, in the form of
    Wang et al. (arXiv 1611.01224), equation 5. Targets bootstrap on V(OBS2) where a path or an episode ends.

    Args:
        paths: time-major layout of the rows.
        rows: of one-step transitions.
        taken: (N, 1), Q of the actions taken.
        value: (N, 1), V of OBS.
        next_value: (N, 1), V of OBS2.
        trace: (N, 1), trace coefficient of each step: ``min(1, ratio)`` for Retrace, 1 for Q(lambda) with lambda of 1.
    """
    discount, coefficient = paths.in_time(rows.discount), paths.in_time(trace)
    follows = later(paths.in_time(value - trace * taken))
    continues = paths.continues
    expected = continues * follows + (1 - continues) * paths.in_time(next_value)
    terms = paths.in_time(rows.reward) + discount * expected
    targets, _ = discounted_sums(terms, discount * continues * later(coefficient), len(terms))
    return paths.rows(targets)


def sums_along_paths(
    rows: Rows, steps: int, log_prob: Tensor, value: Tensor, next_value: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``-V(s_0) + sum(discounted rewards) + discounted V(s_d)`` and ``sum(discounted log_prob)``, (N, 1) each.

    A path begins in each row, and bootstraps on 0 after termination, else on the value of the next state.

    Args:
        rows: of one-step transitions.
        steps: of a path (d); fewer where an episode or a segment ends.
        log_prob: (N, 1), of the actions taken.
        value: (N, 1), V of OBS.
        next_value: (N, 1), V of OBS2.
    """
    paths = Paths(rows)
    discount, continues, begin = paths.in_time(rows.discount), paths.continues, paths.in_time(value)
    factors = discount * continues
    bootstrapped = paths.in_time(rows.reward) + discount * (1 - continues) * paths.in_time(next_value)
    rewards, products = discounted_sums(bootstrapped, factors, steps)
    log_probs, _ = discounted_sums(paths.in_time(log_prob), factors, steps)
    return paths.rows(rewards + products * later(begin, steps) - begin), paths.rows(log_probs)


def later(values: Tensor, steps: int = 1) -> Tensor:
    """Return values (T, B, 1) shifted back by some steps, with 0 beyond the last."""
    return F.pad(values[steps:], (0, 0, 0, 0, 0, min(steps, len(values))))


def discounted_sums(terms: Tensor, factors: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return sums ``terms[t] + factors[t] * (terms[t + 1] + factors[t + 1] * (...))`` over a window from each t.

    Windows are composed of windows of 1, 2, 4, ... steps: the parallel scan of Hillis and Steele, "Data parallel
    algorithms" (Communications of the ACM 29, 1986). There is no division, so factors may be 0.

    Args:
        terms: (T, B, 1).
        factors: (T, B, 1), 0 at the last step.
        steps: in each window.

    Returns:
        The sums, and the product of the factors of each window, (T, B, 1) each.
    """
    steps = min(steps, len(terms))
    sums, products = torch.zeros_like(terms), torch.ones_like(factors)
    window, width, done = (terms, factors), 1, 0
    while True:
        if steps & width:
            sums = sums + products * later(window[0], done)
            products = products * later(window[1], done)
            done += width
        if done == steps:
            return sums, products
        in_window, across_window = window
        window = (
            in_window + across_window * later(in_window, width),
            across_window * later(across_window, width),
        )
        width *= 2
