"""Windows of single steps and n-step returns."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storages.core.kernels.step_windows import cut_discounts, follow, next_steps, step_discounts, sum_windows
from storages.core.kernels.uniform_draws import uniform_integers
from storages.core.parts import Gather, Window
from storages.core.ring.ring import Ring
from storages.transition import ACT, ACT2, DISCOUNT, DONE2, IREW, REW, REWC, RTG, TAKEN2, TRUNC2


class NSteps(Window):
    """Windows of up to ``n`` steps, each of which becomes one transition with an n-step return.

    Sutton and Barto, "Reinforcement Learning" (2018), equation 7.1: REW, IREW and each component in REWC are discounted
    sums of rewards; OBS2, RHS2, DONE2 and TRUNC2 are those of the last step, and DISCOUNT is ``gamma**k`` for a window
    of ``k`` steps, 0 where the environment terminated. A termination, a truncation and the newest step end a window.

    Args:
        n: maximum length of a window; 1 for single transitions.
    """

    def __init__(self, n: int = 1) -> None:
        self.n = n

    def begins(self, ring: Ring, first: int) -> tuple[int, int]:
        """Return the range of all transitions from ``first`` on."""
        return first, ring.steps * ring.envs

    def uniform(self, generator: np.random.Generator, ring: Ring, first: int, batch_size: int) -> NDArray[np.int64]:
        """Draw (batch_size,) transitions from ``first`` on, uniformly."""
        return uniform_integers(generator, first, ring.steps * ring.envs, batch_size)

    def step_fields(
        self, ring: Ring, gather: Gather, transitions: NDArray[np.int64], gamma: float, keys: set[str] | None = None
    ) -> dict[str, Any]:
        """Return the fields of windows that begin at transitions (N,)."""
        if self.n == 1:
            fields = gather(transitions, keys)
            fields[DISCOUNT] = step_discounts(fields[DONE2], gamma)
            return fields
        spans = spans_of(ring, transitions, self.n, gamma)
        fields = gather(transitions, keys, spans.last)
        if REW in fields:
            fields[REW] = spans.rewards
        if IREW in fields:
            fields[IREW] = discounted(ring, IREW, spans, gamma)
        if REWC in fields:
            fields[REWC] = discounted(ring, REWC, spans, gamma)
        cut_discounts(fields[DONE2], spans.discounts)
        fields[DISCOUNT] = spans.discounts
        return fields

    def spans(self, ring: Ring, transitions: NDArray[np.int64], gamma: float) -> "Spans":
        """Return the windows' spans."""
        return spans_of(ring, transitions, self.n, gamma)

    def reach(self, ring: Ring) -> int:
        """Return how many steps after its first one a window has at most."""
        return min(self.n, ring.size) - 1


class Spans(NamedTuple):
    """Runs of consecutive steps of one environment each."""

    first: NDArray[np.int64]
    """(B,): numbers of their first transitions."""
    last: NDArray[np.int64]
    """(B,): numbers of their last transitions."""
    discounts: NDArray[np.float32]
    """(B, 1): ``gamma**length``."""
    rewards: NDArray[np.floating]
    """(B, 1): discounted sums of rewards over them."""
    num_envs: int
    """Environments in a step."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(B,): numbers of steps."""
        return (self.last - self.first) // self.num_envs + 1


def spans_of(ring: Ring, first: NDArray[np.int64], longest: int, gamma: float) -> Spans:
    """Return spans of ``longest`` steps, shortened at the end or interruption of an episode and at the newest step."""
    count = len(first)
    last, discounts = np.empty(count, np.int64), np.empty((count, 1), np.float32)
    rewards = ring.columns.data(REW).reshape(-1, 1)
    sums = np.empty((count, 1), rewards.dtype if rewards.dtype.kind == "f" else np.float32)
    # No window is longer than the ring, and transition numbers must not overflow in the kernel.
    if longest > ring.size:
        longest = ring.size
    envs, numbers = ring.envs, ring.columns.final_numbers
    follow(first, longest, ring.steps * envs, envs, numbers, gamma, rewards, last, discounts, sums)
    return Spans(first, last, discounts, sums, envs)


def discounted(ring: Ring, key: str, spans: Spans, gamma: float) -> NDArray[np.floating]:
    """Return the discounted sums (B, m) of a field (m numbers for each transition) over spans."""
    rewards = ring.columns.data(key)
    rewards = rewards.reshape(-1, rewards.shape[-1])
    sums: NDArray[np.floating] = np.empty((len(spans.first), rewards.shape[1]), rewards.dtype)
    sum_windows(spans.first, spans.last, spans.num_envs, gamma, rewards, sums)
    return sums


def next_actions(ring: Ring, last: NDArray[np.int64]) -> dict[str, Any]:
    """Return ACT2 and TAKEN2 of windows that end at transitions (B,): the actions of the transitions after them.

    Where a transition has no continuation, ACT2 is its own action.
    """
    following, taken = np.empty_like(last), np.empty((len(last), 1), np.float32)
    next_steps(last, ring.end, ring.envs, ring.columns.final_numbers, following, taken)
    return {ACT2: ring.columns.gather_leaf((ACT,), following), TAKEN2: taken}


def returns_to_go(ring: Ring, transitions: NDArray[np.int64], gamma: float) -> dict[str, Any]:
    """Return RTG of transitions (B,): the discounted rewards to the end of the episode, NaN where it has not ended."""
    spans = spans_of(ring, transitions, ring.size, gamma)
    ends = ring.columns.gather_leaf((DONE2,), spans.last) + ring.columns.gather_leaf((TRUNC2,), spans.last)
    return {RTG: np.where(ends > 0, spans.rewards, np.nan).astype(np.float32)}
