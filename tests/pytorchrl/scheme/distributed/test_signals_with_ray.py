"""SIGTERM to all processes of a run saves it, also where collectors end before the learner knows of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytorchrl.experiments.runs import checkpoint

pytestmark = pytest.mark.ray

SCRIPT = """
import os, signal, sys, threading
import psutil
import torch
import pytorchrl as prl

folder, communication, ending = sys.argv[1:]

def end():
    learner_process = psutil.Process()
    others = learner_process.children(recursive=True)
    if ending == "collectors first":
        # As on a cluster that was started elsewhere in the same job.
        for process in others:
            if "CollectionWorker" in " ".join(process.cmdline()):
                process.kill()
        threading.Timer(0.2, learner_process.terminate).start()
    else:
        for process in [*others, learner_process]:
            process.terminate()

if __name__ == "__main__":
    torch.set_num_threads(1)
    scheme = prl.RayScheme(
        prl.DQN.create_factory(start_steps=24, update_every=8, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=4_000),
        prl.VecEnv.create_factory("CartPole-v1"),
        num_collectors=2,
        communication=communication,
        slice_steps=10,
    )
    called = []
    def once(learner):
        if learner.scheme.steps >= 80 and not called:
            called.append(True)
            end()
    with prl.Learner(scheme, 1_000_000, folder, callbacks=[once]) as learner:
        reached = learner.run()
    print("closed")
    sys.exit(0 if reached else 130)
"""


@pytest.mark.parametrize("ending", ["all at once", "collectors first"])
@pytest.mark.parametrize("communication", ["synchronous", "asynchronous"])
def test_sigterm_to_all_processes_saves_the_run_within_seconds(communication: str, ending: str, tmp_path: Path) -> None:
    # Ray's processes may keep a pipe open for longer than the learner lives.
    with (tmp_path / "said.txt").open("w") as output:
        finished = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), communication, ending],
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=90,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
            | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    said = (tmp_path / "said.txt").read_text()
    assert finished.returncode == 130, said
    assert "was replaced" not in said
    assert "closed" in said
    saved = checkpoint.load(tmp_path / "run" / "checkpoint.pt")["scheme"]["collector"]
    assert saved["steps"] >= 80
    assert (None in saved["workers"]) == (ending == "collectors first")
