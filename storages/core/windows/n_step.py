"""What around a row a batch holds: one transition, or n of them summed up."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.step_windows import cut_discounts, discounted_sums, discounts_of, follow, next_steps
from storages.core.ring.ring import Ring
from storages.transition import ACT, ACT2, DISCOUNT, DONE2, IREW, REW, TAKEN2, Array

Gather: TypeAlias = Callable[..., dict[str, Any]]
"""As :meth:`storages.core.ring.ring.Ring.gather`."""


class Windows(NamedTuple):
    """Steps of one environment each, one after the other."""

    first: NDArray[np.int64]
    """(B,): numbers of the transitions that they begin with."""
    rows: NDArray[np.int64]
    """(B,): where these lie."""
    lengths: NDArray[np.int64]
    """(B,): their steps."""
    last: NDArray[np.int64]
    """(B,): numbers of the transitions that they end with."""
    discounts: NDArray[np.float32]
    """(B, 1): ``gamma**length``."""
    rewards: NDArray[np.floating]
    """(B, 1): the discounted sums of REW over them."""


def windows_of(ring: Ring, first: NDArray[np.int64], longest: int, gamma: float) -> Windows:
    """Windows of ``longest`` steps, cut where their episode ends, breaks off, or has not gone on yet."""
    count = len(first)
    followed, discounts = np.empty((3, count), np.int64), np.empty((count, 1), np.float32)
    rewards = ring.column(REW).reshape(-1, 1)
    sums = _room_for_sums(count, rewards)
    # No window is longer than what is stored, and the kernel's numbers of transitions must not overflow.
    if longest > ring.size:
        longest = ring.size
    follow(first, longest, ring.end, ring.envs, ring.final_numbers, gamma, rewards, followed, discounts, sums)
    rows, lengths, last = followed
    return Windows(first, rows, lengths, last, discounts, sums)


def one_step(gather: Gather, first: NDArray[np.int64], gamma: float, keys: set[str] | None = None) -> dict[str, Any]:
    """The fields of transitions, or some of them, and DISCOUNT: ``gamma``, 0 where the environment terminated."""
    fields = gather(first, keys)
    fields[DISCOUNT] = discounts_of(fields[DONE2], gamma)
    return fields


def n_steps(
    ring: Ring, gather: Gather, first: NDArray[np.int64], n: int, gamma: float, keys: set[str] | None = None
) -> dict[str, Any]:
    """The fields, or some of them, of windows of up to ``n`` steps as if each were one transition.

    Sutton and Barto, "Reinforcement Learning" (2018), equation 7.1: rewards are summed, discounted; what follows
    (OBS2, RHS2, DONE2, TRUNC2) is what followed the last step, and DISCOUNT is ``gamma**k`` for the ``k`` steps that
    the window has, 0 where the environment terminated. An end of either kind, and the newest step, end a window.
    """
    windows = windows_of(ring, first, n, gamma)
    fields = gather(first, keys, windows.last)
    if REW in fields:
        fields[REW] = windows.rewards
    if IREW in fields:
        fields[IREW] = sums(ring, IREW, windows, gamma)
    cut_discounts(fields[DONE2], windows.discounts)
    fields[DISCOUNT] = windows.discounts
    return fields


def next_actions(ring: Ring, last: NDArray[np.int64]) -> dict[str, Any]:
    """ACT2 and TAKEN2 of windows that end with some transitions (B,): ACT of those that continue them.

    Every action is stored once; where none continues a transition, ACT2 is its own action.
    """
    following, taken = np.empty_like(last), np.empty((len(last), 1), np.float32)
    next_steps(last, ring.end, ring.envs, ring.final_numbers, following, taken)
    return {ACT2: ring.gather_leaf((ACT,), following), TAKEN2: taken}


def sums(ring: Ring, key: str, windows: Windows, gamma: float) -> NDArray[np.floating]:
    """(B, 1): the discounted sum of a kind of reward over each window, of the dtype in which rewards are stored."""
    rewards = ring.column(key).reshape(-1, 1)
    out = _room_for_sums(len(windows.first), rewards)
    discounted_sums(windows.rows, windows.lengths, rewards, gamma, ring.envs, out)
    return out


def _room_for_sums(count: int, rewards: Array) -> NDArray[np.floating]:
    return np.empty((count, 1), rewards.dtype if rewards.dtype.kind == "f" else np.float32)
