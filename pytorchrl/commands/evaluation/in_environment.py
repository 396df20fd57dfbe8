"""`evaluate`: the mean return of a policy in its environment, with an interval, beside that of a baseline."""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.results import ActingStep
from pytorchrl.agent.explorers import Exploration
from pytorchrl.comparison.tables import shown, shown_interval
from pytorchrl.logging.bootstrap import CONFIDENCE, Estimate, estimate
from pytorchrl.logging.formats import counted
from pytorchrl.scheme.evaluation import Evaluation, random_actions

RANDOM = "random"
"""The baseline of uniformly random actions."""
_POWER = 0.8
_FEWEST = 10
"""Episodes below which a bootstrap interval is too narrow for a conclusion."""


class RandomBaseline:
    """Stands in for an algorithm in evaluations: uniformly random actions, of those that its mask allows.

    Args:
        algorithm: whose place it takes.
    """

    reads_rewards = False

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self.codec, self.device, self.actor = algorithm.codec, algorithm.device, algorithm.actor

    def acting_step(self, obs: Any, rhs: Any, done: Tensor, exploration: Exploration) -> ActingStep:
        """Choose actions in ``E`` environments; see :meth:`Algorithm.acting_step`."""
        action = random_actions(self._algorithm, obs, rhs, done, exploration)
        return ActingStep(action, action, rhs, {})


def described(result: Evaluation, acting: str = "") -> str:
    """Return the statistics of an evaluation in a line, with the 95% bootstrap interval of the mean.

    Args:
        result: of the evaluation.
        acting: how actions were chosen, after a comma; "" greedily.
    """
    returns = np.array(result.returns)
    interval = _interval(estimate([returns], "mean"))
    return (
        f"{counted(len(returns), 'episode')}{acting}: mean return {returns.mean():.2f}"
        f"{f' (95% interval {interval})' if interval else ''}, standard deviation {returns.std():.2f}, median "
        f"{np.median(returns):.2f}, from {returns.min():.2f} to {returns.max():.2f}; mean length "
        f"{np.mean(result.lengths):.1f}"
    )


def compared(name: str, result: Evaluation, baseline: str, other: Evaluation) -> str:
    """Say whether a policy is better than a baseline, by the differences of returns in pairs of episodes.

    Args:
        name: of the policy.
        result: of its evaluation.
        baseline: its name.
        other: of the baseline's evaluation, with the same number of episodes and the same seed.
    """
    differences = np.array(result.returns) - np.array(other.returns)
    found, count = estimate([differences], "mean"), len(differences)
    if count < _FEWEST:
        few = "1 episode is" if count == 1 else f"{count} episodes are"
        return f"{few} too few to say whether {name} is better than {baseline}: take at least {_FEWEST}, by --episodes."
    interval = _interval(found)
    if not interval:
        is_same = "the same return as" if found.value == 0 else f"{shown(abs(found.value))} {_more(found.value)} than"
        return f"{name} has {is_same} {baseline} in each of {count} episodes."
    by = f"the mean difference of returns is {shown(found.value)} (95% interval {interval})"
    above = f"it has the larger return in {int((differences > 0).sum())} of {count} episodes"
    if found.low > 0 or found.high < 0:
        return f"{name} is {'better' if found.low > 0 else 'worse'} than {baseline}: {by}, and {above}."
    needed = _episodes_needed(differences)
    more = f"; {needed:,} would, for a difference of this size" if needed is not None and needed > count else ""
    return f"{counted(count, 'episode')} do not tell {name} from {baseline}{more}: {by}, and {above}."


def _interval(found: Estimate) -> str:
    """Return the interval of a mean; "" where all numbers are equal, which does not show that others would be."""
    return "" if found.low == found.high else shown_interval(found)


def _more(difference: float) -> str:
    return "more" if difference > 0 else "less"


def _episodes_needed(differences: NDArray[np.float64]) -> int | None:
    """Return the episodes with which a t test at the 5% level has a power of 80%, in the normal approximation.

    None where the mean difference is 0.
    """
    mean = abs(float(differences.mean()))
    if mean == 0:
        return None
    quantiles = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) + NormalDist().inv_cdf(_POWER)
    return math.ceil((quantiles * float(differences.std(ddof=1)) / mean) ** 2)
