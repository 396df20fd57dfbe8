"""A loss that is the sum over a batch has the gradient of the mean, times the number of its rows."""

import pytest
import torch

import pytorchrl as prl
from storages.transition import WEIGHTS
from tests.support.lessons import CASES, Case, lesson

WITH_SUMS = {case.name: case for case in CASES if hasattr(case.algorithm, "loss_reduction")}


def test_dqn_and_every_variant_of_it_can_sum() -> None:
    assert {"DQN", "QRDQN", "CategoricalDQN", "IQN", "AL", "DPP", "Rainbow", "DiscreteBCQ"} <= WITH_SUMS.keys()


@pytest.mark.parametrize("case", WITH_SUMS.values(), ids=str)
def test_summed_losses_have_the_gradient_of_the_mean_times_the_rows(case: Case) -> None:
    known = lesson(case)
    mean, summed = known.twin(), known.twin()
    summed.update_algorithm_parameter("loss_reduction", "sum")
    batch = known.batches[0]
    # SPR learns values of the first steps of sequences.
    of_sequences = issubclass(case.algorithm, prl.SPR)
    rows = batch[WEIGHTS].shape[0] if of_sequences else float(mean.read(batch).count)
    assert rows > 1
    of_mean, of_sum = known.gradients(mean), known.gradients(summed)
    for name, gradient in of_mean.items():
        torch.testing.assert_close(of_sum[name], rows * gradient, rtol=1e-4, atol=1e-6)
