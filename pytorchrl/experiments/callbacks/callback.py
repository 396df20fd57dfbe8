"""The base class of callbacks, and the events on which a run calls them."""

import difflib
import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from pytorchrl.agent.other_names import CALLBACK_ATTRIBUTES, CALLBACK_NAMES
from pytorchrl.scheme.collector import Episode
from pytorchrl.scheme.evaluation import Evaluation
from pytorchrl.scheme.scheme import Scheme
from storages.component.other_names import refuse_attribute
from storages.component.setting import Setting

if TYPE_CHECKING:
    import wandb


class TrainingRun(Protocol):
    """The part of a run that its callbacks may use; :class:`Learner` is one."""

    scheme: Scheme
    """The algorithm, the storages and the environments."""
    target_steps: int
    log_every: int

    @property
    def log_dir(self) -> Path:
        """The run folder."""

    @property
    def wandb_run(self) -> "wandb.Run | None":
        """The wandb run that is logged to; None without one."""

    @property
    def seconds_of_parts(self) -> dict[str, float]:
        """Seconds spent in "collect", "update", "evaluate" and "save"."""

    def get_metrics(self) -> dict[str, float]:
        """Return the latest value of each metric."""

    def log(self, metrics: Mapping[str, float]) -> None:
        """Log further metrics."""

    def log_histograms(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Log histograms of values, in the loggers that support them."""

    def log_video(self, name: str, path: str | os.PathLike[str]) -> None:
        """Log a video, in the loggers that support it."""

    def save_policy(self, path: str | os.PathLike[str], **numbers: float) -> Path:
        """Save the policy alone."""

    def stop(self, reason: str) -> None:
        """End the run after the current step."""

    def is_interrupted(self) -> bool:
        """Whether the run was asked to stop."""


_AFTER_COLLECTION = (
    "on_rollout(self, learner), before the updates, where the storage of an on-policy algorithm holds the rollout: "
    "learner.scheme.storage.get_data_slice(0, learner.scheme.storage.size). on_step(self, learner) is after them, "
    "where it is empty"
)
_OF_STABLE_BASELINES3 = {
    "_on_step": (
        "on_step(self, learner), after a phase of collection and its updates rather than each step; "
        "on_rollout(self, learner) is before the updates, where the storage of an on-policy algorithm holds the "
        "rollout, and on_episodes gets episodes as they end"
    ),
    "_on_training_start": "on_run_begin(self, learner)",
    "on_training_start": "on_run_begin(self, learner)",
    "_on_training_end": "on_run_end(self, learner)",
    "on_training_end": "on_run_end(self, learner)",
    "_on_rollout_start": "on_step_begin(self, learner)",
    "on_rollout_start": "on_step_begin(self, learner)",
    "_on_rollout_end": _AFTER_COLLECTION,
    "on_rollout_end": _AFTER_COLLECTION,
    "_init_callback": "on_run_begin(self, learner)",
}
"""Methods of callbacks of stable-baselines3, and the events here."""


@dataclass(eq=False, init=False)
class Callback(Setting):
    """Base class of callbacks; a subclass overrides the methods of the events that it needs.

    Each method gets the learner, a :class:`TrainingRun`: ``learner.scheme`` has the algorithm, the storages and the
    environments, ``learner.log({...})`` logs further metrics, ``learner.stop(reason)`` ends the run after the current
    step. A callback without parameters is a plain class. One with parameters is decorated with ``@dataclass``: its
    fields are validated when it is made, saved in ``config.json``, and passed to it again when the run is resumed.
    State that changes during a run belongs in :meth:`state_dict`. A callback object must not be shared by learners.

    A checkpoint that a callback saves in ``on_evaluation`` or ``on_step`` holds that the callbacks after it were not
    called yet; these are called first when the run is resumed. That callback itself is not called again.

    Raises:
        TypeError: a subclass defines a method ``on_...`` of no event, one of callbacks of stable-baselines3, or one
            that takes other arguments than its event gives; raised when the class is made. A method of an event
            returns True or False, which would change nothing; raised when it is called.
    """

    other_names = CALLBACK_NAMES

    if not TYPE_CHECKING:  # for which each name would exist

        def __getattr__(self, name):
            return refuse_attribute(self, type(self).__name__, name, CALLBACK_ATTRIBUTES)

    def __init__(self, *given: Any) -> None:
        if given:
            raise TypeError(
                f"{type(self).__name__}: super().__init__() of a callback takes no arguments, such as verbose, got "
                f"{', '.join(map(repr, given))}; parameters of a callback are fields of a class that @dataclass "
                f"decorates"
            )
        self.__post_init__()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        events = [name for name in vars(Callback) if name.startswith("on_")]
        for name in dir(cls):
            if name in _OF_STABLE_BASELINES3:
                raise TypeError(
                    f"{cls.__name__}.{name} would never be called: here it is {_OF_STABLE_BASELINES3[name]}. "
                    f"learner.stop(reason) ends the run, and learner.scheme.steps is the number of its steps"
                )
            if name.startswith("on_") and name not in events:
                begun = sorted((event for event in events if name.startswith(event)), key=len, reverse=True)
                near = begun or difflib.get_close_matches(name, events)
                hint = f"did you mean {near[0]}? The" if near else "the"
                raise TypeError(
                    f"{cls.__name__}.{name} would never be called; {hint} events are {', '.join(events)}; a method "
                    f"of your own needs a name that does not begin with on_"
                )
            if name in events:
                _check_parameters(cls, name)

    def on_run_begin(self, learner: Any) -> None:
        """Called when :meth:`Learner.run` begins, also after a resume."""

    def on_step_begin(self, learner: Any) -> None:
        """Called before steps are collected, when all evaluations of the steps before have ended.

        Where Ctrl-C interrupts collection, it is called again before collection goes on.
        """

    def on_step(self, learner: Any) -> None:
        """Called after a phase of collection, and all updates and evaluations that were due then.

        A phase is a rollout, or the steps between two updates, such as ``update_every`` transitions of an algorithm
        with replay; the first of these has the ``start_steps``. ``learner.scheme.steps`` grows by more than one between
        two calls. Where Ctrl-C interrupts the evaluation, it is called when the run goes on and has evaluated.
        """

    def on_episodes(self, learner: Any, episodes: Sequence[Episode]) -> None:
        """Called when training episodes have ended, before the updates that follow."""

    def on_rollout(self, learner: Any) -> None:
        """Called after steps are collected, before the updates that learn from them.

        The storage of an on-policy algorithm holds the whole rollout then, without advantages and returns, which the
        updates compute: ``learner.scheme.storage.get_data_slice(0, learner.scheme.storage.size)``. In ``on_step`` it is
        empty. Where no update is due, as at the end of a run, it is not called.
        """

    def on_update(self, learner: Any, metrics: Mapping[str, Any]) -> None:
        """Called after an update, with the metrics of the algorithm and the storage; values may be tensors.

        Further updates may follow: no checkpoint can be saved before ``on_step``.
        """

    def on_evaluation(self, learner: Any, evaluation: Evaluation) -> None:
        """Called after an evaluation in the test environments."""

    def on_checkpoint(self, learner: Any, path: Path) -> None:
        """Called after a checkpoint was written."""

    def on_run_end(self, learner: Any) -> None:
        """Called when :meth:`Learner.run` ends, before the last checkpoint; not after an exception."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state from which a resumed run continues, as tensors and plain data."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""


def _check_parameters(cls: type[Callback], event: str) -> None:
    """Check that a method can be called as that of its event is.

    Raises:
        TypeError: it takes fewer or more arguments.
    """
    method = inspect.getattr_static(cls, event)
    names = list(inspect.signature(getattr(Callback, event)).parameters)
    # A static method is not given the callback itself.
    given = names[1:] if isinstance(method, staticmethod) else names
    function = getattr(method, "__func__", method)
    if not inspect.isfunction(function):
        return
    signature = inspect.signature(function)
    try:
        signature.bind(*given)
    except TypeError as error:
        raise TypeError(
            f"{cls.__name__}.{event}{signature} could not be called for its event; write def {event}"
            f"({', '.join(names)})"
        ) from error


def refuse_without_evaluations(callback: Callback, learner: TrainingRun) -> None:
    """Refuse a callback that would never be called, as the run makes no evaluations.

    Raises:
        ValueError: it makes none.
    """
    scheme, name = learner.scheme, type(callback).__name__
    if not scheme.can_evaluate:
        raise ValueError(f"{name}: the run makes no evaluations; give the scheme test_envs_factory")
    if scheme.algorithm.test_every == 0:
        raise ValueError(
            f"{name}: the run makes no evaluations, as test_every of {type(scheme.algorithm).__name__} is 0; set the "
            f"transitions between them, such as test_every=5_000"
        )


def is_due(every: int, before: int, now: int) -> bool:
    """Whether a multiple of ``every`` lies in (before, now]."""
    return now // every > before // every
