"""What a run's configuration holds beside its scheme, and whether a checkpoint is of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytorchrl.experiments.callbacks import Callbacks
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.composition import differences
from pytorchrl.experiments.runs.continuation import classes_of_the_script, modules_of
from pytorchrl.scheme.scheme import Scheme


def settings(target_steps: int, log_to: Sequence[str], log_every: int, keep_checkpoints: int) -> dict[str, Any]:
    """Arguments of a learner as the configuration holds them.

    Raises:
        ValueError: a number is not positive.
    """
    counts = {"target_steps": target_steps, "log_every": log_every, "keep_checkpoints": keep_checkpoints}
    return {name: positive(name, value) for name, value in counts.items()} | {"log_to": list(log_to)}


def parts_of(scheme: Scheme, callbacks: Callbacks) -> dict[str, Any]:
    """The callbacks, names of classes that are not the toolkit's, and the modules that define what is not.

    Modules are there for people: nothing is imported because a file names it.
    """
    return {
        "callbacks": [callback.config for callback in callbacks.all],
        "own_classes": classes_of_the_script([*scheme.factories, *callbacks.all]),
        "imports": modules_of(scheme.factories, callbacks.all) or [],
    }


def positive(name: str, value: int) -> int:
    """A number from 1 on.

    Raises:
        ValueError: it is another.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"Learner: {name} must be an int from 1, got {value!r}")
    return value


def refuse_other_composition(ours: Mapping[str, Any], saved: Mapping[str, Any], file: Path) -> None:
    """Check that a checkpoint is of the composition that is to go on from it.

    Raises:
        CheckpointError: it is of another.
    """
    differing = differences(ours, saved)
    if differing:
        raise CheckpointError(
            f"{file} is of another composition; {'; '.join(differing)}. Resume with the composition it was saved "
            f"with, or start a new run in another folder"
        )
