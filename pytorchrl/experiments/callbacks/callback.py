"""The base of callbacks: what a run calls at its moments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.evaluation import Evaluation
from storages.component.setting import Setting

if TYPE_CHECKING:
    from pytorchrl.learner import Learner


@dataclass(eq=False)
class Callback(Setting):
    """Base of what a run calls at its moments; a subclass overrides the methods that it needs.

    Each is given the learner: ``learner.scheme`` has the algorithm, the storages and the environments,
    ``learner.log({...})`` adds numbers to the run's, ``learner.stop(reason)`` ends the run after the running step. A
    callback without parameters is a plain class. One with parameters is decorated with ``@dataclass``: its fields are
    checked when it is made, kept in ``config.json``, and given to it anew when the run is resumed. What else changes
    during a run belongs into :meth:`state_dict`. One object serves one learner.
    """

    def on_run_begin(self, learner: "Learner") -> None:
        """Called when :meth:`Learner.run` begins, after a resume too."""

    def on_step(self, learner: "Learner") -> None:
        """Called after steps were collected and the updates made that were due."""

    def on_episodes(self, learner: "Learner", episodes: Sequence[Episode]) -> None:
        """Called when training episodes have ended, before the updates that follow."""

    def on_update(self, learner: "Learner", metrics: Mapping[str, Any]) -> None:
        """Called after an update, with what it and the storage said of it; values may be tensors."""

    def on_evaluation(self, learner: "Learner", evaluation: Evaluation) -> None:
        """Called after an evaluation in the test environments."""

    def on_checkpoint(self, learner: "Learner", path: Path) -> None:
        """Called after a checkpoint was written."""

    def on_run_end(self, learner: "Learner") -> None:
        """Called when :meth:`Learner.run` ends, before the last checkpoint; not after an error."""

    def state_dict(self) -> dict[str, Any]:
        """What the callback goes on from in a resumed run, as tensors and plain data."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""


def is_due(every: int, before: int, now: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, now]."""
    return now // every > before // every
