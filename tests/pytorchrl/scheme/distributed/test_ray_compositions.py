"""Compositions that a scheme of several processes refuses before it starts any, and imports of Ray."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.support import warm_interpreter


def compose(**changes: Any) -> prl.RayScheme:
    parts: dict[str, Any] = {
        "algo_factory": prl.DQN.create_factory(),
        "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        "storage_factory": prl.ReplayBuffer.create_factory(size=100),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1"),
    }
    return prl.RayScheme(**(parts | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_collectors": 0}, "num_collectors must be an int from 1, got 0"),
        ({"slice_steps": 0}, "slice_steps must be an int from 1, got 0"),
        ({"communication": "sync"}, "got 'sync'"),
        ({"resources": {"collectors": {"num_cpus": 1}}}, "got 'collectors'"),
        ({"num_collectors": 2, "num_gradient_workers": 2}, "leave out num_collectors"),
        ({"num_gradient_workers": 2, "preemption": 0.0}, r"must lie in \(0, 1\], got 0"),
        (
            {
                "num_gradient_workers": 2,
                "preemption": 0.5,
                "storage_factory": prl.GAEBuffer.create_factory(size=16, sequence_length=8),
            },
            "does not divide into the sequences of GAEBuffer",
        ),
        ({"preemption": 0.5}, "give it num_gradient_workers, or leave out preemption"),
        (
            {
                "num_gradient_workers": 2,
                "algo_factory": prl.TRPO.create_factory(),
                "actor_factory": prl.OnPolicyActor.create_factory(),
                "storage_factory": prl.GAEBuffer.create_factory(size=16),
            },
            "TRPO does more in an update than apply gradients",
        ),
        (
            {
                "num_gradient_workers": 2,
                "storage_factory": prl.ReplayBuffer.create_factory(size=100, directory="replay"),
            },
            "cannot share the directory of ReplayBuffer",
        ),
        ({"algo_factory": None}, "algo_factory must be made by create_factory"),
        (
            {"num_collectors": 2, "explorers": [prl.EpsilonGreedy(0.1)]},
            "2 processes collect, and there are 1 explorers",
        ),
        (
            {"storage_factory": prl.ReplayBuffer.create_factory(size=100, rate_limit=prl.RateLimit(1.0))},
            "applies its rate_limit step by step",
        ),
        (
            {
                "algo_factory": prl.PPO.create_factory(),
                "actor_factory": prl.OnPolicyActor.create_factory(),
                "storage_factory": prl.GAEBuffer.create_factory(size=16),
                "communication": "asynchronous",
            },
            "VTraceBuffer does",
        ),
        (
            {
                "algo_factory": prl.PPO.create_factory(),
                "actor_factory": prl.OnPolicyActor.create_factory(),
                "storage_factory": prl.GAEBuffer.create_factory(size=16),
                "slice_steps": 5,
            },
            "16 steps does not divide into slices of 5",
        ),
        (
            {
                "algo_factory": prl.PPO.create_factory(),
                "actor_factory": prl.OnPolicyActor.create_factory(),
                "storage_factory": prl.GAEBuffer.create_factory(size=16),
                "explorers": [prl.EpsilonGreedy(0.1)],
            },
            "takes no explorer",
        ),
        ({"collection": prl.Overlapped(max_policy_lag=1)}, "RayScheme collects in processes of its own; leave out"),
    ],
)
def test_incompatible_parts_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compose(**changes)


def test_without_ray_the_error_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytorchrl.scheme.distributed.ray_scheme.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "pytorchrl-toolkit\[ray\]"'):
        compose()


TRAINING_IN_ONE_PROCESS = """
import sys
import pytorchrl as prl
scheme = prl.Scheme(
    prl.DQN.create_factory(start_steps=20, mini_batch_size=8),
    prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
    prl.ReplayBuffer.create_factory(size=100),
    prl.VecEnv.create_factory("CartPole-v1"),
)
assert prl.Learner(scheme, target_steps=40, log_dir="run").run()
assert "ray" not in sys.modules
"""


@pytest.mark.long
def test_training_in_one_process_does_not_import_ray(tmp_path: Path) -> None:
    finished = warm_interpreter.run(["-c", TRAINING_IN_ONE_PROCESS], tmp_path)
    assert finished.returncode == 0, finished.stderr


def test_each_further_environment_of_ape_x_explores_less() -> None:
    explorer = prl.ApeXEpsilonGreedy()
    algorithm = compose_in_one_process()
    exploration = prl.Exploration(algorithm.codec, 2, "cpu", seed=0)
    parts = []
    for worker in range(3):
        exploration.position, exploration.among = 2 * worker, 6
        parts += explorer.probability(exploration)[:, 0].tolist()
    assert parts == pytest.approx([0.4 ** (1 + 7 * i / 5) for i in range(6)])


def compose_in_one_process() -> prl.Algorithm:
    scheme = prl.Scheme(
        prl.DQN.create_factory(),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    scheme.close()
    return scheme.algorithm
