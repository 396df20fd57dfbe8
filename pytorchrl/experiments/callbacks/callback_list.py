"""The callbacks of a learner, by the events on which they are called."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytorchrl.experiments.callbacks.after_steps import AfterSteps
from pytorchrl.experiments.callbacks.callback import Callback
from pytorchrl.experiments.callbacks.evaluating import EvaluateIn
from pytorchrl.scheme.evaluation import Evaluation, evaluation_from

if TYPE_CHECKING:
    from pytorchrl.learner import Learner


class Callbacks:
    """The callbacks of a learner, in their order.

    Args:
        callbacks: the callbacks; a function is called after each step, as by :class:`AfterSteps`.

    Raises:
        TypeError: one is neither a :class:`Callback` nor a function, or is given twice.
        ValueError: two :class:`EvaluateIn` have the same name.
    """

    def __init__(self, callbacks: "Sequence[Callback | Callable[[Learner], object]]") -> None:
        if not isinstance(callbacks, Sequence):
            raise TypeError(f"Learner: callbacks must be a list, got {callbacks!r}; write callbacks=[...]")
        for number, callback in enumerate(callbacks):
            if not isinstance(callback, Callback) and (isinstance(callback, type) or not callable(callback)):
                raise TypeError(f"Learner: callbacks[{number}] must be a Callback or a function, got {callback!r}")
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
            method(*arguments)

    def announce_step(self) -> None:
        """Note that "on_step" is due; the next :meth:`call_due` calls it, also that of a resumed run."""
        self._announce("on_step", ())

    def call_evaluated(self, learner: "Learner", evaluation: Evaluation) -> None:
        """Call "on_evaluation"; if a callback saves a checkpoint or raises an exception, the later ones stay due."""
        if event := self._announce("on_evaluation", (evaluation,)):
            self._call(event, learner)

    def call_due(self, learner: "Learner") -> None:
        """Call the callbacks of the events that are due, those of the newest event first."""
        while self._due:
            self._call(self._due[-1], learner)

    def _announce(self, moment: str, arguments: tuple[Evaluation, ...]) -> "_Event | None":
        if not self._methods[moment]:
            return None
        event = _Event(moment, arguments, [one for one in self.all if _overrides(one, moment)])
        self._due.append(event)
        return event

    def _call(self, event: "_Event", learner: "Learner") -> None:
        while event.callbacks:
            # Not again, if it saves a checkpoint or raises an exception.
            getattr(event.callbacks.pop(0), event.moment)(learner, *event.arguments)
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


@dataclass(eq=False)
class _Event:
    """An event whose callbacks may save a checkpoint, from which the others are called when the run is resumed."""

    moment: str
    arguments: tuple[Evaluation, ...]
    callbacks: list[Callback]
    """Those that were not called yet."""


_MOMENTS = tuple(name for name in vars(Callback) if name.startswith("on_"))


def _overrides(callback: Callback, moment: str) -> bool:
    return getattr(type(callback), moment) is not getattr(Callback, moment)
