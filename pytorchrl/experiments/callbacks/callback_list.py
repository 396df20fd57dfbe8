"""The callbacks of a run, by the events on which they are called."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytorchrl.experiments.callbacks.callback import Callback, TrainingRun, is_due
from pytorchrl.experiments.callbacks.evaluating import EvaluateIn
from pytorchrl.experiments.runs.composition import made_of, refuse_callbacks_of_a_script, refuse_to_import
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.evaluation import Evaluation, evaluation_from
from storages.component.hyper_parameters import Count
from storages.component.setting import text_of


@dataclass(eq=False)
class AfterSteps(Callback):
    """Calls a function after each phase of collection and its updates; ``callbacks=[function]`` makes one.

    A phase is a rollout, or the steps between two updates, of all copies of the environment: the number of steps need
    not take the value of a multiple of ``every``, and the function is called after the phase that reaches it.

    Args:
        function: called with the learner. A true return value stops the run; a string is the reason, which is printed
            after the word "because".
        every: steps between calls, at the least; None calls it after each phase.
    """

    function: Callable[..., object]
    every: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._called_at = 0

    def on_step(self, learner: TrainingRun) -> None:
        """Call the function if it is due, and stop the run if it returns a true value."""
        before, self._called_at = self._called_at, learner.scheme.steps
        if self.every is not None and not is_due(self.every, before, self._called_at):
            return
        said = self.function(learner)
        if said:
            learner.stop(said if isinstance(said, str) else f"{text_of(self.function)} returned a true value")

    def state_dict(self) -> dict[str, Any]:
        """Return the steps until which calls were made."""
        return {"called_at": self._called_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._called_at = state["called_at"]


class Callbacks:
    """The callbacks of a learner, in their order.

    Args:
        callbacks: the callbacks; a function is called after each phase of collection, as by :class:`AfterSteps`.

    Raises:
        TypeError: one is neither a :class:`Callback` nor a function, or is given twice.
        ValueError: two :class:`EvaluateIn` have the same name.
    """

    def __init__(self, callbacks: Sequence[Callback | Callable[..., object]]) -> None:
        if not isinstance(callbacks, Sequence):
            raise TypeError(f"Learner: callbacks must be a list, got {callbacks!r}; write callbacks=[...]")
        for number, callback in enumerate(callbacks):
            if not isinstance(callback, Callback) and (isinstance(callback, type) or not callable(callback)):
                raise TypeError(f"Learner: callbacks[{number}] must be a Callback or a function, got {callback!r}")
            if not isinstance(callback, Callback):
                _refuse_other_parameters(callback, f"Learner: callbacks[{number}]")
            if any(callback is other for other in callbacks[:number]):
                raise TypeError(f"Learner: callbacks[{number}] is given twice: {callback!r}; make one for each use")
        names = [callback.name for callback in callbacks if isinstance(callback, EvaluateIn)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"Learner: two EvaluateIn have the name {name!r}, under which both log; rename one")
        self.all = tuple(one if isinstance(one, Callback) else AfterSteps(one) for one in callbacks)
        # Precomputed, as most runs have no callbacks on steps and updates.
        self._methods = {
            moment: [getattr(callback, moment) for callback in self.all if _overrides(callback, moment)]
            for moment in _MOMENTS
        }

        self._due: list[_Event] = []
        """Events whose callbacks were not all called yet; a later one, of an evaluation, is within an earlier one."""

    def call(self, moment: str, *arguments: Any) -> None:
        """Call the method of an event in the callbacks that override it."""
        for method in self._methods[moment]:
            _refuse_answer(method, method(*arguments))

    def announce_step(self) -> None:
        """Note that "on_step" is due; the next :meth:`call_due` calls it, also that of a resumed run."""
        self._announce("on_step", ())

    def call_evaluated(self, learner: TrainingRun, evaluation: Evaluation) -> None:
        """Call "on_evaluation"; if a callback saves a checkpoint or raises an exception, the later ones stay due."""
        if event := self._announce("on_evaluation", (evaluation,)):
            self._call(event, learner)

    def call_due(self, learner: TrainingRun) -> None:
        """Call the callbacks of the events that are due, those of the newest event first."""
        while self._due:
            self._call(self._due[-1], learner)

    def _announce(self, moment: str, arguments: tuple[Evaluation, ...]) -> "_Event | None":
        if not self._methods[moment]:
            return None
        event = _Event(moment, arguments, [one for one in self.all if _overrides(one, moment)])
        self._due.append(event)
        return event

    def _call(self, event: "_Event", learner: TrainingRun) -> None:
        while event.callbacks:
            # Not again, if it saves a checkpoint or raises an exception.
            method = getattr(event.callbacks.pop(0), event.moment)
            _refuse_answer(method, method(learner, *event.arguments))
        self._due.remove(event)

    @property
    def are_due(self) -> bool:
        """Whether callbacks of announced events were not called yet."""
        return any(event.callbacks for event in self._due)

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the states of all callbacks, each with its configuration and the events that are due."""
        return [
            {
                "config": callback.config,
                "state": callback.state_dict(),
                "due": [
                    [number, [evaluation.state_dict() for evaluation in event.arguments]]
                    for number, event in enumerate(self._due)
                    if any(callback is one for one in event.callbacks)
                ],
            }
            for callback in self.all
        ]

    def load_state_dict(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore the states of callbacks with an unchanged configuration; others keep their initial state.

        Raises:
            ValueError: the evaluation of an event that is due is none.
        """
        left, due = list(states), dict[int, _Event]()
        for callback in self.all:
            for saved in left:
                if saved["config"] == callback.config:
                    callback.load_state_dict(saved["state"])
                    for number, states_of_arguments in saved["due"]:
                        arguments = tuple(map(evaluation_from, states_of_arguments))
                        moment = "on_evaluation" if arguments else "on_step"
                        due.setdefault(int(number), _Event(moment, arguments[:1], [])).callbacks.append(callback)
                    left.remove(saved)
                    break
        self._due = [due[number] for number in sorted(due)]


def _refuse_other_parameters(function: Callable[..., object], where: str) -> None:
    """Refuse a function that cannot be called with the learner alone, as that of another library's callback.

    Raises:
        TypeError: it takes no argument, or needs more than one.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # not known of some functions in C
    try:
        signature.bind(None)
    except TypeError:
        raise TypeError(
            f"{where} must take one argument, the learner, got {text_of(function)}{signature}; it ends the run by "
            f"returning the reason"
        ) from None


_WAY_OUT = (
    "make the callbacks in a script and pass them: Learner.resume(log_dir, callbacks=callbacks), or the same to "
    "Learner.repeat"
)


def callbacks_from_config(config: Mapping[str, Any]) -> list[Callback]:
    """Build the callbacks that a run's configuration describes.

    Classes are looked up by name among those already imported: a configuration cannot execute other code.

    Raises:
        CompositionError: the class of one is not imported, or one contains an object that a script defines.
    """
    described = config.get("callbacks", [])
    refuse_to_import({"callbacks": described}, _WAY_OUT)
    refuse_callbacks_of_a_script(config, _WAY_OUT)
    callbacks = []
    for one in described:
        try:
            callback = made_of(one)
        except CompositionError as error:
            raise CompositionError(f"{error}; or {_WAY_OUT}") from error
        if not isinstance(callback, Callback):
            raise CompositionError(f"the run names {one}, which is not a Callback; {_WAY_OUT}")
        callbacks.append(callback)
    return callbacks


@dataclass(eq=False)
class _Event:
    """An event whose callbacks may save a checkpoint, from which the others are called when the run is resumed."""

    moment: str
    arguments: tuple[Evaluation, ...]
    callbacks: list[Callback]
    """Those that were not called yet."""


def _refuse_answer(method: Callable[..., object], answer: object) -> None:
    """Refuse the answer whether to go on, which callbacks of other libraries return.

    Raises:
        TypeError: a method of a callback has returned True or False.
    """
    if isinstance(answer, bool):
        raise TypeError(
            f"{method.__qualname__} returned {answer}, which would change nothing; return nothing, and call "
            f"learner.stop(reason) to end the run"
        )


_MOMENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def _overrides(callback: Callback, moment: str) -> bool:
    return getattr(type(callback), moment) is not getattr(Callback, moment)
