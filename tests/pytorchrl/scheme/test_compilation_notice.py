"""The message while kernels are compiled for the first time on a machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, tempfile
import pytorchrl as prl

with tempfile.TemporaryDirectory() as folder:
    with prl.Learner(prl.compose("DQN", "CartPole-v1", seed=1), 50, folder + "/run") as learner:
        learner.run(progress=False)
"""


@pytest.mark.long
def test_the_first_run_on_a_machine_says_that_kernels_are_compiled_and_no_later_one(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}

    def messages() -> str:
        made = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        return made.stderr

    message = "Compiling kernels that no run here has needed before; later ones load them from the disk."
    assert messages().count(message) == 1
    assert "Compiling" not in messages()
