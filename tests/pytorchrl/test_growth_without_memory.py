"""A storage without a bound that finds no memory to grow: the run is saved without a copy of it, and resumes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
import storages.core.ring.ring as ring_module
from storages.core.ring.columns import Columns
from storages.transition import TRUNC2
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme


def scheme(**given: Any) -> prl.Scheme:
    return dqn_scheme(storage=prl.PERBuffer.create_factory(size=None, alpha=0.6, **given))


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_run_whose_storage_cannot_grow_names_the_setting_and_resumes(
    on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"directory": tmp_path / "replay"} if on_disk else {}
    made = Columns.__init__

    def limited(self: Columns, layout: Any, rows: int, *others: Any, **named: Any) -> None:
        if rows > 100:
            raise MemoryError(f"Unable to allocate {rows} rows")
        made(self, layout, rows, *others, **named)

    with monkeypatch.context() as patched:
        patched.setattr(ring_module.Columns, "__init__", limited)
        learner = prl.Learner(scheme(**given), 300, tmp_path / "run")
        with pytest.raises(
            MemoryError, match=r"PERBuffer: size=None keeps all steps.*64 steps.*size= or max_bytes="
        ) as at:
            learner.run()
        weights = learner.scheme.algorithm.get_weights()
        stored = learner.scheme.storage.get_all_buffer_data()
        learner.close()
    assert "The run is saved in" in "".join(at.value.__notes__)
    learner = prl.Learner.resume(tmp_path / "run")
    assert learner.scheme.steps == 128
    assert_equal(learner.scheme.algorithm.get_weights(), weights)
    # The environments had made the step that was refused, so that the running episodes end.
    stored[TRUNC2][-1] = learner.scheme.storage.get_all_buffer_data()[TRUNC2][-1]
    assert len(stored[TRUNC2]) == 64
    assert_equal(learner.scheme.storage.get_all_buffer_data(), stored)
    learner.run()
    assert len(learner.scheme.storage) == learner.scheme.steps == 300
    learner.close()


SCRIPT = """
import resource, sys
import gymnasium as gym, numpy as np
import pytorchrl as prl

class Wide(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (40_000,), np.float32)
    action_space = gym.spaces.Discrete(2)
    steps_of_all = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return self._observation(), {}

    def step(self, action):
        self.step_number += 1
        self.steps_of_all += 1
        if self.steps_of_all == 1_000:
            # The storage has 164 MB, and takes another 328 MB to double.
            held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (held + 120_000_000, -1))
        return self._observation(), 0.0, False, self.step_number == 200, {}

    def _observation(self):
        return np.full((40_000,), self.step_number / 200, np.float32)

scheme = prl.Scheme(
    prl.DQN.create_factory(start_steps=10**6, test_every=0),
    prl.OffPolicyActor.create_factory(hidden_sizes=(2,)),
    prl.ReplayBuffer.create_factory(size=None),
    prl.VecEnv.create_factory(Wide, 1, replay_on_resume=False),
    seed=0,
)
learner = prl.Learner(scheme, 5_000, sys.argv[1])
try:
    learner.run()
except MemoryError as error:
    print(error, *error.__notes__, sep="\\n")
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the address space is read from /proc")
def test_a_run_out_of_memory_is_saved_although_its_storage_could_not_be_copied(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, tmp_path / "run"], capture_output=True, text=True, env=environment, timeout=300
    )
    assert "size=None keeps all steps" in done.stdout, done.stderr
    assert "The run is saved in" in done.stdout
    ring = torch.load(tmp_path / "run/checkpoint.pt", weights_only=True)["scheme"]["storage"]["ring"]
    rows = next(leaf["rows"] for leaf in ring["leaves"] if leaf["path"] == ["Observation"])
    assert rows.shape == (1_025, 1, 40_000)
    np.testing.assert_array_equal(rows[:, 0, 7].numpy(), (np.arange(1_025) % 200 / 200).astype(np.float32))
