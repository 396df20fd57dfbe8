"""Around a run: its folder, its checkpoints, its composition as plain data, and what its agent does."""

from pytorchrl.experiments.checkpoint import CheckpointError
from pytorchrl.experiments.demonstrations import collect_demonstrations
from pytorchrl.experiments.memory_of_episodes import with_memory
from pytorchrl.experiments.run_folder import RunFolder
from pytorchrl.experiments.run_lock import RunInUseError
from pytorchrl.experiments.trained_policy import TrainedPolicy, load_policy

__all__ = [
    "CheckpointError",
    "RunFolder",
    "RunInUseError",
    "TrainedPolicy",
    "collect_demonstrations",
    "load_policy",
    "with_memory",
]
