"""A run says why it makes no update, and what it waits for."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import pytorchrl as prl
from tests.support.compositions import ppo_scheme


def dqn(storage: Any = None, envs: Any = None, **settings: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DQN.create_factory(**{"mini_batch_size": 4, "start_steps": 4, "test_every": 0} | settings),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        storage or prl.ReplayBuffer.create_factory(size=100),
        envs or prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    )


def explained(folder: Path, scheme: prl.Scheme, steps: int, target_steps: int = 1_000) -> Any:
    """The explanation after some environment steps."""
    with prl.Learner(scheme, target_steps, folder) as learner:
        while scheme.steps < steps:
            # As Ctrl-C does, between two environment steps.
            scheme.collect(scheme.steps + 1)
        return learner.explain()


def test_missing_start_steps_are_counted(tmp_path: Path) -> None:
    told = explained(tmp_path / "run", dqn(start_steps=20, update_every=2), 6)
    assert (told.updates, told.last_phase) == (0, None)
    assert told.reason == "Updates begin after start_steps=20 transitions, of which 6 are made."
    assert told.waits_for == "16 more transitions"
    assert str(told) == (
        "DQN has made no update yet. Updates begin after start_steps=20 transitions, of which 6 are made. The run "
        "waits for 16 more transitions."
    )


def test_the_steps_until_the_next_update_are_counted(tmp_path: Path) -> None:
    with prl.Learner(dqn(update_every=10), 1_000, tmp_path / "run") as learner:
        learner.step()
        told = learner.explain()
    assert (told.updates, learner.scheme.steps) == (1, 14)
    assert (told.reason, told.waits_for) == ("An update phase is due every 10 transitions.", "10 more transitions")


@pytest.mark.parametrize(
    ("samples_per_insert", "min_size", "reason", "waits_for"),
    [
        (4.0, 30, "allows no batch before 30 transitions are inserted; 6 are", "24 more transitions"),
        (0.5, 1, "allows no batch now: 4 rows were drawn for 2 transitions", "7 more transitions"),
    ],
)
def test_a_rate_limit_is_named_with_the_transitions_that_it_waits_for(
    samples_per_insert: float, min_size: int, reason: str, waits_for: str, tmp_path: Path
) -> None:
    limit = prl.RateLimit(samples_per_insert, min_size)
    scheme = dqn(prl.ReplayBuffer.create_factory(size=100, rate_limit=limit))
    with prl.Learner(scheme, 1_000, tmp_path / "run") as learner:
        if min_size == 1:
            learner.step()
        else:
            scheme.collect(6)
        told = learner.explain()
    assert reason in told.reason
    assert told.waits_for == waits_for


def test_what_is_missing_of_a_rollout_is_counted(tmp_path: Path) -> None:
    scheme = ppo_scheme()
    told = explained(tmp_path / "run", scheme, 2 * scheme.storage.num_envs)
    capacity, stored = scheme.storage.capacity, 2 * scheme.storage.num_envs
    assert told.reason == (
        f"An update phase is due after each full rollout, which holds {stored} of {capacity} transitions."
    )
    assert told.waits_for == f"{capacity - stored} more transitions"


def test_a_storage_without_rows_is_told(tmp_path: Path) -> None:
    storage = prl.PersistentEpisodicBuffer.create_factory(size=100, directory=tmp_path / "episodes")
    told = explained(tmp_path / "run", dqn(storage), 8)
    assert told.reason == "The storage holds no row from which a batch could be made."


def test_a_source_without_data_is_named(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.DQN.create_factory(mini_batch_size=4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1"),
        sources={"demonstrations": prl.ReplayBuffer.create_factory(size=100)},
        mixed={"main": prl.MixedSource({"demonstrations": 0.5, "main": 0.5})},
    )
    told = explained(tmp_path / "run", scheme, 4)
    assert told.reason.startswith("The source 'demonstrations' holds no transition")


def test_a_phase_that_the_divergence_stopped_is_told(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.PPO.create_factory(target_kl=1e-9, num_epochs=4, lr=0.1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    with prl.Learner(scheme, 10_000, tmp_path / "run") as learner:
        learner.step()
        told = learner.explain()
    assert told.last_phase is not None
    assert "exceeds 1.5 times target_kl=1e-09" in told.last_phase


class StoppingDQN(prl.DQN):
    """DQN whose batches are all refused by its losses."""

    def losses(self, rows: Any) -> prl.Losses:
        return prl.Losses({}, stop=True)


def test_losses_that_stop_a_phase_are_told(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        StoppingDQN.create_factory(mini_batch_size=4, start_steps=0, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    with prl.Learner(scheme, 1_000, tmp_path / "run") as learner:
        learner.step()
        told = learner.explain()
    assert told.updates == 0
    assert "a batch whose losses set Losses.stop ends the phase without an update" in told.last_phase


def test_the_end_of_a_run_is_told(tmp_path: Path) -> None:
    with prl.Learner(dqn(update_every=1), 8, tmp_path / "run") as learner:
        learner.run()
        told = learner.explain()
    assert told.reason.startswith("The target of 8 steps is reached.")
    assert told.waits_for == "a larger target_steps"


def test_overlapped_collection_is_explained_by_the_steps_that_are_stored(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        prl.DQN.create_factory(mini_batch_size=4, start_steps=20, update_every=2, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        collection=prl.Overlapped(1),
    )
    assert explained(tmp_path / "run", scheme, 6).waits_for == "16 more transitions"


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_the_first_minute_without_an_update_is_explained_once(
    seconds: float, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytorchrl.experiments.training_loop._SECONDS_WITHOUT_UPDATES", seconds)
    with prl.Learner(dqn(start_steps=30), 60, tmp_path / "run") as learner:
        learner.run()
    said = capsys.readouterr().out
    assert said.count("DQN has made no update yet.") == (0 if seconds else 1)


def test_a_run_that_ends_without_an_update_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limit = prl.RateLimit(1.0, min_size=50)
    with prl.Learner(dqn(prl.ReplayBuffer.create_factory(size=100, rate_limit=limit)), 20, tmp_path / "run") as learner:
        learner.run()
    assert "DQN has made no update yet. The target of 20 steps is reached. Before: " in capsys.readouterr().out


def test_an_agent_that_is_driven_waits_for_observations(tmp_path: Path) -> None:
    with prl.Agent(
        prl.DQN.create_factory(start_steps=20, update_every=2, mini_batch_size=4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.ReplayBuffer.create_factory(size=100),
        tmp_path / "run",
        1_000,
        observation_space=gym.spaces.Box(-1.0, 1.0, (2,)),
        action_space=gym.spaces.Discrete(2),
    ) as agent:
        agent.act(np.zeros(2, np.float32))
        agent.observe(np.zeros(2, np.float32), 0.0, False)
        assert agent.explain().waits_for == "21 more transitions, told by Agent.observe"


@pytest.mark.long
def test_processes_that_share_parameters_are_not_explained_by_guesses(tmp_path: Path) -> None:
    scheme = prl.HogwildScheme(
        prl.A2C.create_factory(optimizer=prl.RMSprop(), test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.VanillaOnPolicyBuffer.create_factory(size=5),
        prl.VecEnv.create_factory("CartPole-v1"),
        processes=1,
    )
    with prl.Learner(scheme, 1_000, tmp_path / "run") as learner:
        told = learner.explain()
    assert "why one of them makes no update is not known here" in told.reason
    assert told.waits_for == "the next report of a process"


@pytest.mark.ray
@pytest.mark.parametrize("gradients", [False, True])
def test_ray_workers_are_explained_by_what_the_learner_knows(gradients: bool, tmp_path: Path) -> None:
    scheme = prl.RayScheme(
        prl.DQN.create_factory(start_steps=20, update_every=2, mini_batch_size=4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1"),
        num_gradient_workers=int(gradients),
    )
    with prl.Learner(scheme, 1_000, tmp_path / "run") as learner:
        told = learner.explain()
    if gradients:
        assert "why one of them has sent no gradients is not known here" in told.reason
    else:
        assert told.waits_for == "22 more transitions, which come in slices from 1 collectors"
