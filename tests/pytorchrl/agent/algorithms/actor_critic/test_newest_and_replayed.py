"""Algorithms of newest and replayed steps learn from episodes on disk as from a buffer in memory."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.training import stopped, train

ALGORITHMS: dict[str, Any] = {
    "ACER": (prl.ACER, "CartPole-v1"),
    "ACERContinuous": (prl.ACERContinuous, "Pendulum-v1"),
    "PCL": (prl.PCL, "Pendulum-v1"),
    "UnifiedPCL": (prl.UnifiedPCL, "CartPole-v1"),
}


def scheme_of(name: str, directory: Path | None, memory: Any = None, **changes: Any) -> prl.Scheme:
    algorithm, env = ALGORITHMS[name]
    settings = {"update_every": 24, "start_steps": 60, "replay_ratio": 2.0, "mini_batch_size": 3, "test_every": 0}
    kind, place = (
        (prl.ReplayBuffer, {}) if directory is None else (prl.PersistentEpisodicBuffer, {"directory": directory})
    )
    return prl.Scheme(
        algorithm.create_factory(**settings | changes),
        prl.OnPolicyActor.create_factory(hidden_sizes=(6,), memory=memory, memory_size=4),
        kind.create_factory(size=400, **place, sequences=prl.Sequences(4, across_episodes=True)),
        prl.VecEnv.create_factory(env, 2, env_kwargs={"max_episode_steps": 11}),
    )


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("memory", [None, "gru"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_on_policy_batches_are_those_of_a_buffer_in_memory(name: str, memory: Any, tmp_path: Path) -> None:
    on_disk, in_memory = (
        train(scheme_of(name, directory, memory, replay_ratio=0.0), 216) for directory in (tmp_path / "replay", None)
    )
    assert on_disk.algorithm.updates == 9
    assert_equal(on_disk.algorithm.state_dict(), in_memory.algorithm.state_dict())
    on_disk.close()
    in_memory.close()


@pytest.mark.quick_share(0.2)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_stopped_run_with_episodes_on_disk_continues_as_if_it_had_not_been_stopped(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = prl.Learner(scheme_of(name, tmp_path / "whole" / "replay"), 210, tmp_path / "whole")
    assert whole.run()
    learner = prl.Learner(scheme_of(name, tmp_path / "parts" / "replay"), 210, tmp_path / "parts")
    for stop in (6, 62, 110, 152):
        learner = prl.Learner.resume(stopped(learner, stop, monkeypatch))
    assert learner.run()
    assert learner.scheme.algorithm.updates > 10
    assert_equal(learner.scheme.algorithm.state_dict(), whole.scheme.algorithm.state_dict())
    whole.close()
    learner.close()
