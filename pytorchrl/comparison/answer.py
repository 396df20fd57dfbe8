"""What a comparison says, in a few sentences: which group is best, and how sure that is."""

from pytorchrl.comparison.improvement import Improvement, improvement
from pytorchrl.comparison.results import Comparison, GroupResult
from pytorchrl.comparison.tables import shown, shown_interval

_MORE_IS_BETTER = frozenset(
    {"return", "return_median", "return_min", "return_max", "shaped_return", "normalized_score", "is_success"}
    | {"fitted_q_value"}
)
"""Metrics, by their names in their groups, of which more is better."""
_HALF = 0.5
"""Probability of improvement where neither group is better."""


def answer_of(comparison: Comparison) -> str:
    """Say which group has the highest interquartile mean, and whether there are seeds enough to be sure of it.

    The best group is compared with the next one, however the baseline was chosen.
    """
    results = sorted(comparison.main, key=lambda result: -result.iqm.value)
    if not results:
        return f"No group has runs in all of {', '.join(comparison.environments)}, so that none is best over all."
    best, *others = results
    if not others:
        return f"{best.name} reaches {_figures(best)}. {_of_one(best)}"
    second = others[0]
    pairs = [(best.scores[env], second.scores[env]) for env in best.scores if env in second.scores]
    better = improvement(best.name, [one for one, _ in pairs], second.name, [other for _, other in pairs])
    of_all = f", the next of {len(results)}" if len(results) > 2 else ""
    figures = f"{_figures(best)} against {_figures(second)}. {_chance(better)}"
    if not is_return(comparison.metric):
        metric, is_same = comparison.metric, best.iqm.value == second.iqm.value
        relation = f"has the same {metric} as" if is_same else f"has a higher {metric} than"
        return (
            f"{best.name} {relation} {second.name}{of_all}: {figures} It is no return, so that it does not say which "
            f"is better."
        )
    return f"{best.name} {_relation(best, second, better)} {second.name}{of_all}: {figures} {_how_sure(better)}"


def is_return(metric: str) -> bool:
    """Whether more of a metric is better, as of returns, scores and values that are fitted to other data."""
    return metric.rpartition("/")[2] in _MORE_IS_BETTER


def _relation(best: GroupResult, second: GroupResult, better: Improvement) -> str:
    """Return how the best group stands to the next: "ahead" only where its runs mostly score more."""
    if best.iqm.value == second.iqm.value:
        return "has the same mean as"
    return "is ahead of" if better.probability.value > _HALF else "has a higher mean than"


def _figures(result: GroupResult) -> str:
    """Return the mean with its interval: ``246.7 (95% interval [227.6, 268.5], 3 seeds)``."""
    seeds = "1 seed" if result.seeds == "1" else f"{result.seeds} seeds"
    interval = shown_interval(result.iqm)
    return f"{shown(result.iqm.value)} ({f'95% interval {interval}, ' if interval else ''}{seeds})"


def _of_one(result: GroupResult) -> str:
    if len(result.runs) == 1:
        return "One seed does not show how much others would differ: train at least three."
    return "This is the interquartile mean over the seeds; there is nothing to compare it with."


def _chance(better: Improvement) -> str:
    interval = shown_interval(better.probability)
    return (
        f"A run of {better.name} scores more than one of {better.baseline} with a probability of "
        f"{better.probability.value:.2f}{f' {interval}' if interval else ''}."
    )


def _how_sure(better: Improvement) -> str:
    if better.probability.value < _HALF:
        return "Most of its runs score less, so that its mean alone does not make it better."
    if better.is_conclusive:
        return "There are enough seeds to conclude that it is better."
    if better.seeds_needed is None:
        return "This shows no difference between the two."
    if better.seeds >= better.seeds_needed:
        return "This is not sure, as the interval of the probability includes a half: train more seeds."
    seeds = "One seed is" if better.seeds == 1 else f"{better.seeds} seeds are"
    return (
        f"{seeds} too few to be sure of it: for a difference of this size, {better.seeds_needed:,} of each are needed."
    )
