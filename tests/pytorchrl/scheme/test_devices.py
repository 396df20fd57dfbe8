"""The device of a run is given by a name, and the run saves the device that was chosen."""

from pathlib import Path

import pytest
import torch

import pytorchrl as prl
from tests.support.compositions import dqn_scheme

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the test needs a machine without a CUDA device")


@no_gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:3", "gpu"])
def test_a_missing_device_is_refused_in_one_line(device: str) -> None:
    with pytest.raises(ValueError, match=f"^device .*{device}") as error:
        dqn_scheme(device=device)
    assert "\n" not in str(error.value)


@no_gpu
def test_a_run_on_the_best_device_saves_the_chosen_device(tmp_path: Path) -> None:
    learner = prl.Learner(dqn_scheme(device="auto"), 60, tmp_path / "run")
    assert learner.scheme.device == torch.device("cpu")
    learner.run()
    learner.close()
    resumed = prl.Learner.resume(tmp_path / "run")
    assert resumed.scheme.config["device"] == "cpu"
    resumed.close()
    prl.Learner.resume(tmp_path / "run", scheme=dqn_scheme(device="auto")).close()
