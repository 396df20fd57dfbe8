"""What a run calls at its moments: the base of callbacks, and the list of them that a learner has."""

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


class Callbacks:
    """The callbacks of a learner, in their order.

    Args:
        callbacks: the callbacks.

    Raises:
        TypeError: one is no :class:`Callback`, or is there twice.
    """

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        for number, callback in enumerate(callbacks):
            if not isinstance(callback, Callback):
                raise TypeError(f"Learner: callbacks[{number}] must be a Callback, got {callback!r}")
            if any(callback is other for other in callbacks[:number]):
                raise TypeError(f"Learner: callbacks[{number}] is there twice: {callback!r}; make one for each use")
        self.all = tuple(callbacks)
        # Most runs have none that follows steps or updates.
        self._methods = {
            moment: [getattr(callback, moment) for callback in self.all if _overrides(callback, moment)]
            for moment in _MOMENTS
        }

    def call(self, moment: str, *arguments: Any) -> None:
        """Call the method of that name of those that override it."""
        for method in self._methods[moment]:
            method(*arguments)

    def state_dict(self) -> list[dict[str, Any]]:
        """The states of all, each beside what it is made of."""
        return [{"config": callback.config, "state": callback.state_dict()} for callback in self.all]

    def load_state_dict(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore the states of those that are made as they were; others begin anew."""
        left = list(states)
        for callback in self.all:
            for saved in left:
                if saved["config"] == callback.config:
                    callback.load_state_dict(saved["state"])
                    left.remove(saved)
                    break


_MOMENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def _overrides(callback: Callback, moment: str) -> bool:
    return getattr(type(callback), moment) is not getattr(Callback, moment)


def is_due(every: int, before: int, now: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, now]."""
    return now // every > before // every
