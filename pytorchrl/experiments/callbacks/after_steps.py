"""A user's function as a callback."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytorchrl.experiments.callbacks.callback import Callback
from storages.component.setting import text_of

if TYPE_CHECKING:
    from pytorchrl.learner import Learner


@dataclass(eq=False)
class AfterSteps(Callback):
    """Calls a function after each step; ``callbacks=[function]`` makes one.

    Args:
        function: called with the learner. A true return value stops the run; a string is the reason, which is printed
            after the word "because".
    """

    function: Callable[..., object]

    def on_step(self, learner: "Learner") -> None:
        """Call the function, and stop the run if it returns a true value."""
        said = self.function(learner)
        if said:
            learner.stop(said if isinstance(said, str) else f"{text_of(self.function)} returned a true value")
