"""`evaluate --data`: the value of a run's policy beside that of the data, without an environment."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytorchrl.commands.composition.parts import value_of
from pytorchrl.commands.shared import print_facts
from pytorchrl.experiments import RunFolder, load_policy
from pytorchrl.experiments.policies.value_from_data import FitSettings, ValueFromData, value_from_data
from pytorchrl.experiments.runs.composition import made_of
from pytorchrl.logging.bootstrap import Estimate
from pytorchrl.logging.formats import counted
from pytorchrl.scheme.dataset_factory import DatasetFactory
from pytorchrl.terminal import tell
from storages import ReplayBuffer
from storages.datasets import SelectEpisodes

_FEW = 10
"""Effective episodes below which importance-weighted estimates tell little."""


def evaluate_on_data(run: Path, data: str, select: str | None, settings: FitSettings, seed: int) -> None:
    """Print the value of a run's policy, estimated from a data set, beside that of the policy that made the data.

    Args:
        run: the run folder.
        data: path of the data set.
        select: which of its episodes, as a text; None for those that the run held out, if it did, else for all.
        settings: of the fits.
        seed: of all random numbers.
    """
    config = RunFolder(run).read_config()
    algorithm = load_policy(run).algorithm
    learnt = _learnt_from(config, data)
    chosen = _held_out(learnt) if select is None else _selection(select)
    dataset = DatasetFactory(ReplayBuffer.create_factory(size=None), data, chosen).dataset()
    episodes = [episode for episode in dataset if len(episode)]

    def tell_the_cost(seconds: float) -> None:
        tell(
            f"The first of {settings.fits + 1} fits took {seconds:.1f} s; all of them take about "
            f"{seconds * (settings.fits + 2):.0f} s. --fits and --updates change that."
        )

    found = value_from_data(algorithm, made_of(config["actor"]), episodes, settings, seed, tell_the_cost)
    which = "" if chosen is None else f", chosen by {chosen}"
    print_facts(f"{run} on {counted(found.episodes, 'episode')} of {data}{which}", _facts(found))
    for sentence in conclusions(found, learnt, chosen):
        tell(sentence)


def _facts(found: ValueFromData) -> dict[str, str]:
    weighted = {}
    if found.importance is not None:
        where = "stored probabilities" if found.probabilities == "stored" else "probabilities of a clone of the data"
        weighted = {
            "importance sampling": f"{_shown(found.importance.ordinary)}, by {where}",
            "weighted importance sampling": _shown(found.importance.weighted),
            "doubly robust": _shown(found.importance.doubly_robust),
            "effective episodes": f"{found.importance.effective_episodes:.1f} of {found.episodes:,}",
        }
    return {
        "policy, fitted Q evaluation": _shown(found.policy),
        "data, their own policy": _shown(found.behaviour),
        "policy - data": _shown(found.difference),
        **weighted,
        "unit": f"return discounted by {found.gamma:g} a step, from the first observations",
        "data, undiscounted return": _shown(found.behaviour_return),
        "data": f"{counted(found.steps, 'step')}, {found.terminated:,} of {found.episodes:,} episodes terminated",
        "time": f"{found.seconds:.0f} s",
    }


def _shown(estimate: Estimate) -> str:
    return f"{estimate.value:.4g}, 95% interval [{estimate.low:.4g}, {estimate.high:.4g}]"


def conclusions(found: ValueFromData, learnt: DatasetFactory | None, chosen: SelectEpisodes | None) -> list[str]:
    """Return what follows from the values, and what limits it."""
    difference, size = found.difference, abs(found.difference.value)
    if difference.low > 0:
        said = [
            f"The policy's value is higher than the data's by {size:.4g}, and the interval of this difference lies "
            f"above 0: by these data, it is better than the policy that made them."
        ]
    elif difference.high < 0:
        said = [
            f"The policy's value is lower than the data's by {size:.4g}, and the interval of this difference lies "
            f"below 0: by these data, it is worse than the policy that made them."
        ]
    else:
        said = [
            "The interval of the difference contains 0: these data do not tell whether the policy is better than the "
            "policy that made them."
        ]
    half = (found.policy.high - found.policy.low) / 2
    if abs(found.last_change) > max(half / 2, 0.02 * abs(found.policy.value)):
        said.append(
            f"The fits have not ended: over the last quarter of their updates, the value changed by "
            f"{found.last_change:.3g}. Raise --updates."
        )
    if learnt is not None and not _are_apart(learnt.select, chosen):
        said.append(
            "The run learnt from these episodes, which makes the policy's value too high. Hold some out: "
            "train --select 'SelectEpisodes(part=\"train\")'."
        )
    if found.importance is not None and found.importance.effective_episodes < _FEW:
        said.append(
            f"The importance-weighted estimates rest on {found.importance.effective_episodes:.1f} effective episodes, "
            f"fewer than {_FEW}: they tell little."
        )
    return said


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
