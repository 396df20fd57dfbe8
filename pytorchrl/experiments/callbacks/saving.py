"""Callbacks that save policies during a run, and export the last one."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorchrl.experiments.callbacks.callback import Callback, TrainingRun, is_due
from pytorchrl.experiments.policies.policy_export import SUFFIXES, export_policy, origin_of
from pytorchrl.experiments.policies.wrapped_actions import action_wrappers, warning_of
from pytorchrl.run_files import RunFiles
from pytorchrl.terminal import tell
from storages.component.hyper_parameters import Count
from storages.files import refuse_link


@dataclass(eq=False)
class SavePolicies(Callback):
    """Saves the policy during the run, in ``policies`` of the run folder, for :func:`load_policy`.

    Args:
        every: steps of the run between files.
    """

    every: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        self._saved_at = 0

    def on_step(self, learner: TrainingRun) -> None:
        """Save the policy, if it is due."""
        steps = learner.scheme.steps
        if is_due(self.every, self._saved_at, steps):
            self._saved_at = steps
            files = RunFiles(learner.log_dir)
            refuse_link(files.policies_folder)
            learner.save_policy(files.policy_file(steps))

    def state_dict(self) -> dict[str, Any]:
        """Return the steps at the last file."""
        return {"saved_at": self._saved_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._saved_at = state["saved_at"]


@dataclass(eq=False)
class ExportPolicy(Callback):
    """Exports the policy to the run folder when the run ends, as :meth:`TrainedPolicy.export` does.

    The run begins with an export of the untrained policy, which is not kept, so that a policy that cannot be exported
    is refused before it is trained.

    Args:
        file: name of the file in the run folder, which ends in ".onnx", ".pt2" or ".ts".
    """

    file: str = "policy.onnx"

    def __post_init__(self) -> None:
        super().__post_init__()
        if Path(self.file).name != self.file or Path(self.file).suffix not in SUFFIXES:
            raise ValueError(
                f"ExportPolicy: file must be a name that ends in .onnx, .pt2 or .ts, without folders, got {self.file!r}"
            )

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Export the policy as it is, to see whether that is possible.

        Raises:
            RuntimeError: the installed version of torch cannot export the policy.
            ImportError: ".onnx" needs the packages onnx and onnxscript.
            ValueError: actions depend on more than observations and recurrent states.
        """
        with tempfile.TemporaryDirectory() as folder:
            self._export(learner, Path(folder) / self.file)
        if wrappers := self._wrappers(learner):
            tell(f"ExportPolicy: {warning_of(wrappers, learner.scheme.algorithm.action_space)}")

    def on_run_end(self, learner: TrainingRun) -> None:
        """Export the policy."""
        path = learner.log_dir / self.file
        refuse_link(path)
        self._export(learner, path)

    def _export(self, learner: TrainingRun, path: Path) -> None:
        scheme = learner.scheme
        origin = origin_of(scheme.config, scheme.steps, {})
        export_policy(scheme.algorithm, path, scheme.action_names, self._wrappers(learner), origin)

    def _wrappers(self, learner: TrainingRun) -> tuple[str, ...]:
        envs = learner.scheme.test_envs_factory
        return () if envs is None else action_wrappers(envs.hyper_parameters.get("wrappers", ()))
