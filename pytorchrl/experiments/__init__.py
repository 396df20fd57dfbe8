"""Around a run: its folder, its checkpoints, its composition as plain data, and what its agent does."""

from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.demonstrations import collect_demonstrations
from pytorchrl.experiments.memory_of_episodes import with_memory
from pytorchrl.experiments.run_folder import RunFolder
from pytorchrl.experiments.run_lock import RunInUseError

__all__ = ["CheckpointError", "RunFolder", "RunInUseError", "collect_demonstrations", "with_memory"]
