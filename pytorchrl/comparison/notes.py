"""Notes on a comparison: what its scores and intervals are, and what limits them."""

import json
import math
from collections.abc import Iterator, Sequence

from pytorchrl.comparison.references import Reference
from pytorchrl.comparison.results import GroupResult
from pytorchrl.comparison.scores import LAST, RunScores, ScoreName
from pytorchrl.logging.bootstrap import CONFIDENCE, RESAMPLES, SEED
from pytorchrl.logging.curves import EVALUATION, TRAINING
from pytorchrl.logging.groups import Group, environments, hidden_differences

_MEANINGS = {
    EVALUATION: "mean returns of evaluations, by greedy actions",
    TRAINING: "mean returns of training episodes, with exploration",
}
_MOST_NAMES = 5
"""Runs that a note names."""
_MOST_SETTINGS = 8
"""Settings that a note names."""
_OF_THE_ENVIRONMENT = ("train_envs", "test_envs", "spaces", "seed", "log_to", "log_every", "checkpoint_every")


def notes_of(
    groups: Sequence[Group],
    results: Sequence[GroupResult],
    references: Sequence[Reference],
    metric: str,
    score: ScoreName,
    at_steps: int | None,
) -> list[str]:
    """Return sentences on scores, intervals, references, and what makes them less certain."""
    which = "the last of each run" if score == "final" else f"the mean of the last {LAST} of each run"
    until = "" if at_steps is None else f" until {at_steps:,} steps"
    return [
        *unequal_lengths(results, at_steps),
        f"Scores: {_MEANINGS.get(metric, metric)}; statistics are of {which}{until}.",
        f"Intervals of {CONFIDENCE:.0%}: percentiles of a stratified bootstrap over seeds, {RESAMPLES:,} resamples by "
        f"a generator of seed {SEED}.",
        *(f"{one.environment}: {one.low:g} is 0, and {one.high:g} is 1 ({one.source})." for one in references),
        *_without_evaluations(groups, metric),
        *not_finite(results, score),
        *_few_measurements(results),
        *_few_seeds(results),
        *(unfinished(results) if at_steps is None else ()),
        *_ended_before(groups, results, at_steps),
        *_named_twice(groups),
        *_across_environments(groups, results),
        *_beside_names(groups),
    ]


def _without_evaluations(groups: Sequence[Group], metric: str) -> Iterator[str]:
    """Name the runs for which all are compared by returns of training."""
    without = [str(run.folder) for group in groups for run in group.runs if not len(run.evaluations())]
    if metric != TRAINING or not without:
        return
    names = ", ".join(without[:_MOST_NAMES]) + (f" and {more} more" if (more := len(without) - _MOST_NAMES) > 0 else "")
    yield f"Returns of training are compared since some runs have no evaluations: {names}."
    if len(without) < sum(len(group.runs) for group in groups):
        yield (
            f'--metric {EVALUATION} (metric="{EVALUATION}") compares the other runs by their evaluations, and leaves '
            f"out those that have none, unless they are given by their own path."
        )


def not_finite(results: Sequence[GroupResult], score: ScoreName) -> Iterator[str]:
    """Note the groups with runs whose last measurements were NaN or infinite, and were passed over."""
    which = "last finite one" if score == "final" else f"last {LAST} finite ones"
    for result in results:
        until = [run.finite_until for run in result.runs if run.finite_until is not None]
        if until:
            first, last = f"{min(until):,.0f}", f"{max(until):,.0f}"
            yield (
                f"{result.name}: {len(until)} of {len(result.runs)} runs{_in(result.environment)} end with values that "
                f"are not finite; their scores are those of the {which}, "
                f"{'of step' if score == 'final' else 'until step'} {first if first == last else f'{first} to {last}'}."
            )


def _in(environment: str) -> str:
    return f" in {environment}" if environment else ""


def _few_measurements(results: Sequence[GroupResult]) -> Iterator[str]:
    """Note the groups whose mean of the last ten is one of fewer measurements."""
    for result in results:
        fewest = min(run.averaged for run in result.runs)
        if fewest < LAST:
            all_of = "one measurement" if fewest == 1 else f"all {fewest} measurements"
            yield f'{result.name}: "last ten"{_in(result.environment)} is the mean of {all_of} where a run has no more.'


def _few_seeds(results: Sequence[GroupResult]) -> Iterator[str]:
    fewest = min(len(result.runs) for result in results)
    if fewest == 1:
        names = dict.fromkeys(result.name for result in results if len(result.runs) == 1)
        yield f"A single run has no interval, and allows no conclusion: {'; '.join(names)}."
    if 1 < fewest < 4:
        yield f"The IQM of fewer than four seeds is their mean; here, that of {fewest}."
    without_width = [result for result in results if len(result.runs) > 1 and not result.iqm.has_interval]
    if without_width:
        yield (
            f"All seeds have the same score, so that there is no interval: "
            f"{'; '.join(dict.fromkeys(result.name for result in without_width))}."
        )
    several = [len(result.runs) for result in results if 1 < len(result.runs) < 10]
    if several:
        # The interval from the smallest to the largest of n scores covers the median with this probability at most.
        most = 1 - 2.0 ** (1 - min(several))
        yield (
            f"Intervals of {min(several)} seeds cannot reach beyond their smallest and largest score, and cover the "
            f"true median in at most {most:.0%} of all cases, not in {CONFIDENCE:.0%}; use ten or more."
            if most < CONFIDENCE
            else f"Intervals of {min(several)} seeds are somewhat too narrow; use ten or more."
        )


def unequal_lengths(results: Sequence[GroupResult], at_steps: int | None) -> Iterator[str]:
    """Note the environments whose runs had numbers of steps that differ by more than 5%."""
    for env in dict.fromkeys(result.environment for result in results):
        steps = [run.steps for result in results if result.environment == env for run in result.runs]
        if max(steps) > 1.05 * min(steps) and at_steps is None:
            yield (
                f"Runs in {env or 'the environment'} were trained for {min(steps):,.0f} to {max(steps):,.0f} steps; "
                f"at_steps (--at-steps) compares them after equal numbers."
            )


def behind(result: GroupResult) -> list[RunScores]:
    """Return the runs of a group that have not reached their target steps."""
    return [run for run in result.runs if run.target_steps is not None and run.steps < run.target_steps]


def unfinished(results: Sequence[GroupResult]) -> Iterator[str]:
    """Note the groups with runs that have not reached their target steps."""
    for result in results:
        if late := behind(result):
            share = f"{len(late)} of {len(result.runs)} runs{_in(result.environment)}"
            yield f"{result.name}: {share} have not reached their target steps."


def _ended_before(groups: Sequence[Group], results: Sequence[GroupResult], at_steps: int | None) -> Iterator[str]:
    """Note the groups with runs that ended more than 5% before the steps that all are compared after."""
    if at_steps is None:
        return
    ends = {run.folder: run.records[-1].get("steps", math.nan) for group in groups for run in group.runs}
    for result in results:
        early = [end for run in result.runs if (end := ends[run.folder]) < 0.95 * at_steps]
        if early:
            first, last = f"{min(early):,.0f}", f"{max(early):,.0f}"
            yield (
                f"{result.name}: {len(early)} of {len(result.runs)} runs{_in(result.environment)} ended before "
                f"{at_steps:,} steps, after {first if first == last else f'{first} to {last}'}."
            )


def _named_twice(groups: Sequence[Group]) -> Iterator[str]:
    """Note the environments of the same observations of which one is named by its id, another by its class."""
    by_space: dict[str, dict[str, bool]] = {}
    for group in groups:
        config = group.runs[0].config
        envs = (config.get("test_envs") or config.get("train_envs") or {}).get("hyper_parameters") or {}
        space = (config.get("spaces") or {}).get("observation")
        if space is not None and envs.get("env"):
            by_space.setdefault(json.dumps(space, sort_keys=True), {})[group.environment] = isinstance(envs["env"], str)
    for named in by_space.values():
        if len(set(named.values())) > 1:
            yield (
                f"{' and '.join(named)} have the same observations, and are named by an id and by a class or function. "
                f"If they are the same environment, their runs are comparable with each other, but scores in all "
                f"environments mean nothing: train all by the id, or all by the class."
            )


def _across_environments(groups: Sequence[Group], results: Sequence[GroupResult]) -> Iterator[str]:
    envs = {result.environment for result in results}
    by_name: dict[str, list[Group]] = {}
    for group in groups:
        by_name.setdefault(group.name, []).append(group)
    missing = [name for name, members in by_name.items() if {group.environment for group in members} != envs]
    if missing:
        yield f"Left out of the scores in all environments, because they lack runs in some: {'; '.join(missing)}."
    for name, members in by_name.items():
        settings = [
            {key: value for key, value in group.runs[0].config.items() if key not in _OF_THE_ENVIRONMENT}
            for group in members
        ]
        if len({json.dumps(config, sort_keys=True) for config in settings}) > 1:
            yield f"{name} has different settings in different environments."


def _beside_names(groups: Sequence[Group]) -> Iterator[str]:
    """Name the settings that groups of an environment have in common, with different values that no name tells."""
    for env in environments(groups):
        hidden = hidden_differences([group for group in groups if group.environment == env])
        if hidden:
            shown = [f"{name} ({'; '.join(values)})" for name, values in list(hidden.items())[:_MOST_SETTINGS]]
            more = f", and {rest} more settings" if (rest := len(hidden) - len(shown)) > 0 else ""
            yield f"Groups{_in(env)} also differ in settings that their names do not say: {', '.join(shown)}{more}."
