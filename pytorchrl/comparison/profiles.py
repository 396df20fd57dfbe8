"""Performance profiles: the share of runs with more than a score."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pytorchrl.logging.bootstrap import CONFIDENCE, SEED, Floats

_RESAMPLES = 1_000


def thresholds(scores: Sequence[Floats]) -> Floats:
    """Return the scores at which profiles change, with one below and one above all of them."""
    every = np.unique(np.concatenate(scores))
    margin = 0.02 * (every[-1] - every[0]) or 1.0
    return np.concatenate([[every[0] - margin], every, [every[-1] + margin]])


def performance_profile(scores: Mapping[str, Floats], at: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the share of runs above each score, averaged over environments, with 95% bootstrap intervals.

    After Agarwal et al., 2021, equation 1 (score distribution).

    Args:
        scores: by environment, of shape (runs,).
        at: the scores, of shape (points,).

    Returns:
        The shares and the bounds of their intervals, which are NaN where an environment has a single run.
    """
    larger = [some[:, None] > at for some in scores.values()]  # (runs, points)
    shares = np.mean([of_env.mean(axis=0) for of_env in larger], axis=0)
    if min(map(len, larger)) < 2:
        return shares, np.full(len(at), np.nan), np.full(len(at), np.nan)
    generator = np.random.default_rng(SEED)
    drawn = np.mean([_resampled_shares(of_env, generator) for of_env in larger], axis=0)
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
    return shares, low, high


def _resampled_shares(larger: NDArray[np.bool_], generator: np.random.Generator) -> Floats:
    """Return the shares of bootstrap resamples, of shape (resamples, points)."""
    runs = len(larger)
    counts = generator.multinomial(runs, np.full(runs, 1 / runs), size=_RESAMPLES)  # (resamples, runs)
    return np.asarray(counts @ larger / runs, np.float64)
