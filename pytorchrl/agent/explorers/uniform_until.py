"""Random actions at the beginning of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pytorchrl.agent.explorers.explorer import Exploration, Explorer
from storages.component.hyper_parameters import CountOrZero


@dataclass(frozen=True)
class UniformUntil(Explorer):
    """Uniformly random actions for a number of environment transitions, then another explorer.

    Args:
        steps: environment transitions, of all environments together.
        then: explorer after these.
    """

    steps: CountOrZero
    then: Explorer

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action); the output is not computed for random actions."""
        if exploration.steps < self.steps:
            return exploration.uniform_actions()
        return self.then.act(output, exploration)

    def check_output(self, output: Any) -> None:
        """Refuse an output that the other explorer cannot use."""
        self.then.check_output(output)
