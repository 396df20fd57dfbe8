"""`evaluate --data`: the value of a run's policy beside that of the data, without an environment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gymnasium import spaces

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.commands.composition.parts import value_of
from pytorchrl.commands.evaluation.value_files import write_values
from pytorchrl.commands.shared import print_facts
from pytorchrl.experiments.policies.published_policies import find_policy
from pytorchrl.experiments.policies.trained_policy import configuration_of, read_policy
from pytorchrl.experiments.policies.value_from_data import FitSettings, ValueFromData, value_from_data
from pytorchrl.experiments.runs.composition import check_action_names, made_of
from pytorchrl.logging.bootstrap import Estimate
from pytorchrl.logging.formats import counted
from pytorchrl.logging.pictures.plots import refuse_other_formats
from pytorchrl.scheme.dataset_factory import DatasetFactory
from pytorchrl.terminal import tell
from storages import ReplayBuffer
from storages.datasets import About, SelectEpisodes
from storages.datasets.dataset import action_names_of

_MOST_BEYOND = 0.5
"""Share of the weights of rewards after the ends of episodes from which the values rest on fitted ones."""
_FEW = 10
"""Effective episodes below which importance-weighted estimates are not shown."""
_POLICY, _DATA, _DIFFERENCE = "policy, fitted Q evaluation", "data, their own policy", "policy - data"
_CLONE, _GAIN = "greedy clone of the data", "policy - clone"
_WEIGHTED = ("importance sampling", "weighted importance sampling", "doubly robust")


@dataclass(frozen=True)
class OnData:
    """What is evaluated by data, and how.

    Args:
        data: path of the data set.
        select: which of its episodes, as a text; None for those that the run held out, if it did, else for all.
        settings: of the fits.
        seed: of all random numbers.
        epsilon: probability of a uniformly random action in place of the greedy one.
        output: a picture of the values, or a CSV file of them; None for none.
    """

    data: str
    select: str | None
    settings: FitSettings
    seed: int
    epsilon: float
    output: Path | None


def evaluate_on_data(run: Path, options: OnData) -> None:
    """Print the value of a policy, estimated from a data set, beside that of the policy that made the data.

    Args:
        run: the run folder, or a file of weights.
        options: the data, and how they are used.
    """
    if options.output is not None:
        refuse_other_formats(options.output)
    data, found_at = options.data, find_policy(run)
    algorithm, config = read_policy(found_at).algorithm, configuration_of(found_at)
    learnt = _learnt_from(config, data)
    chosen = _held_out(learnt) if options.select is None else _selection(options.select)
    dataset = DatasetFactory(ReplayBuffer.create_factory(size=None), data, chosen).dataset()
    _refuse_other_names(algorithm, config, dataset.about, data, run)
    episodes = [episode for episode in dataset if len(episode)]

    def tell_the_cost(seconds: float, fits: int) -> None:
        tell(
            f"The first of {fits} fits took {seconds:.1f} s; all of them take about {seconds * fits:.0f} s. --fits and "
            f"--updates change that."
        )

    found = value_from_data(
        *(algorithm, made_of(config["actor"]), episodes, options.settings, options.seed, tell_the_cost),
        random_share=options.epsilon,
    )
    acting = f", random actions with probability {options.epsilon:g}" if options.epsilon else ""
    which = "" if chosen is None else f", chosen by {chosen}"
    title = f"{run}{acting} on {counted(found.episodes, 'episode')} of {data}"
    print_facts(title + which, _facts(found, isinstance(algorithm.action_space, spaces.Box)))
    unconstrained = "" if algorithm.constrained_to_data else type(algorithm).__name__
    for sentence in conclusions(found, learnt, chosen, unconstrained, is_greedy=not options.epsilon):
        tell(sentence)
    if options.output is not None:
        tell(write_values(found, _estimates(found), title, options.output))


def _facts(found: ValueFromData, is_continuous: bool) -> dict[str, str]:
    unfitted, unweighted = _why_not_fitted(found), _why_not_weighted(found)
    estimates = {name: _shown(one) for name, one in _estimates(found).items()}
    why_not = dict.fromkeys((_POLICY, _DIFFERENCE), f"no estimate: {unfitted}") if unfitted else {}
    compared = {_CLONE: estimates[_CLONE], _GAIN: estimates[_GAIN]} if _GAIN in estimates else {}
    weighted = {}
    if found.importance is not None:
        where = "stored probabilities" if found.probabilities == "stored" else "probabilities of a clone of the data"
        reason = unweighted or f"it rests on the fitted Q-function: {unfitted}"
        weighted = {name: estimates.get(name, f"no estimate: {reason}") for name in _WEIGHTED}
        weighted["effective episodes"] = f"{found.importance.effective_episodes:.1f} of {found.episodes:,}, by {where}"
    return {
        **{name: why_not.get(name) or estimates[name] for name in (_POLICY, _DATA, _DIFFERENCE)},
        **compared,
        **weighted,
        "policy's actions": _closeness(found, is_continuous),
        "unit": f"return discounted by {found.gamma:g} a step, from the first observations",
        "data, undiscounted return": _shown(found.behaviour_return),
        "data": f"{counted(found.steps, 'step')}, {found.terminated:,} of {found.episodes:,} episodes terminated",
        "fits": f"{found.fits} of {counted(found.updates, 'update')}, and as many of the clone",
        "time": f"{found.seconds:.0f} s",
    }


def _estimates(found: ValueFromData) -> dict[str, Estimate]:
    """Return the estimates that can be shown, by their names."""
    is_fitted, estimates = not _why_not_fitted(found), dict[str, Estimate]()
    if is_fitted:
        estimates[_POLICY] = found.policy
    estimates[_DATA] = found.behaviour
    if is_fitted:
        estimates[_DIFFERENCE] = found.difference
        if not found.fits_of_clone_beyond:
            estimates |= {_CLONE: found.clone, _GAIN: found.gain}
    if found.importance is not None and not _why_not_weighted(found):
        of_weights = (found.importance.ordinary, found.importance.weighted, found.importance.doubly_robust)
        estimates |= dict(zip(_WEIGHTED, of_weights if is_fitted else of_weights[:2], strict=False))
    return estimates


def _closeness(found: ValueFromData, is_continuous: bool) -> str:
    """Return how far the policy's actions are from those of the data."""
    closeness = found.closeness
    if not is_continuous:
        random = "" if closeness.random is None else f"; random ones: {closeness.random:.0%}"
        known = found.rarest is not None and found.probabilities == "stored"
        rarest = f"; the least likely of these had the probability {found.rarest:.2g}" if known else ""
        return f"{closeness.policy:.0%} of the data's actions are the policy's{random}{rarest}"
    if closeness.random is None:
        return f"{closeness.policy:.3g} of their standard deviation in the data away from the data's, root mean square"
    return (
        f"{closeness.policy:.1%} of their range away from the data's, root mean square; random ones: "
        f"{closeness.random:.1%}"
    )


def _why_not_fitted(found: ValueFromData) -> str:
    """Return why there is no value by fitted Q evaluation; "" if there is one."""
    if not found.fits_beyond:
        return ""
    low, high = found.possible
    return f"{found.fits_beyond} of {found.fits} fits left the range of the data's returns, [{low:.4g}, {high:.4g}]"


def _why_not_weighted(found: ValueFromData) -> str:
    """Return why there are no importance-weighted estimates; "" if there are some."""
    if found.importance is None or found.importance.effective_episodes >= _FEW:
        return ""
    return f"fewer than {_FEW} effective episodes"


def _shown(estimate: Estimate) -> str:
    return f"{estimate.value:.4g}, 95% interval [{estimate.low:.4g}, {estimate.high:.4g}]"


def conclusions(
    found: ValueFromData,
    learnt: DatasetFactory | None,
    chosen: SelectEpisodes | None,
    unconstrained: str = "",
    *,
    is_greedy: bool = True,
) -> list[str]:
    """Return what follows from the values, and what limits it.

    Args:
        found: the values.
        learnt: how the run learns from the data set; None where it does not.
        chosen: the selection of episodes; None for all.
        unconstrained: name of the policy's algorithm, if nothing keeps it close to data.
        is_greedy: whether no action of the policy is random.
    """
    if unfitted := _why_not_fitted(found):
        said = [
            f"Fitted Q evaluation tells nothing of this policy: {unfitted}, by far. They diverged, because the policy "
            f"does what the data do not show, or its returns are others than those of all episodes. More --updates do "
            f"not change that: take more episodes, or a policy that is closer to the data (ActionDifference shows how "
            f"close it is)."
        ]
    else:
        said = [_comparison(found, unconstrained), *_short(found), *_unfinished(found), *_rough(found)]
    if learnt is not None and not _are_apart(learnt.select, chosen):
        said.append(
            "The run learnt from these episodes, which makes the policy's value too high. Hold some out: "
            "train --select 'SelectEpisodes(part=\"train\")'."
        )
    if found.importance is not None and _why_not_weighted(found):
        said.append(
            f"Importance sampling tells nothing of this policy: it needs episodes whose actions are the policy's from "
            f"the first to the last, and these are worth {found.importance.effective_episodes:.1f} of "
            f"{found.episodes:,} episodes of {found.steps / found.episodes:.0f} steps.{_followed(found, is_greedy)}"
        )
    return said


def _followed(found: ValueFromData, is_greedy: bool) -> str:
    """Return why so few episodes count, of a greedy policy."""
    if not is_greedy or found.importance is None:
        return ""
    return (
        f" The policy takes {found.importance.followed:.0%} of the data's actions, and follows almost no episode to "
        f"its end. --epsilon 0.3 evaluates it with random actions now and then, as in a first trial, which follow more."
    )


def _comparison(found: ValueFromData, unconstrained: str) -> str:
    """Return what follows from the difference of the values of policy and data."""
    difference, size = found.difference, abs(found.difference.value)
    if difference.low > 0:
        higher = (
            f"The policy's value is higher than the data's by {size:.4g}, and the interval of this difference lies "
            f"above 0"
        )
        has_clone = not found.fits_of_clone_beyond
        if has_clone and found.gain.low <= 0:
            return f"{higher}. {_as_a_clone(found)}"
        beside = f" {_beside_a_clone(found)}" if has_clone else ""
        return f"{higher}: by these data, it is better than the policy that made them.{beside}{_doubt(unconstrained)}"
    if difference.high < 0:
        return (
            f"The policy's value is lower than the data's by {size:.4g}, and the interval of this difference lies "
            f"below 0: by these data, it is worse than the policy that made them."
        )
    return (
        "The interval of the difference contains 0: these data do not tell whether the policy is better than the "
        "policy that made them."
    )


def _beside_a_clone(found: ValueFromData) -> str:
    """Return by how much a policy is better than a greedy clone of the policy that made the data."""
    learnt = f"It is better than a greedy clone of that policy by {found.gain.value:.4g}"
    if found.gain.value >= found.difference.value / 2:
        return f"{learnt}."
    return (
        f"{learnt}: take that for what was learnt. The rest is the clone's, too, which only leaves out rarer actions; "
        f"it is too high for both where observations lack something that lasts, such as a property of a patient or of "
        f"a building."
    )


def _as_a_clone(found: ValueFromData) -> str:
    """Return that a policy is not told to be better than a greedy clone of the policy that made the data."""
    clone, gain = found.clone, found.gain
    return (
        f"But the same estimate of a greedy clone of the policy that made the data, which always takes its likeliest "
        f"action, is {clone.value:.4g}, and the interval of 'policy - clone', [{gain.low:.4g}, {gain.high:.4g}], does "
        f"not lie above 0: do not conclude that anything was learnt but to leave out that policy's rarer actions. "
        f"Where the clone's value is far above the data's, fitted values may be too high for both, as observations "
        f"lack something that lasts, such as a property of a patient or of a building."
    )


def _doubt(unconstrained: str) -> str:
    """Return why a higher value does not make a better policy, if nothing keeps the algorithm close to data."""
    if not unconstrained:
        return ""
    return (
        f" But nothing keeps {unconstrained} to the actions of data, and fitted Q evaluation is known to be too high "
        f"for such policies: do not conclude that it is better. Learn by an algorithm made for data (TD3BC, IQL, "
        f"CQL; DiscreteBCQ, DiscreteCQL), or try the policy where that is safe."
    )


def _short(found: ValueFromData) -> list[str]:
    """Return that the values rest on what follows the ends of the episodes, if most of their weight does."""
    if found.beyond_the_ends < _MOST_BEYOND:
        return []
    reach = "does not end" if found.gamma == 1 else f"reaches about {1 / (1 - found.gamma):.0f}"
    return [
        f"The episodes are short: {found.beyond_the_ends:.0%} of the weight of discounted rewards lies after their "
        f"ends, {found.steps / found.episodes:.3g} steps on average, where a discount factor of {found.gamma:g} "
        f"{reach}. 'data, their own policy' rests on a fitted value there, whose error is in no interval, and so does "
        f"the difference: do not conclude from it. Record longer episodes."
    ]


def _rough(found: ValueFromData) -> list[str]:
    """Return that the intervals are made of few fits, if so."""
    resamples, usual = found.fits - 1, FitSettings().fits
    if resamples >= usual:
        return []
    return [
        f"Intervals of {resamples} resamples are rough, and can be several times too narrow or too wide: leave out "
        f"--fits, which makes {usual}."
    ]


def _unfinished(found: ValueFromData) -> list[str]:
    """Return that the fits have not ended, or are too short to tell, if so."""
    usual = FitSettings().updates_for(found.steps)
    if found.updates < usual:
        return [
            f"The fits begin at the value of the data's own policy, and in {counted(found.updates, 'update')} stay "
            f"near it: leave out --updates, which makes {usual:,} for these data."
        ]
    half = (found.policy.high - found.policy.low) / 2
    if abs(found.last_change) <= max(half / 2, 0.02 * abs(found.policy.value)):
        return []
    return [
        f"The fits have not ended: over the last quarter of their updates, the value changed by "
        f"{found.last_change:.3g}. Raise --updates from {found.updates:,} to {2 * found.updates:,}."
    ]


def _refuse_other_names(algorithm: Algorithm, config: Mapping[str, Any], about: About, data: str, run: Path) -> None:
    """Refuse data whose actions have other names than those of the policy, or another number of names.

    Raises:
        CheckpointError: they have other names.
        ValueError: they have more or fewer.
    """
    names, space = action_names_of(about), algorithm.action_space
    check_action_names(config, names, data, run)
    if names and isinstance(space, spaces.Discrete) and len(names) != space.n:
        raise ValueError(
            f"{data} numbers {len(names)} actions ({', '.join(names)}), and the policy has {space.n}; convert the "
            f"table with --action-names and the names of all actions of the policy, in the order of their numbers"
        )


def _learnt_from(config: Mapping[str, Any], data: str) -> DatasetFactory | None:
    """Return how the run learns from this data set; None where it does not."""
    for described in (config["storage"], *config.get("sources", {}).values()):
        if "dataset" in described and Path(described["dataset"]).resolve() == Path(data).resolve():
            select = made_of(described.get("select"))
            return DatasetFactory(ReplayBuffer.create_factory(size=None), data, select)
    return None


def _held_out(learnt: DatasetFactory | None) -> SelectEpisodes | None:
    """Return the selection of the episodes that a run held out; None for all where it held none out."""
    if learnt is None or learnt.select is None or learnt.select.part != "train":
        return None
    return replace(learnt.select, part="validation")


def _are_apart(learnt: SelectEpisodes | None, chosen: SelectEpisodes | None) -> bool:
    """Whether the selections are the two parts of one split."""
    if learnt is None or chosen is None or {learnt.part, chosen.part} != {"train", "validation"}:
        return False
    return (learnt.validation_share, learnt.seed) == (chosen.validation_share, chosen.seed)


def _selection(text: str) -> SelectEpisodes:
    chosen = value_of(text)
    if not isinstance(chosen, SelectEpisodes):
        raise ValueError(
            f"--select must be a SelectEpisodes(...), such as 'SelectEpisodes(best_share=0.1)', got {text!r}"
        )
    return chosen
