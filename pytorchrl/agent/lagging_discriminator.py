"""Warning about a discriminator that lags behind the policy that it rewards."""

import warnings
from collections import deque
from collections.abc import Iterator

import torch

from pytorchrl.agent.algorithms.results import Metrics

_FIRST_PHASES = 5
"""Update phases that are left out, in which a new discriminator knows nothing."""
_PHASES, _STEPS = 5, 2_000
"""Update phases, and steps of the policy in them, at least, whose mean accuracy is compared with chance."""
_LOWEST_ACCURACY = 0.47
"""Where policy and expert cannot be told apart, the accuracy is 0.5; the mean deviates by about 0.01."""


class LaggingDiscriminator:
    """Warns once if a discriminator is wrong more often than right over several update phases.

    A discriminator that keeps up is right in more than half of the steps, or in half of them once the policy acts as
    the expert does. One that lags rewards what the policy did a few updates ago, and the policy runs in circles.

    Args:
        name: of the algorithm.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._left_out = _FIRST_PHASES
        self._phases: deque[tuple[float, int]] = deque()
        """Mean accuracy and number of the policy's steps, of the newest update phases."""
        self._has_warned = False
        self.advice = ""
        """A further way out, which ends the warning."""

    def watched(self, updates: Iterator[Metrics], steps: int) -> Iterator[Metrics]:
        """Pass on the metrics of an update phase, and watch their "discriminator_accuracy".

        Args:
            updates: of each optimiser step of the discriminator.
            steps: of the policy in the rollout.
        """
        accuracies = []
        for metrics in updates:
            accuracies.append(metrics["discriminator_accuracy"])
            yield metrics
        if self._left_out:
            self._left_out -= 1
        elif accuracies and not self._has_warned:
            self._phases.append((float(torch.stack(accuracies).mean()), steps))
            self._compare(len(accuracies))

    def _compare(self, epochs: int) -> None:
        while len(self._phases) > _PHASES and self._steps() - self._phases[0][1] >= _STEPS:
            self._phases.popleft()
        mean = sum(accuracy for accuracy, _ in self._phases) / len(self._phases)
        if len(self._phases) >= _PHASES and self._steps() >= _STEPS and mean < _LOWEST_ACCURACY:
            self._has_warned = True
            warnings.warn(
                f"{self._name}: the discriminator was right in {mean:.0%} of the steps only, over {len(self._phases)} "
                f"update phases: it lags behind the policy, which its rewards then mislead. Raise discriminator_epochs "
                f"(now {epochs}) or lr_discriminator, or let an update change the policy by less{self.advice}",
                RuntimeWarning,
                stacklevel=3,
            )

    def _steps(self) -> int:
        return sum(steps for _, steps in self._phases)
