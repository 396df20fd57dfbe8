"""Changes of a preset by a run: its number of environments, and settings that are not those of the published return."""

from collections.abc import Mapping
from typing import Any

from gymnasium.wrappers import NormalizeReward

from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs.copies.making import name_of_wrapper
from pytorchrl.commands.composition.description import KINDS
from pytorchrl.commands.composition.parts import RunParts, actor_for, part_named, storage_class, storage_for, value_of
from storages.component.declared import hyper_parameters_of
from storages.component.schedule import Schedule

_CHANGE_NO_RETURN = frozenset(
    {"test_every", "num_test_episodes", "compile", "mode", "replay_on_resume", "episode_infos", "directory"}
)
"""Hyper-parameters that change how a run is made and measured, but not what it learns."""


def fit_replay(
    description: Mapping[str, Any], preset: Mapping[str, Any], given: Mapping[str, Any], num_envs: Any
) -> dict[str, Any]:
    """Return a description in which replay holds as many transitions as in the preset, with other copies of the env.

    A storage's size counts steps of all copies. A size that was given, and that of a rollout, are unchanged.

    Args:
        description: of the run, with the preset.
        preset: of the algorithm in the environment.
        given: what differs from the preset.
        num_envs: copies of the environment, as a value or a text.
    """
    whole, count, preset_count = dict(description), value_of(num_envs), _copies(preset)
    size = preset.get("storage", {}).get("size")
    is_of_preset = size is not None and "size" not in given.get("storage", {}) and "size" in whole["storage"]
    # A number that is not valid is refused where the environments are made.
    if not is_of_preset or type(count) is not int or count < 1 or count == preset_count:
        return whole
    algorithm = part_named(Algorithm, whole["algorithm"]["name"])
    if not storage_class(whole, algorithm).on_policy:
        whole["storage"] = {**whole["storage"], "size": max(1, size * preset_count // count)}
    return whole


def told_of_changes(parts: RunParts, preset: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return sentences on what a run changes of a preset without having asked for it.

    Args:
        parts: of the run.
        preset: of the algorithm in the environment.
        given: what differs from the preset.
    """
    return [*_of_copies(parts, preset, given), *_of_schedules(preset, given)]


def _of_schedules(preset: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    return [
        f"{kind}.{name} stays constant, where the preset has {preset[kind][name]}; a schedule is given in that form."
        for kind in KINDS
        for name, value in given.get(kind, {}).items()
        if isinstance(value_of(preset.get(kind, {}).get(name)), Schedule) and not isinstance(value_of(value), Schedule)
    ]


def _of_copies(parts: RunParts, preset: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    count, preset_count = 0 if parts.envs is None else parts.envs.hyper_parameters.get("num_envs", 0), _copies(preset)
    size, preset_size = parts.storage.hyper_parameters.get("size"), preset.get("storage", {}).get("size")
    if not count or count == preset_count or size is None or preset_size is None:
        return []
    copies = f"{count} {'copy' if count == 1 else 'copies'} of the environment instead of {preset_count}"
    if not parts.storage.cls.on_policy:
        if "size" in given.get("storage", {}):
            return []
        return [
            f"With {copies}, storage.size is {size:,} steps instead of {preset_size:,}, so that replay holds "
            f"{size * count:,} transitions as in the preset; a storage.size that is given is taken as it is."
        ]
    rollout, of_preset = size * count, preset_size * preset_count
    if rollout == of_preset:
        return []
    said, fitting = f"With {copies}, a rollout has {rollout:,} transitions instead of {of_preset:,}", []
    batches = parts.algorithm.hyper_parameters.get("num_mini_batch", 1)
    batches_of_preset = preset.get("algorithm", {}).get("num_mini_batch", batches)
    batch, batch_of_preset = rollout // batches, of_preset // batches_of_preset
    if batches_of_preset > 1 and batch != batch_of_preset:
        said += f", and a minibatch {batch:,} instead of {batch_of_preset:,}"
    if of_preset % count == 0:
        fitting.append(f"storage.size={of_preset // count} keeps those of the preset")
    if batches_of_preset > 1 and batch != batch_of_preset and rollout % batch_of_preset == 0:
        fitting.append(f"algorithm.num_mini_batch={rollout // batch_of_preset} its minibatches alone")
    return [f"{said}{'; ' if fitting else ''}{', '.join(fitting)}."]


def take_out_normalization(whole: Mapping[str, Any], given_env: Mapping[str, Any], kind: str | None) -> bool:
    """Take the wrapper ``NormalizeReward`` of a preset out of a description where rewards are normalised otherwise.

    Args:
        whole: the description, which is changed.
        given_env: settings of the environment that the user gave.
        kind: the setting ``normalize_rewards``.

    Returns:
        Whether it was there.
    """
    wrappers = whole["env"].get("wrappers", ())
    if kind is None or "wrappers" in given_env:
        return False
    others = [one for one in wrappers if name_of_wrapper(one) != NormalizeReward.__name__]
    if len(others) == len(wrappers):
        return False
    whole["env"]["wrappers"] = others
    return True


def changed_settings(preset: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return the names of given settings that differ from a preset's, and on which its return depends.

    Args:
        preset: of the algorithm in the environment.
        given: names and hyper-parameters of the parts, steps and preprocessing, as values or texts.
    """
    changed = []
    algorithm = part_named(Algorithm, given["algorithm"]["name"])
    storage = storage_class({"storage": preset.get("storage", {})}, algorithm)
    usual = {"algorithm": algorithm.__name__, "storage": storage_for(algorithm).__name__}
    usual["actor"] = actor_for(storage).__name__
    for kind in KINDS:
        of_preset, here = preset.get(kind, {}), given.get(kind, {})
        named = here.get("name")
        if kind != "env" and named not in (None, of_preset.get("name", usual[kind])):
            changed.append(kind)
            continue
        cls = KINDS[kind] if kind == "env" else part_named(KINDS[kind], of_preset.get("name", usual[kind]))
        known = hyper_parameters_of(cls)
        for name, value in here.items():
            name = name.replace("-", "_")
            default = known[name].default if name in known else None
            if name not in ("name", *_CHANGE_NO_RETURN) and value_of(value) != value_of(of_preset.get(name, default)):
                changed.append(name if name == "num_envs" else f"{kind}.{name}")
    changed += ["steps"] if given.get("steps", preset.get("steps")) != preset.get("steps") else []
    return changed + ([] if given.get("preprocessing", True) else ["preprocessing"])


def _copies(preset: Mapping[str, Any]) -> int:
    count: int = preset.get("env", {}).get("num_envs", 1)
    return count
