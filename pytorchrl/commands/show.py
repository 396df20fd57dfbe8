"""The command that shows the composition of a run, its provenance and its returns."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from pytorchrl.commands.shared import Run, print_facts
from pytorchrl.comparison.latex import table_in_latex
from pytorchrl.comparison.tables import Table, table_in_markdown
from pytorchrl.experiments.policies.published_policies import find_policy
from pytorchrl.experiments.policies.trained_policy import configuration_of, read_policy
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.composition import class_named
from pytorchrl.experiments.runs.provenance import command_of
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.logging import read_evaluations, read_metrics
from pytorchrl.logging.formats import as_written, text_of_callable
from pytorchrl.logging.groups import CHANGED_BY_HAND, changes_by_hand
from pytorchrl.logging.pictures.plots import save_text
from pytorchrl.logging.run_labels import settings_by_option
from pytorchrl.logging.tables.evaluation_table import csv_of
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.evaluation import MAX_EPISODE_STEPS
from pytorchrl.terminal import tell
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Component
from storages.component.setting import is_callable, plain

_MINUTE = 60
_LAST = 10
"""Evaluations over which a mean is shown."""
_PARTS = ("algorithm", "actor", "storage", "train_envs", "test_envs")
_NOT_SHOWN = {CHANGED_BY_HAND, "spaces", "own_classes", "target_steps", "log_every", "keep_checkpoints"}
"""Settings that are shown elsewhere, or that change no result."""


def show(
    run: Run,
    diff: bool = False,
    settings: Annotated[bool, tyro.conf.arg(name="all")] = False,
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
) -> None:
    """Show the composition of a run, the code and machine that it was trained with, and its returns.

    Of a policy's file, its composition is shown, and which run it is from.

    Args:
        run: the run folder; or a policy: a file of weights, zoo:NAME, or hf://user/name.
        diff: print instead the uncommitted changes of the code when the run began, for `git apply`.
        settings: print instead all settings, those left at their defaults too, by the names of options of train.
        output: with --all, a file for them: .csv, .md or .tex (LaTeX).
    """
    found = find_policy(run)
    if output is not None and not settings:
        raise ValueError("--output is the file that --all writes; add --all")
    if settings:
        _show_settings(configuration_of(found), output)
        return
    if found.is_file():
        _show_policy(found, diff)
        return
    folder = RunFolder(found)
    config = folder.read_config()
    if diff:
        tell(_diff_of(folder), end="")
        return
    print_facts("Composition", _composition(config))
    try:
        print_facts("Provenance", _provenance(folder))
    finally:
        # A run whose provenance cannot be read has results all the same.
        print_facts("Results", _returns(run, config))


def _show_settings(config: Mapping[str, Any], output: Path | None) -> None:
    """Print all settings, or write them to a file.

    Raises:
        ValueError: the file has another suffix.
    """
    texts = {name: as_written(value) for name, value in settings_by_option(config).items()}
    if output is None:
        print_facts("Settings", texts)
        return
    if output.suffix not in _WRITERS:
        raise ValueError(f"--output must end in {', '.join(_WRITERS)}, got {output}")
    table = Table("Hyper-parameters", ("setting", "value"), [list(one) for one in texts.items()], left=2)
    save_text(_WRITERS[output.suffix](table), output)
    tell(f"{len(texts)} settings: {output}")


def _in_csv(table: Table) -> str:
    return csv_of([dict(zip(table.columns, row, strict=True)) for row in table.rows])


_WRITERS = {".csv": _in_csv, ".md": table_in_markdown, ".tex": table_in_latex}


def _show_policy(file: Path, diff: bool) -> None:
    if diff:
        raise ValueError(f"--diff prints the changes of a run's code, and {file} is a policy; name the run folder")
    policy, config = read_policy(file), configuration_of(file)
    print_facts("Composition", _composition(config))
    print_facts("Policy", {name: shown(value) for name, value in policy.origin.items()})


def shown(value: Any) -> str:
    """Format a value of a configuration as Python source; a part without the arguments that are defaults."""
    if is_callable(value):
        return text_of_callable(value, shown)
    if isinstance(value, Mapping) and {"name", "hyper_parameters"} <= set(value):
        given = value["hyper_parameters"]
        defaults = _defaults(str(value["name"]))
        changed = {name: one for name, one in given.items() if name not in defaults or one != defaults[name]}
        return f"{value['name']}({', '.join(f'{name}={shown(one)}' for name, one in changed.items())})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {shown(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value)


def _defaults(name: str) -> Mapping[str, Any]:
    """Return the defaults of a component's hyper-parameters or a setting's fields; none of a class not imported."""
    try:
        cls = class_named(name)
        parameters = hyper_parameters_of(cls) if issubclass(cls, Component) else inspect.signature(cls).parameters
    except (CompositionError, TypeError):
        return {}
    return {key: plain(one.default) for key, one in parameters.items() if one.default is not one.empty}


def _composition(config: Mapping[str, Any]) -> dict[str, str]:
    rows = {part: shown(config[part]) for part in _PARTS if config.get(part) is not None}
    rows |= {f"source {name}": shown(source) for name, source in config.get("sources", {}).items()}
    usual = {"max_test_episode_steps": MAX_EPISODE_STEPS}
    others = {name: value for name, value in config.items() if name not in {*_PARTS, *_NOT_SHOWN, "sources"}}
    if changes := changes_by_hand(config):
        rows["changed by hand"] = ", ".join(f"{name}={value}" for name, value in changes.items())
    absent: tuple[Any, ...] = (None, [], {})
    return rows | {
        name: shown(value) for name, value in others.items() if value not in absent and value != usual.get(name)
    }


def _provenance(folder: RunFolder) -> dict[str, str]:
    facts = folder.read_provenance()
    commit = str(facts.get("git_commit") or "none: the run was begun outside a git repository")
    if facts.get("git_uncommitted_changes"):
        size = len(_diff_of(folder).splitlines()) if folder.diff_file.exists() else 0
        commit += f", with uncommitted changes ({f'{size:,} lines: show --diff' if size else 'not saved'})"
    machine = facts.get("machine") or {}
    gpus = ", ".join(map(str, machine.get("gpus") or [])) or "no GPU"
    rows = {
        "experiment": facts.get("experiment"),
        "begun": facts.get("started"),
        "command": command_of(facts.get("command") or []),
        "preset": _preset(facts.get("preset") or {}),
        "commit": commit,
        "machine": machine and f"{machine.get('processor')}, {machine.get('cores')} cores, {gpus}",
        "threads of torch": machine.get("torch_threads"),
        "system": facts.get("platform"),
        "versions": ", ".join(
            f"{name} {version}"
            for name, version in {"python": facts.get("python"), **(facts.get("packages") or {})}.items()
        ),
        "variables": ", ".join(f"{name}={value}" for name, value in (facts.get("environment") or {}).items()),
    }
    return {name: str(value) for name, value in rows.items() if value}


def _preset(facts: Mapping[str, Any]) -> str:
    """Return the preset whose settings a run has, and which of them were changed."""
    changed = ", ".join(map(str, facts.get("changed") or []))
    return f"{facts.get('name', '')}{f', with other {changed}' if changed else ''}"


def _returns(run: Path, config: Mapping[str, Any]) -> dict[str, str]:
    metrics_file = RunFolder(run).metrics_file
    if not metrics_file.exists():
        return {"steps": f"none measured, of {config['target_steps']:,}"}
    records, evaluations = read_metrics(metrics_file), read_evaluations(run)
    latest: dict[str, float] = {}
    for record in records:
        latest |= record
    rows = {"steps": f"{latest.get('steps', 0):,.0f} of {config['target_steps']:,}"}
    if "seconds" in latest:
        seconds = latest["seconds"]
        taken = f"{seconds / 60:.1f} minutes" if seconds >= _MINUTE else f"{seconds:.1f} seconds"
        rows["time"] = f"{taken} of training, without evaluations"
    if "train/return" in latest:
        rows["last training return"] = f"{latest['train/return']:.2f}"
    return rows | _of_evaluations(evaluations)


def _of_evaluations(rows: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """Return the final return, the mean of the last ones, and the best one, which is biased upwards."""
    if not rows:
        return {"evaluations": "none"}
    means = [row["mean"] for row in rows]
    best = int(np.argmax(means))
    return {
        "evaluations": f"{len(rows)}",
        "final return": f"{means[-1]:.2f}",
        f"mean of the last {min(_LAST, len(rows))}": f"{np.mean(means[-_LAST:]):.2f}",
        "best return": f"{means[best]:.2f} after {rows[best]['steps']:,.0f} steps",
    }


def _diff_of(folder: RunFolder) -> str:
    diff = folder.read_diff()
    if diff is None:
        raise CheckpointError(
            f"{folder.path} has no {folder.diff_file.name}: there were no uncommitted changes, or too many to save"
        )
    return diff
