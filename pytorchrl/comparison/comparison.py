"""Compare groups of runs over several seeds."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from pytorchrl.comparison.answer import answer_of
from pytorchrl.comparison.improvement import Improvement, improvement
from pytorchrl.comparison.notes import notes_of, unequal_lengths
from pytorchrl.comparison.references import Reference, check_references, reference_of
from pytorchrl.comparison.results import Comparison, GroupResult
from pytorchrl.comparison.scores import RunScores, ScoreName, common_metric, scores_of
from pytorchrl.logging.bootstrap import Estimate, Floats, estimate, value_of
from pytorchrl.logging.curves import Run
from pytorchrl.logging.groups import Group, composition_of
from pytorchrl.logging.run_search import read_groups

PathLike: TypeAlias = str | os.PathLike[str]
_MEANS = ("final", "last_ten", "best")
"""Scores of runs whose means a result has."""


def compare_runs(
    runs: Iterable[PathLike] | Mapping[str, Iterable[PathLike]],
    *,
    baseline: str | None = None,
    metric: str | None = None,
    score: ScoreName = "final",
    at_steps: int | None = None,
    references: Mapping[str, Sequence[float]] | None = None,
) -> Comparison:
    """Compare runs of several seeds: interquartile means with bootstrap intervals, and probabilities of improvement.

    After Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", 2021.

    Args:
        runs: run folders, and folders with runs below them, which are grouped where they differ only in their seed; or
            such lists by names of your own.
        baseline: the name of the group that the others are compared with; the first where left out.
        metric: a number that the runs logged, of which more is better; returns of evaluations where left out, or of
            training where there are no evaluations.
        score: the score of a run: its "final" measurement, or the mean of its "last_ten".
        at_steps: ignore what was measured after more steps than these.
        references: returns that are normalised to 0 and to 1, by environment, where there is more than one environment.

    Raises:
        FileNotFoundError: a path does not exist, or there is no run.
        ValueError: a run has not measured the metric, or there is no group of that name; a single path was given
            instead of a list.
    """
    groups, left_out = read_groups(runs, metric)
    return compare_groups(
        groups,
        baseline=baseline,
        metric=metric,
        score=score,
        at_steps=at_steps,
        references=references,
        left_out=left_out,
    )


def compare_groups(
    groups: Sequence[Group],
    *,
    baseline: str | None = None,
    metric: str | None = None,
    score: ScoreName = "final",
    at_steps: int | None = None,
    references: Mapping[str, Sequence[float]] | None = None,
    left_out: Sequence[str] = (),
) -> Comparison:
    """Compare groups of runs that have been read; see :func:`compare_runs`."""
    if score not in ("final", "last_ten"):
        raise ValueError(f"compare_runs: score must be final or last_ten, got {score!r}")
    if not groups:
        raise ValueError(
            "there is no group of runs to compare; give a list of runs, or lists by name: {'mine': ['runs']}"
        )
    names = list(dict.fromkeys(group.name for group in groups))
    baseline = names[0] if baseline is None else _baseline(baseline, names)
    metric = common_metric([run for group in groups for run in group.runs]) if metric is None else metric
    results, repeated = [], []
    for group in groups:
        runs, again = _different_seeds(group)
        repeated += again
        scores = [scores_of(run, metric, at_steps) for run in runs]
        results.append(_result(group.name, group.environment, {group.environment: scores}, score))
    used = _references(results, references or {})
    overall = _overall(results, used, score)
    comparison = Comparison(
        metric=metric,
        score=score,
        baseline=baseline,
        results=tuple(results),
        overall=tuple(overall),
        references=tuple(used),
        improvements=tuple(_improvements(results, baseline)),
        notes=(*left_out, *repeated, *notes_of(groups, results, used, metric, score, at_steps)),
    )
    # What makes the groups hard to compare comes before what they reach.
    return replace(comparison, answer=" ".join([*unequal_lengths(results, at_steps), answer_of(comparison)]))


def _baseline(given: str, names: Sequence[str]) -> str:
    """Return the name of the group that is meant: tables break long names into lines.

    Raises:
        ValueError: there is none.
    """
    found = given if given in names else next((name for name in names if _letters(name) == _letters(given)), None)
    if found is None:
        raise ValueError(f"there is no group {given!r} to use as baseline; choose from: {'; '.join(names)}")
    return found


def _letters(name: str) -> str:
    return "".join(name.split())


def _different_seeds(group: Group) -> tuple[list[Run], list[str]]:
    """Return the first run of each seed, and a note on each other: runs of equal seeds are not independent."""
    first: dict[object, Run] = {}
    again = []
    for run in group.runs:
        seed = run.config.get("seed")
        key = run.folder if seed is None else (seed, composition_of(run))
        if key in first:
            again.append(f"{run.folder} is ignored: {first[key].folder} has the same composition and seed.")
        else:
            first[key] = run
    return list(first.values()), again


def _result(name: str, environment: str, runs: Mapping[str, Sequence[RunScores]], score: ScoreName) -> GroupResult:
    scores = {env: _scores(of_env, score) for env, of_env in runs.items()}
    strata = list(scores.values())
    means = {name: value_of([_scores(of_env, name) for of_env in runs.values()], "mean") for name in _MEANS}
    return GroupResult(
        name=name,
        environment=environment,
        runs=tuple(run for of_env in runs.values() for run in of_env),
        scores=scores,
        iqm=_with_width(estimate(strata)),
        mean=value_of(strata, "mean"),
        median=value_of(strata, "median"),
        **means,
    )


def _with_width(of_scores: Estimate) -> Estimate:
    """Return an estimate without its interval where that has no width.

    Equal scores of a few seeds do not show that those of others would be equal, too.
    """
    return replace(of_scores, low=math.nan, high=math.nan) if of_scores.low == of_scores.high else of_scores


def _scores(runs: Sequence[RunScores], name: str) -> Floats:
    return np.array([getattr(run, name) for run in runs], np.float64)


def _references(results: Sequence[GroupResult], given: Mapping[str, Sequence[float]]) -> list[Reference]:
    """Return the reference returns of each environment, where there is more than one."""
    check_references(given)
    scores: dict[str, list[Floats]] = {}
    for result in results:
        scores.setdefault(result.environment, []).extend(result.scores.values())
    unknown = set(given) - {name for env in scores for name in (env, env.partition("(")[0])}
    if unknown:
        raise ValueError(
            f"references are given for {min(unknown)}, which has no runs; the runs are in {', '.join(scores)}"
        )
    if len(scores) < 2:
        return []
    return [reference_of(env, given, np.concatenate(of_env)) for env, of_env in scores.items()]


def _overall(results: Sequence[GroupResult], references: Sequence[Reference], score: ScoreName) -> list[GroupResult]:
    """Return normalised results over all environments, of each group that has runs in all of them."""
    overall = []
    for name in dict.fromkeys(result.name for result in results):
        runs = {result.environment: result.runs for result in results if result.name == name}
        if len(runs) == len(references) > 0:
            normalised = {of.environment: [_normalised(run, of) for run in runs[of.environment]] for of in references}
            overall.append(_result(name, "", normalised, score))
    return overall


def _normalised(run: RunScores, reference: Reference) -> RunScores:
    final, last_ten, best = reference.normalised(np.array([run.final, run.last_ten, run.best])).tolist()
    return replace(run, final=final, last_ten=last_ten, best=best)


def _improvements(results: Sequence[GroupResult], baseline: str) -> list[Improvement]:
    """Compare each group with the baseline, in the environments that both have runs in."""
    scores: dict[str, dict[str, Floats]] = {}
    for result in results:
        scores.setdefault(result.name, {}).update(result.scores)
    found = []
    for name, of_name in scores.items():
        common = [env for env in scores[baseline] if env in of_name]
        if name != baseline and common:
            pairs = [(of_name[env], scores[baseline][env]) for env in common]
            found.append(improvement(name, [one for one, _ in pairs], baseline, [other for _, other in pairs]))
    return found
