"""Making the scheme and the callbacks of a run again from its configuration, for a new run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytorchrl.agent.device import find_device
from pytorchrl.experiments.callbacks.from_config import callbacks_from_config
from pytorchrl.experiments.runs import storage_paths
from pytorchrl.experiments.runs.composition import as_checkpoint_error, made_scheme
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.user_modules import missing_modules_named
from pytorchrl.scheme.scheme import Scheme


@dataclass(frozen=True)
class RepeatedRun:
    """Arguments of a learner that begins a run again."""

    config: dict[str, Any]
    """The configuration of the run that is repeated."""
    scheme: Scheme
    callbacks: Sequence[Any]


@contextmanager
def repeated_run(
    run: RunFolder,
    log_dir: Path,
    seed: int | None,
    device: torch.device | str | None,
    callbacks: Sequence[Any] | None,
    data: Sequence[str],
) -> Iterator[RepeatedRun]:
    """Make the parts of a run again, without reading its checkpoints; if the context raises, the scheme is closed.

    Args:
        run: the folder of the run.
        log_dir: the folder of the new run, in which storages on disk begin empty.
        seed: a new seed; None takes the configuration's.
        device: a new device; None takes the configuration's.
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
    storage_paths.refuse_ancestors_of_others(config, run.path, begins_anew=True)
    composition = storage_paths.in_another_run(config, run.path, log_dir)
    composition |= {} if seed is None else {"seed": seed}
    composition |= {} if device is None else {"device": str(find_device(device))}
    with missing_modules_named(config):
        with as_checkpoint_error(run.config_file):
            called = callbacks_from_config(config) if callbacks is None else callbacks
        with made_scheme(composition, data, run.config_file) as scheme:
            yield RepeatedRun(config, scheme, called)
