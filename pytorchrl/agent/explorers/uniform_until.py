"""Random actions at the beginning of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pytorchrl.agent.explorers.explorer import Exploration, Explorer
from storages.component.hyper_parameters import CountOrZero


@dataclass(frozen=True)
class UniformUntil(Explorer):
    """Uniformly random actions, or those of an explorer, for a number of transitions, then another explorer.

    Args:
        steps: environment transitions, of all environments together.
        then: explorer after these.
        first: explorer of these; None draws uniformly random actions.
    """

    steps: CountOrZero
    then: Explorer
    first: Explorer | None = None

    def act(self, output: Callable[[], Any], exploration: Exploration) -> Tensor:
        """(E, *action); the output is not computed for random actions."""
        if exploration.steps < self.steps:
            return exploration.uniform_actions() if self.first is None else self.first.act(output, exploration)
        return self.then.act(output, exploration)

    def check_output(self, output: Any) -> None:
        """Refuse an output that one of the explorers cannot use."""
        for explorer in filter(None, (self.first, self.then)):
            explorer.check_output(output)
