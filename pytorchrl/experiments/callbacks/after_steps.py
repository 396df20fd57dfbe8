"""A function of the user's as a callback."""

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
        function: given the learner. Where it returns something true, the run ends; a text is the reason that is
            printed, a clause that follows on "because".
    """

    function: Callable[..., object]

    def on_step(self, learner: "Learner") -> None:
        """Call it, and end the run where it says so."""
        said = self.function(learner)
        if said:
            learner.stop(said if isinstance(said, str) else f"{text_of(self.function)} said so")
