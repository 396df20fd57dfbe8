"""Around a run: its folder, its checkpoints, its composition as plain data."""

from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.run_folder import RunFolder

__all__ = ["CheckpointError", "RunFolder"]
