"""The callbacks of a learner, by the events on which they are called."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytorchrl.experiments.callbacks.after_steps import AfterSteps
from pytorchrl.experiments.callbacks.callback import Callback
from pytorchrl.experiments.callbacks.evaluating import EvaluateIn

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

    def call(self, moment: str, *arguments: Any) -> None:
        """Call the method of an event in the callbacks that override it."""
        for method in self._methods[moment]:
            method(*arguments)

    def state_dict(self) -> list[dict[str, Any]]:
        """Return the states of all callbacks, each with its configuration."""
        return [{"config": callback.config, "state": callback.state_dict()} for callback in self.all]

    def load_state_dict(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Restore the states of callbacks with an unchanged configuration; others keep their initial state."""
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
