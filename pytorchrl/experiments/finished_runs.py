"""Whether a run has finished, from the files of its folder alone."""

from collections.abc import Mapping
from typing import Any

from pytorchrl.experiments.runs import checkpoint
from pytorchrl.experiments.runs.checkpoint import CheckpointError
from pytorchrl.experiments.runs.composition import as_checkpoint_error, differences
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.logging.metrics_file import MetricsError, read_metrics


def has_finished(folder: RunFolder, composition: Mapping[str, Any], target_steps: int) -> bool:
    """Return whether a run has reached its target, and has made the updates and the evaluation that were due there.

    Nothing is opened but files of the folder. Where they are missing, damaged, or of another composition, the run has
    not finished: resuming it says what is wrong.

    Args:
        folder: the run folder, which need not exist.
        composition: what the run should have been composed of, as in ``config.json``.
        target_steps: the steps that it should have made.
    """
    if not (folder.checkpoint_file.is_file() and folder.metrics_file.is_file()):
        return False
    try:
        config = folder.read_config()
        with as_checkpoint_error(folder.config_file):
            if config["target_steps"] != target_steps or differences(composition, config):
                return False
        # Most unfinished runs show in their metrics, which are much shorter than a checkpoint.
        records = read_metrics(folder.metrics_file)
        if not records or (records[-1].get("steps") or 0) < target_steps:
            return False
        state = checkpoint.load(folder.checkpoint_file, is_mapped=True)
        with as_checkpoint_error(folder.checkpoint_file):
            loop = state["learner"]
            is_due = loop["phases_due"] or loop["evaluation_is_due"] or any(one["due"] for one in loop["callbacks"])
            return bool(state["scheme"]["collector"]["steps"] >= target_steps and not is_due)
    except (CheckpointError, MetricsError):
        return False
