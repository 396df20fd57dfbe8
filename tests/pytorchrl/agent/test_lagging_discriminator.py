"""A warning says once that a discriminator lags behind the policy, and is not raised by chance."""

import warnings
from collections.abc import Iterator

import pytest
import torch

from pytorchrl.agent.algorithms.results import Metrics
from pytorchrl.agent.lagging_discriminator import LaggingDiscriminator


def phase(accuracy: float, epochs: int = 4) -> Iterator[Metrics]:
    for _ in range(epochs):
        yield {"discriminator_accuracy": torch.tensor(accuracy)}


def run(lag: LaggingDiscriminator, accuracies: list[float], steps: int = 500) -> None:
    for accuracy in accuracies:
        for _ in lag.watched(phase(accuracy), steps):
            pass


def test_a_discriminator_that_is_mostly_wrong_is_named_once_with_the_way_out() -> None:
    lag = LaggingDiscriminator("GAIL")
    lag.advice = "; or take another"
    with pytest.warns(
        RuntimeWarning, match=r"^GAIL: .* 44% of .* Raise discriminator_epochs \(now 4\).*; or take another$"
    ) as seen:
        run(lag, [0.44] * 40)
    assert len(seen) == 1


@pytest.mark.parametrize("accuracies", [[0.5] * 40, [0.48] * 40, [0.9] * 40, [0.1] * 5 + [0.5] * 30, [0.4, 0.6] * 20])
def test_a_discriminator_that_keeps_up_or_has_just_begun_is_not_warned_of(accuracies: list[float]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(LaggingDiscriminator("GAIL"), accuracies)


def test_small_rollouts_are_judged_once_enough_steps_were_seen() -> None:
    lag = LaggingDiscriminator("GAIL")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(lag, [0.4] * 5 + [0.4] * 124, steps=16)
    with pytest.warns(RuntimeWarning, match="over 125 update phases"):
        run(lag, [0.4], steps=16)


def test_metrics_are_passed_on_unchanged() -> None:
    assert [each["discriminator_accuracy"] for each in LaggingDiscriminator("GAIL").watched(phase(0.3), 8)] == [
        torch.tensor(0.3)
    ] * 4
