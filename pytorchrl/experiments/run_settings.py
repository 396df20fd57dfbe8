"""The parts of a run's configuration other than its scheme, and the check that a checkpoint fits it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorchrl.experiments.callbacks import Callbacks
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.composition import differences
from pytorchrl.experiments.runs.continuation import classes_of_the_script, modules_of
from pytorchrl.scheme.scheme import Scheme


def settings(target_steps: int, log_to: Sequence[str], log_every: int, keep_checkpoints: int) -> dict[str, Any]:
    """Return the arguments of a learner as they are saved in the configuration.

    Raises:
        ValueError: a number is not positive, or ``log_to`` is a single name.
    """
    if isinstance(log_to, str):
        raise ValueError(f"Learner: log_to must be a list of names, got {log_to!r}; write log_to=[{log_to!r}]")
    counts = {"target_steps": target_steps, "log_every": log_every, "keep_checkpoints": keep_checkpoints}
    return {name: positive(name, value) for name, value in counts.items()} | {"log_to": list(log_to)}


def parts_of(scheme: Scheme, callbacks: Callbacks) -> dict[str, Any]:
    """Return the callbacks, the names of user-defined classes, and the modules that define user-defined parts.

    The modules are only informative: a module is never imported because a file names it.
    """
    return {
        "callbacks": [callback.config for callback in callbacks.all],
        "own_classes": classes_of_the_script([*scheme.factories, *callbacks.all]),
        "imports": modules_of(scheme.factories, callbacks.all) or [],
    }


def positive(name: str, value: int) -> int:
    """Return a number after checking that it is an int of at least 1.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"Learner: {name} must be an int from 1, got {value!r}")
    return value


def refuse_other_composition(ours: Mapping[str, Any], saved: Mapping[str, Any], file: Path) -> None:
    """Check that a checkpoint is from the composition that is to resume from it.

    Raises:
        CheckpointError: it is from another.
    """
    differing = differences(ours, saved)
    if differing:
        raise CheckpointError(
            f"{file} is of another composition; {'; '.join(differing)}. Resume with the composition it was saved "
            f"with, or begin a new run with its weights in another folder: "
            f"prl.start_from(scheme, {str(file.parent)!r}), or train --from {file.parent}"
        )
