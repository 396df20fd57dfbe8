"""The settings of a run, and its parts made again from its folder: to resume it, or to repeat it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pytorchrl.agent.device import find_device
from pytorchrl.agent.envs.driven import DrivenEnvs
from pytorchrl.experiments import notices
from pytorchrl.experiments.callbacks import Callbacks, callbacks_from_config
from pytorchrl.experiments.runs import checkpoint, storage_owner, storage_paths
from pytorchrl.experiments.runs.changed_settings import with_changes
from pytorchrl.experiments.runs.checkpoint import CheckpointError, DamagedCheckpointError
from pytorchrl.experiments.runs.composition import (
    as_checkpoint_error,
    differences,
    made_of,
    made_scheme,
)
from pytorchrl.experiments.runs.continuation import classes_of_the_script, modules_that_can_be_imported
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.user_modules import missing_modules_named
from pytorchrl.logging import Logger
from pytorchrl.logging.writers import LoggerSetting, Wandb, checked_loggers
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.scheme import Scheme
from pytorchrl.terminal import tell
from storages.datasets import open_dataset


@dataclass(frozen=True)
class ResumedRun:
    """A run restored from a checkpoint."""

    config: dict[str, Any]
    """The configuration of the resumed run."""
    scheme: Scheme
    callbacks: Callbacks
    loggers: Sequence[Logger]
    file: Path
    """The checkpoint."""
    learner_state: Mapping[str, Any]
    """State of the learner itself in the checkpoint."""
    damaged: Sequence[DamagedCheckpointError]
    """Newer checkpoints that are damaged."""
    cut_short: Sequence[int]
    """Environments whose state was not restored, and whose running episodes were lost."""
    is_from_config: bool
    """Whether the scheme was made from the configuration."""

    def quarantine_damaged(self, newest: Path) -> None:
        """Rename damaged checkpoints and print that; print which one was loaded if it is not the newest."""
        for error in self.damaged:
            aside = error.path.with_suffix(".damaged")
            error.path.replace(aside)
            tell(f"{error.path} is damaged: {error.reason}. Renamed it to {aside.name}.")
        if self.file != newest:
            tell(f"Resumed from {self.file}, saved at {self.scheme.steps:,} {self.scheme.unit}.")


@contextmanager
def resumed_run(
    folder: RunFolder,
    config: Mapping[str, Any],
    scheme: Scheme | None,
    target_steps: int | None,
    log_to: Sequence[Logger] | None,
    callbacks: Sequence[Any] | None,
    data: Sequence[str],
) -> Iterator[ResumedRun]:
    """Restore a run; if the context raises, a scheme that was built here is closed again.

    Args:
        folder: the run folder.
        config: the run's configuration.
        scheme: given by the user; None builds it from the configuration.
        target_steps: a new target; None takes the configuration's.
        log_to: new loggers; None takes the configuration's.
        callbacks: new callbacks; None builds them from the configuration.
        data: paths of the run's data sets, if the scheme is None.

    Raises:
        DatasetError: a data set cannot be read.
        ValueError: data sets are given beside a scheme, or the new target lies below the steps made.
        CheckpointError: there is no checkpoint, it is damaged, or it is from another composition.
        CompositionError: the composition cannot be built from the configuration alone.
    """
    if scheme is not None and data:
        raise ValueError(f"Learner.resume: the scheme has its own data sets, got data={list(data)!r} beside it")
    for path in data:
        # Before the run's own files, so that an error is that of the data set.
        open_dataset(path)
    keep_checkpoints = config.get("keep_checkpoints", 1)
    candidates = [folder.checkpoint_file, *folder.earlier_checkpoint_files(keep_checkpoints)]
    file, state, damaged = checkpoint.load_newest(candidates)
    with as_checkpoint_error(file):
        refuse_other_composition(config if scheme is None else scheme.config, state["config"], file, scheme)
        composition = config if scheme is None else scheme.config
        storage_paths.refuse_storages_that_are_gone(composition, state["scheme"], file)
        if scheme is None:
            storage_paths.refuse_storages_of_others(config, state["scheme"], folder.path)
            storage_paths.refuse_ancestors_of_others(config, folder.path)
        else:
            storage_owner.refuse_to_empty(scheme.config, state["scheme"], folder.path)
        storage_owner.refuse_another_run(composition, state["scheme"], folder.path)
        steps = int(state["scheme"]["collector"]["steps"])
    if target_steps is not None and target_steps != config["target_steps"]:
        _refuse_smaller_target(target_steps, steps, folder.path, "updates" if config["train_envs"] is None else "steps")
    with made_scheme(config, data, folder.config_file) if scheme is None else nullcontext(scheme) as restored:
        with as_checkpoint_error(folder.config_file):
            called = Callbacks(callbacks_from_config(config) if callbacks is None else callbacks)
            loggers = loggers_from_config(config) if log_to is None else log_to
        config_now = {**config, **restored.config}
        config_now |= settings(
            config["target_steps"] if target_steps is None else target_steps,
            loggers,
            config["log_every"],
            keep_checkpoints,
        )
        config_now |= parts_of(restored, called)
        if scheme is None:
            # Those of an id that a module has registered are known to the process that began the run alone.
            config_now["imports"] = config_now["imports"] or config.get("imports", [])
        given = [part.changed_parameters for part in restored.changeable]
        with as_checkpoint_error(file):
            cut_short = restored.load_state_dict(state["scheme"])
            learner_state = state["learner"]
        saved = [part.changed_parameters for part in restored.changeable]
        config_now = with_changes(config_now, restored.changeable, given, saved, steps)
        for part, of_checkpoint, changes in zip(restored.changeable, saved, given, strict=True):
            part.take_changes(of_checkpoint | changes)
        yield ResumedRun(config_now, restored, called, loggers, file, learner_state, damaged, cut_short, scheme is None)


def _refuse_smaller_target(target_steps: int, steps: int, folder: Path, unit: str) -> None:
    """Refuse a new target below the steps made; the old one may lie below, as runs end with a whole step of all copies.

    Raises:
        ValueError: it lies below.
    """
    if positive("target_steps", target_steps) < steps:
        raise ValueError(
            f"Learner.resume: {folder} has made {steps:,} {unit}, more than the new target of {target_steps:,}; "
            f"nothing was changed. Give a target of at least {steps:,}, or begin a shorter run in another folder"
        )


@dataclass(frozen=True)
class RepeatedRun:
    """Arguments of a learner that begins a run again."""

    scheme: Scheme
    target_steps: int
    settings: dict[str, Any]
    """Keyword arguments."""
    checkpoint_every: int | None


@contextmanager
def repeated_run(
    run: RunFolder,
    log_dir: Path,
    seed: int | None,
    device: torch.device | str | None,
    log_to: Sequence[Logger] | None,
    callbacks: Sequence[Any] | None,
    data: Sequence[str],
) -> Iterator[RepeatedRun]:
    """Make the parts of a run again, without reading its checkpoints; if the context raises, the scheme is closed.

    Args:
        run: the folder of the run.
        log_dir: the folder of the new run, in which storages on disk begin empty.
        seed: a new seed; None takes the configuration's.
        device: a new device; None takes the configuration's.
        log_to: new loggers; None makes them from the configuration.
        callbacks: new callbacks; None makes them from the configuration.
        data: paths of the run's data sets.

    Raises:
        FileExistsError: ``log_dir`` holds a run.
        DeviceError: there is no such device.
        CheckpointError: the folder is not a run folder, or its configuration is damaged.
        CompositionError: the composition cannot be built from the configuration alone.
        DatasetError: a data set cannot be read.
    """
    config = run.read_config()
    if RunFolder(log_dir).config_file.exists():
        # Before its storage is opened.
        raise FileExistsError(f"Learner.repeat: {log_dir} holds a run already; choose another log_dir")
    storage_paths.refuse_ancestors_of_others(config, run.path, in_new_directories=True)
    composition = storage_paths.in_another_run(config, run.path, log_dir)
    composition |= {} if seed is None else {"seed": seed}
    composition |= {} if device is None else {"device": str(find_device(device))}
    with missing_modules_named(config):
        with as_checkpoint_error(run.config_file):
            called = callbacks_from_config(config) if callbacks is None else callbacks
            loggers = _named_after(loggers_from_config(config), config["seed"], seed) if log_to is None else log_to
        notices.report_changes_not_repeated(run.path, config)
        with made_scheme(composition, data, run.config_file) as scheme:
            of_learner = {
                "log_to": loggers,
                "log_every": config["log_every"],
                "keep_checkpoints": config.get("keep_checkpoints", 1),
                "callbacks": called,
            }
            yield RepeatedRun(scheme, config["target_steps"], of_learner, config.get("checkpoint_every"))


def _named_after(loggers: Sequence[Logger], old: int, new: int | None) -> list[Logger]:
    """Return loggers whose names in wandb end with the new seed where they ended with the old one."""
    if new is None:
        return list(loggers)
    end = f"-seed-{old}"
    return [
        replace(one, run_name=f"{one.run_name.removesuffix(end)}-seed-{new}")
        if isinstance(one, Wandb) and one.run_name is not None and one.run_name.endswith(end)
        else one
        for one in loggers
    ]


def settings(target_steps: int, log_to: Sequence[Logger], log_every: int, keep_checkpoints: int) -> dict[str, Any]:
    """Return the arguments of a learner as they are saved in the configuration.

    Raises:
        TypeError: an item of ``log_to`` is no logger.
        ValueError: a number is not positive, ``log_to`` is a single name, or a name is not known.
    """
    checked_loggers(log_to)
    counts = {"target_steps": target_steps, "log_every": log_every, "keep_checkpoints": keep_checkpoints}
    return {name: positive(name, value) for name, value in counts.items()} | {
        "log_to": [_described(logger) for logger in log_to]
    }


def _described(logger: Logger) -> Any:
    if isinstance(logger, str):
        return logger
    return logger.config if isinstance(logger, LoggerSetting) else {"callable": type(logger).__name__}


def own_loggers(config: Mapping[str, Any]) -> list[str]:
    """Return the class names of the loggers that are objects of a user's."""
    return [logger["callable"] for logger in config["log_to"] if isinstance(logger, Mapping) and "callable" in logger]


def loggers_from_config(config: Mapping[str, Any]) -> list[Logger]:
    """Return the loggers that a run's configuration describes.

    Raises:
        CompositionError: one is an object of a user's, which a configuration cannot make again.
    """
    if own := own_loggers(config):
        raise CompositionError(
            f"the run logged to {own[0]}, an object of a script, which config.json cannot make again; pass loggers: "
            f"Learner.resume(log_dir, log_to=[...]), or the same to Learner.repeat; log_to=[] goes on without"
        )
    loggers: list[Logger] = []
    for described in config["log_to"]:
        logger = described if isinstance(described, str) else made_of(described)
        if not isinstance(logger, str | LoggerSetting):
            raise CompositionError(
                f"the run names {described}, which is no logger; pass log_to=[...] to Learner.resume"
            )
        loggers.append(logger)
    return loggers


def parts_of(scheme: Scheme, callbacks: Callbacks) -> dict[str, Any]:
    """Return the callbacks, the names of user-defined classes, and the modules that define user-defined parts.

    The modules are only informative: a module is never imported because a file names it.
    """
    return {
        "callbacks": [callback.config for callback in callbacks.all],
        "own_classes": classes_of_the_script([*scheme.factories, *callbacks.all]),
        "imports": modules_that_can_be_imported(scheme.factories, callbacks.all),
    }


def positive(name: str, value: int) -> int:
    """Return a number after checking that it is an int of at least 1.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"Learner: {name} must be an int from 1, got {value!r}")
    return value


def refuse_other_composition(
    ours: Mapping[str, Any], saved: Mapping[str, Any], file: Path, scheme: Scheme | None
) -> None:
    """Check that a checkpoint is from the composition that is to resume from it.

    Args:
        ours: configuration of the composition.
        saved: configuration in the checkpoint.
        file: the checkpoint.
        scheme: of the composition, if the user has given it.

    Raises:
        CheckpointError: it is from another.
    """
    differing = differences(ours, saved)
    if not differing:
        return
    by_user, by_run = ((config["train_envs"] or {}).get("name") == DrivenEnvs.__name__ for config in (ours, saved))
    new = f"prl.start_from({'agent' if by_user else 'scheme'}, {str(file.parent)!r})"
    if by_user and not by_run:
        raise CheckpointError(
            f"{file} is of a run that steps its environments itself, or has none; an Agent, whose program steps them, "
            f"cannot continue it. Begin a new run with its weights: make the agent with another log_dir, and call {new}"
        )
    if by_run and not by_user:
        raise CheckpointError(
            f"{file} is of a run of prl.Agent, whose program steps the environments; a scheme with environments of its "
            f"own cannot continue it. Continue it by prl.Agent(..., resume=True), or begin a new run with its weights "
            f"in another folder: {new}"
        )
    changes = None if scheme is None else _changes_between(scheme, ours, saved, len(differing))
    way_out = "Resume with the composition it was saved with"
    if changes is not None:
        made = "Make the {} of the factories it was saved with, and change it"
        way_out = f"{made.format('agent')} then" if by_user else f"{made.format('scheme')} before it resumes"
        way_out += f": {'; '.join(f'agent.learner.{call}' if by_user else call for call in changes)}"
    new += "" if by_user else f", or train --from {file.parent}"
    raise CheckpointError(
        f"{file} is of another composition; {'; '.join(differing)}. {way_out}, or begin a new run in another folder, "
        f"by another log_dir (--log-dir), and with the weights of this one if you wish: {new}"
    )


def _changes_between(
    scheme: Scheme, ours: Mapping[str, Any], saved: Mapping[str, Any], num_differing: int
) -> list[str] | None:
    """Return the calls that change the hyper-parameters which differ; None if more differs than can be changed."""
    calls = list[str]()
    for part, method in (("algorithm", "update_algorithm_parameter"), ("storage", "update_storage_parameter")):
        here, there = ours[part], saved[part]
        if here["name"] != there["name"]:
            return None
        of_part = getattr(scheme, part)
        given = here["hyper_parameters"]
        names = [name for name, value in given.items() if value != there["hyper_parameters"].get(name, value)]
        if any(name in of_part.unchangeable for name in names):
            return None
        calls += [f"scheme.{part}.{method}({name!r}, {_as_code(given[name])})" for name in names]
    return calls if len(calls) == num_differing else None


def _as_code(value: Any) -> str:
    """Return a value of a configuration as an argument; that of a setting or function is left out."""
    return "..." if isinstance(value, Mapping | list) else repr(value)
