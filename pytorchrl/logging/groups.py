"""Group runs by composition, and name each group by what distinguishes it."""

import json
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchrl.logging.curves import Run

_MOST_SETTINGS_IN_A_NAME = 3
_MOST_ALGORITHMS_IN_A_TITLE = 3
_NO_PART_OF_A_COMPOSITION = frozenset({"seed", "log_to", "log_every", "keep_checkpoints", "checkpoint_every"})
_FOLLOWS_FROM_OTHERS = frozenset({"spaces", "own_classes", "imports"})
CHANGED_BY_HAND = "changed_by_hand"
"""Entry of a configuration; runs without such changes have none."""
_CHANGE_NO_TRAINING = frozenset(
    {"ActionDifference", "EvaluateIn", "ExportPolicy", "FittedQEvaluation", "InitialValue", "LogWeights"}
    | {"NormalizedScore", "RecordVideos", "SavePolicies", "TDError", "TimeParts"}
)
"""Callbacks that measure and save; those of users, and others, may change what is learnt."""


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seed."""

    name: str
    """Unique within the environment; groups that are compared have the same name in each environment."""
    environment: str
    """Id of the environment, with its arguments; empty where unknown."""
    runs: tuple[Run, ...]


def grouped(runs: Iterable[Run]) -> list[Group]:
    """Group the runs that differ only in seed, logging, checkpoints and what is measured, and name the groups."""
    compositions: dict[str, list[Run]] = {}
    for run in runs:
        compositions.setdefault(composition_of(run), []).append(run)
    groups = [Group("", environment(members[0].config), tuple(members)) for members in compositions.values()]
    return [Group(name, group.environment, group.runs) for name, group in zip(_names(groups), groups, strict=True)]


def composition_of(run: Run) -> str:
    """Return a text that is equal for runs that differ only in seed, logging, checkpoints and what is measured.

    Where nothing is scheduled, their target may differ, too: it changes nothing of the steps that both have made.
    """
    composition = _of_training(
        {key: value for key, value in run.config.items() if key not in _NO_PART_OF_A_COMPOSITION}
    )
    return json.dumps(composition, sort_keys=True) if composition else str(run.folder)


def _of_training(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration without what changes nothing of a run's training, with what was changed by name."""
    callbacks = [one for one in config.get("callbacks") or [] if _part_name(one) not in _CHANGE_NO_TRAINING]
    found = {key: callbacks if key == "callbacks" else value for key, value in config.items()}
    if not (callbacks or config.get("own_classes") or _has_schedule(config)):
        found.pop("target_steps", None)
    if changes := changes_by_hand(found):
        found["changed"] = changes
    found.pop(CHANGED_BY_HAND, None)
    return found


def _has_schedule(value: Any) -> bool:
    """Whether a part of a configuration holds a setting that follows the progress of the run."""
    if isinstance(value, Mapping):
        return _part_name(value).endswith("Schedule") or any(map(_has_schedule, value.values()))
    return isinstance(value, list) and any(map(_has_schedule, value))


def _part_name(part: Any) -> str:
    return str(part.get("name") or "") if isinstance(part, Mapping) else ""


def changes_by_hand(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the hyper-parameters that were changed before a run went on: ``{"lr": "0.0001 from step 40,000"}``."""
    changes: dict[str, str] = {}
    entries = config.get(CHANGED_BY_HAND)
    for entry in entries if isinstance(entries, list) else []:
        values, steps = (entry.get("hyper_parameters"), entry.get("steps")) if isinstance(entry, Mapping) else (0, 0)
        if isinstance(values, Mapping) and isinstance(steps, int):
            changes |= {str(name): f"{_text(value)} from step {steps:,}" for name, value in values.items()}
    return changes


def named_groups(runs: Mapping[str, Iterable[Run]]) -> list[Group]:
    """Divide runs that are grouped by name already by their environments, too."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for name, members in runs.items():
        for run in members:
            groups.setdefault((name, environment(run.config)), []).append(run)
    return [Group(name, env, tuple(members)) for (name, env), members in groups.items()]


_ATARI = "pytorchrl/Atari-v0"
"""Id of the preprocessed games, which their arguments tell apart."""


def environment(config: Mapping[str, Any]) -> str:
    """Return the id of the environment that a run is evaluated in, with its arguments."""
    envs = ((config.get("test_envs") or config.get("train_envs") or {}).get("hyper_parameters")) or {}
    env = envs.get("env") or ""
    name = str(env.get("callable", "") if isinstance(env, Mapping) else env)
    arguments = envs.get("env_kwargs")
    if isinstance(env, Mapping) and isinstance(bound := env.get("arguments"), Mapping):
        arguments = bound if not isinstance(arguments, Mapping) else {**bound, **arguments}
    if name == _ATARI and isinstance(arguments, Mapping) and isinstance(game := arguments.get("game"), str):
        # As the ids that name the game, for which reference returns are known.
        name = f"ALE/{''.join(word.capitalize() for word in game.split('_'))}"
        arguments = {key: value for key, value in arguments.items() if key != "game"}
    if not name or not arguments or not isinstance(arguments, Mapping):
        return name
    return f"{name}({', '.join(f'{key}={_text(value)}' for key, value in arguments.items())})"


_GAME = re.compile(r"ALE/(\w+)\(([^()]*)\)")
_IDS_OF_GAMES = {"0.25": "ALE/{}-v5", "0": "{}NoFrameskip-v4"}
"""By the probability of sticky actions."""
_USUAL_OF_GAMES = {"full_action_space=False", "max_frames=108000"}


def shown_environment(environment: str) -> str:
    """Return the name of an environment for a heading, where a game of Atari has its id in place of its arguments.

    Args:
        environment: as :func:`environment` returns it; of others than games it is returned unchanged.
    """
    found = _GAME.fullmatch(environment)
    if found is None:
        return environment
    game, arguments = found[1], found[2].split(", ")
    for sticky, id_of in _IDS_OF_GAMES.items():
        if f"repeat_action_probability={sticky}" in arguments:
            arguments.remove(f"repeat_action_probability={sticky}")
            game = id_of.format(game)
            break
    else:
        game = f"ALE/{game}"
    others = [one for one in arguments if one not in _USUAL_OF_GAMES]
    return f"{game}({', '.join(others)})" if others else game


def environments(groups: Iterable[Group]) -> list[str]:
    """Return the environments of groups, each once."""
    return list(dict.fromkeys(group.environment for group in groups))


def title(groups: Sequence[Group]) -> str:
    """Return a title of algorithms and environments or data sets, or of folders where these are unknown."""
    runs = [group.runs[0] for group in groups]
    algorithms = list(dict.fromkeys(filter(None, (_part(run, "algorithm") for run in runs))))
    of_runs = (shown_environment(environment(run.config)) or _data_set(run) for run in runs)
    tasks = ", ".join(dict.fromkeys(filter(None, of_runs)))
    if algorithms and tasks:
        return f"{', '.join(algorithms)} on {tasks}" if len(algorithms) <= _MOST_ALGORITHMS_IN_A_TITLE else tasks
    return ", ".join(dict.fromkeys(run.folder.resolve().name for run in runs))


def _data_set(run: Run) -> str:
    """Return the name of the file of the data set that a run learns from; "" where there is none."""
    return Path(str((run.config.get("storage") or {}).get("dataset") or "")).name


def unit(groups: Iterable[Group]) -> str:
    """Return the unit of the runs' steps: updates for runs without training environments."""
    runs = [run for group in groups for run in group.runs]
    units = {"updates" if run.config.get("train_envs", "") is None else "environment steps" for run in runs}
    return units.pop() if len(units) == 1 else "environment steps, or updates"


def _names(groups: Sequence[Group]) -> list[str]:
    """Name groups by algorithm, and as far as needed by storage, by settings, or by folder."""
    names = _folder_names(groups)
    for algorithm, of_algorithm in _by_part(groups, range(len(groups)), "algorithm").items():
        of_storages = _by_part(groups, of_algorithm, "storage")
        if not algorithm:
            continue
        if not _has_several(groups, of_storages):
            of_storages = {"": of_algorithm}
        for storage, members in of_storages.items():
            prefix = " + ".join(filter(None, (algorithm, storage)))
            is_enough = _are_told_apart(groups, members)
            settings = [""] * len(members) if is_enough else _differing_settings([groups[n] for n in members])
            for number, setting in zip(members, settings or (), strict=settings is not None):
                names[number] = ", ".join(filter(None, (prefix, setting)))
    # Two names may still be equal, where only the classes of a script have changed.
    seen = Counter((group.environment, name) for group, name in zip(groups, names, strict=True))
    return [
        name if seen[group.environment, name] == 1 else str(group.runs[0].folder)
        for group, name in zip(groups, names, strict=True)
    ]


def _by_part(groups: Sequence[Group], members: Iterable[int], part: str) -> dict[str, list[int]]:
    """Return the indices of groups by the name of a part."""
    found: dict[str, list[int]] = {}
    for number in members:
        found.setdefault(_part(groups[number].runs[0], part), []).append(number)
    return found


def _has_several(groups: Sequence[Group], of_storages: Mapping[str, Sequence[int]]) -> bool:
    """Whether an environment has groups of more than one storage."""
    pairs = {(groups[number].environment, storage) for storage, members in of_storages.items() for number in members}
    return len(pairs) > len({env for env, _ in pairs})


def _are_told_apart(groups: Sequence[Group], members: Sequence[int]) -> bool:
    """Whether each is the only one of its environment."""
    return len({groups[number].environment for number in members}) == len(members)


def _part(run: Run, part: str) -> str:
    return _part_name(run.config.get(part))


def _folder_names(groups: Sequence[Group]) -> list[str]:
    """Name each group by the folder that holds its runs, relative to the deepest folder that holds all.

    The runs of other groups are not in that folder, or only in subfolders of it.
    """
    folders = [[run.folder.resolve() for run in group.runs] for group in groups]
    above = _common(folder for of_group in folders for folder in of_group)
    names = []
    for of_group in folders:
        common = _common(of_group)
        are_seeds = all(folder.parent == common for folder in of_group)
        holds_others = any(
            other.parent == common if are_seeds else other.is_relative_to(common)
            for others in folders
            if others is not of_group
            for other in others
        )
        folder = of_group[0] if holds_others else common
        name = folder.name if folder == above else str(folder.relative_to(above))
        names.append(f"{name} and {len(of_group) - 1} more" if holds_others and len(of_group) > 1 else name)
    return names


def _common(folders: Iterable[Path]) -> Path:
    return Path(os.path.commonpath(list(folders)))


def _differing_settings(groups: Sequence[Group]) -> list[str] | None:
    """Return the settings that differ between groups of one environment, ``n_step=3``; None if there are too many."""
    settings = _settings(groups)
    names: dict[str, None] = {}
    for env in environments(groups):
        beside = [config for config, group in zip(settings, groups, strict=True) if group.environment == env]
        of_any = dict.fromkeys(name for config in beside for name in config)
        names |= {name: None for name in of_any if len({config.get(name) for config in beside}) > 1}
    # Training and test environments mostly have the same settings, which are shown once.
    distinct = {(_last(name), *(config.get(name) for config in settings)): name for name in names}
    if len(distinct) > _MOST_SETTINGS_IN_A_NAME:
        return None
    repeated = Counter(map(_last, distinct.values()))
    labels = {name: name if repeated[_last(name)] > 1 else _last(name) for name in distinct.values()}
    return [
        ", ".join(f"{label}={config[name]}" for name, label in labels.items() if name in config) for config in settings
    ]


_MOST_CHARACTERS_OF_A_VALUE = 40
_OF_EVALUATIONS = "test_envs."


def hidden_differences(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Return the settings of groups of one environment that differ, although their names do not say so.

    Settings that only one of two parts has, such as the exponent of a prioritised buffer beside a uniform one, follow
    from the part and are left out, like the names of parts.

    Returns:
        The values of each setting, in the order of the groups.
    """
    configs = _settings(groups)
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for config in configs for name in config):
        having = [(group, config[name]) for group, config in zip(groups, configs, strict=True) if name in config]
        is_told = all(f"{_last(name)}={value}" in group.name for group, value in having)
        values = list(dict.fromkeys(value for _, value in having))
        if len(values) > 1 and not is_told and not name.endswith(".name") and not name.startswith(_OF_EVALUATIONS):
            found[name] = [textwrap.shorten(value, _MOST_CHARACTERS_OF_A_VALUE, placeholder="...") for value in values]
    return found


def _settings(groups: Sequence[Group]) -> list[dict[str, str]]:
    """Return the settings of each group by dotted names; the target of all where it matters for any."""
    configs = [_of_training(group.runs[0].config) for group in groups]
    if any("target_steps" in config for config in configs):
        configs = [
            config | {"target_steps": group.runs[0].config.get("target_steps")}
            for config, group in zip(configs, groups, strict=True)
        ]
    return [dict(_flat(config)) for config in configs]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted name of each setting of a composition, ``storage.n_step``, and its text."""
    for key, value in config.items():
        if not prefix and key in (_NO_PART_OF_A_COMPOSITION | _FOLLOWS_FROM_OTHERS):
            continue
        name = prefix if key == "hyper_parameters" else f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping) and value and not (prefix and _is_setting(value)):
            yield from _flat(value, name)
        else:
            yield name, _text(value)


def _is_setting(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"name", "hyper_parameters"}


def _text(value: Any) -> str:
    """Format a value for a name: ``LinearSchedule(0.001, 0, 1)``."""
    if _is_setting(value):
        return f"{value['name']}({', '.join(map(_text, (value['hyper_parameters'] or {}).values()))})"
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
