"""The names of the files in a run folder."""

import os
from pathlib import Path


class RunFiles:
    """Paths of a run's files, which need not exist.

    Args:
        path: of the folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        """The composition, and the learner's settings."""
        self.versions_file = self.path / "versions.json"
        """The provenance."""
        self.diff_file = self.path / "git_diff.patch"
        """Uncommitted changes of the code."""
        self.metrics_file = self.path / "metrics.jsonl"
        self.checkpoint_file = self.path / "checkpoint.pt"
        """The newest checkpoint."""
        self.best_weights_file = self.path / "best_weights.pt"
        """The actor of the best evaluation."""
        self.curve_file = self.path / "learning_curve.png"
        self.error_file = self.path / "error.txt"
        """The traceback of the exception that ended the run."""
        self.id_file = self.path / "run_id"
        """Identifies a run whose storage lies outside."""
        self.tensorboard_folder = self.path / "tensorboard"
        self.wandb_folder = self.path / "wandb"
        self.wandb_id_file = self.path / "wandb_run_id.txt"
        self.wandb_labels_file = self.path / "wandb_run.json"
        """Project, entity, group, name and tags of the wandb run."""
        self.videos_folder = self.path / "videos"
        self.policies_folder = self.path / "policies"

    def earlier_checkpoint_files(self, keep: int) -> list[Path]:
        """Return the paths of the checkpoints before the newest, newest first, if ``keep`` are kept in all."""
        return [self.path / f"checkpoint-{age}.pt" for age in range(1, keep)]

    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint, the newest or an earlier one."""
        return any(self.path.glob("checkpoint*.pt"))

    def policy_file(self, steps: int) -> Path:
        """Return the path of a policy that was saved after some steps."""
        return self.policies_folder / f"steps-{steps:09}.pt"

    def video_file(self, steps: int, suffix: str) -> Path:
        """Return the path of a video that was recorded after some steps."""
        return self.videos_folder / f"steps-{steps:09}{suffix}"
