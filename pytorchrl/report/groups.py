"""Groups of runs that differ only in their seed, and the settings that distinguish groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytorchrl.experiments.runs.composition import COMPOSITION
from pytorchrl.logging.formats import as_written
from pytorchrl.logging.groups import Group, grouped
from pytorchrl.logging.pictures.figure_options import FigureOptions
from pytorchrl.logging.run_labels import dotted_settings
from pytorchrl.report.runs import RunRead

_COMPARED = (*COMPOSITION, "target_steps", "callbacks", "max_test_episode_steps", "test_seed")
_FOLLOWS = ("spaces", "own_classes")
"""Parts of a configuration that follow from the others."""


@dataclass(frozen=True)
class RunGroup:
    """Runs of one composition."""

    group: Group
    runs: Sequence[RunRead]

    @property
    def label(self) -> str:
        """The name that distinguishes it from other groups of its environment."""
        return self.group.name

    @property
    def environment(self) -> str:
        """The environment's id, with its arguments."""
        return self.group.environment or "unknown"


@dataclass(frozen=True)
class Difference:
    """A setting that is not the same in all groups."""

    name: str
    values: Sequence[str]
    """The value of each group; empty where it has no such setting."""


def groups_of(
    runs: Sequence[RunRead], names: Mapping[str, str] | None = None, order: Sequence[str] = ()
) -> list[RunGroup]:
    """Group runs by composition.

    Args:
        runs: those of the page.
        names: pairs of a group's own name and the one that is shown.
        order: the names, as they are shown, of the groups that come first.

    Raises:
        ValueError: there is no group of a name, or two groups would have the same.
    """
    if not runs:
        return []
    by_folder = {run.folder: run for run in runs}
    arranged = FigureOptions(names=names or {}, order=order).arranged(grouped(run.measured for run in runs))
    return [RunGroup(group, [by_folder[run.folder] for run in group.runs]) for group in arranged]


def differences_between(groups: Sequence[RunGroup]) -> list[Difference]:
    """Return the settings that distinguish groups; the directory of a storage is not one of them."""
    configs = [group.runs[0].measured.config for group in groups]
    settings = [
        settings_of({name: config[name] for name in _COMPARED if name in config and name != "seed"})
        for config in configs
    ]
    # The parts in their order, although some groups have hyper-parameters that others lack.
    parts = list(dict.fromkeys(_part(name) for of_group in settings for name in of_group))
    names = sorted(dict.fromkeys(name for one in settings for name in one), key=lambda name: parts.index(_part(name)))
    values = {name: [of_group.get(name, "") for of_group in settings] for name in names}
    return [Difference(name, found) for name, found in values.items() if len(set(found)) > 1]


def settings_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Return all settings of a composition by dotted names, with values formatted as in Python."""
    shown = {name: value for name, value in config.items() if name not in _FOLLOWS}
    return {name: as_written(value) for name, value in dotted_settings(shown)}


def _part(name: str) -> str:
    return name.partition(".")[0]
