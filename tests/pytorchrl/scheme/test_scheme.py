"""A scheme connects compatible parts, refuses others, and keeps training and evaluation apart."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.scheme.evaluation import evaluate
from storages.transition import ACT, DONE, DONE2, OBS, OBS2, REW, TRUNC2
from tests.support.comparison import assert_equal
from tests.support.compositions import SCHEMES, dqn_scheme, ppo_scheme
from tests.support.toys import Counter

CARTPOLE = prl.VecEnv.create_factory("CartPole-v1")
PENDULUM = prl.VecEnv.create_factory("Pendulum-v1")


@pytest.mark.parametrize(
    ("algorithm", "actor", "storage", "envs", "message"),
    [
        (prl.PPO, prl.OnPolicyActor, prl.ReplayBuffer, CARTPOLE, "PPO learns on-policy, but ReplayBuffer"),
        (prl.DQN, prl.OffPolicyActor, prl.GAEBuffer, CARTPOLE, "DQN learns from replayed transitions, but GAEBuffer"),
        (prl.SAC, prl.OffPolicyActor, prl.ReplayBuffer, CARTPOLE, "SAC needs a Box action space"),
        (prl.DQN, prl.OffPolicyActor, prl.ReplayBuffer, PENDULUM, "DQN needs a Discrete action space"),
    ],
)
def test_incompatible_parts_are_refused(algorithm: Any, actor: Any, storage: Any, envs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        prl.Scheme(algorithm.create_factory(), actor.create_factory(), storage.create_factory(size=8), envs)


def counting_scheme(**env: Any) -> prl.Scheme:
    return dqn_scheme(
        envs=prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 3} | env),
        algorithm={"start_steps": 10},
    )


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_the_collector_stores_each_step_and_does_not_join_episodes(end: str) -> None:
    scheme = counting_scheme(end=end)
    episodes, _ = scheme.collect(24)
    assert {(episode.episode_return, episode.length) for episode in episodes} == {(6.0, 3)}
    stored = scheme.storage.get_all_buffer_data()
    obs, obs2 = stored[OBS][..., 0], stored[OBS2][..., 0]
    torch.testing.assert_close(obs2, obs + 1)
    torch.testing.assert_close(stored[REW][..., 0], obs2)
    torch.testing.assert_close(stored[DONE][..., 0], (obs == 0).float())
    over = (obs2 == 3).float()
    torch.testing.assert_close(stored[DONE2 if end == "terminated" else TRUNC2][..., 0], over)
    assert not stored[TRUNC2 if end == "terminated" else DONE2].any()
    assert stored[ACT].dtype == torch.int64


def test_updates_wait_for_the_first_episode_if_only_whole_episodes_are_learnt_from(tmp_path: Path) -> None:
    scheme = dqn_scheme(
        envs=prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 30}),
        algorithm={"start_steps": 10, "update_every": 2},
        storage=prl.PersistentEpisodicBuffer.create_factory(None, tmp_path / "episodes"),
    )
    steps_of_updates = []
    while scheme.steps < 80:
        _, due = scheme.collect(80)
        for _ in range(due):
            assert list(scheme.update())
            steps_of_updates.append(scheme.steps)
    assert steps_of_updates == list(range(60, 81, 2))
    scheme.close()


def test_an_on_policy_phase_begins_when_the_rollout_is_full_and_empties_it() -> None:
    scheme = ppo_scheme()
    _, due = scheme.collect(10_000)
    assert due == 1
    assert scheme.steps == len(scheme.storage) == 32
    assert len(list(scheme.update())) == 2 * 2
    assert len(scheme.storage) == 0


def test_an_update_phase_ends_early_at_the_target_kl() -> None:
    scheme = prl.Scheme(
        prl.PPO.create_factory(lr=1.0, num_epochs=50, target_kl=1e-4),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=16),
        CARTPOLE,
    )
    scheme.collect(16)
    assert len(list(scheme.update())) < 50 * 4
    assert len(scheme.storage) == 0


def training_of(scheme: prl.Scheme) -> dict[str, Any]:
    return {name: part for name, part in scheme.state_dict().items() if name != "test_envs"}


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("name", SCHEMES)
def test_evaluation_does_not_change_the_state_of_training(name: str) -> None:
    scheme = SCHEMES[name]()
    scheme.collect(60)
    before = training_of(scheme)
    random_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[union-attr] # noqa: NPY002
    evaluation = scheme.evaluate(3)
    assert len(evaluation.returns) == len(evaluation.lengths) == 3
    assert_equal(training_of(scheme), before)
    assert torch.equal(torch.get_rng_state(), random_state[0])
    np.testing.assert_array_equal(np.random.get_state()[1], random_state[1])  # type: ignore[arg-type] # noqa: NPY002
    assert scheme.evaluate(3) == evaluation


def test_an_evaluation_does_not_favour_short_episodes() -> None:
    lengths = iter([1, 10, 1, 10])
    # One environment plays episodes of one step, the other of ten.
    envs = prl.VecEnv(lambda: Counter(length=next(lengths)), num_envs=2)
    scheme = dqn_scheme(envs=prl.VecEnv.create_factory(Counter))
    evaluation = evaluate(scheme.algorithm, envs, 6, seed=0)
    assert sorted(evaluation.lengths) == [1, 1, 1, 10, 10, 10]


def test_different_seeds_give_different_runs() -> None:
    one, two = dqn_scheme(seed=0), dqn_scheme(seed=1)
    assert not torch.equal(*(next(scheme.algorithm.q.head.parameters()) for scheme in (one, two)))
    one.collect(20)
    two.collect(20)
    assert not torch.equal(one.storage.get_all_buffer_data()[OBS], two.storage.get_all_buffer_data()[OBS])


def test_test_environments_can_differ_from_training_environments() -> None:
    scheme = prl.Scheme(
        prl.DQN.create_factory(),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=10),
        prl.VecEnv.create_factory(Counter, env_kwargs={"length": 3}),
        prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 5}),
    )
    assert scheme.evaluate(4).lengths == (5, 5, 5, 5)
    scheme.close()


@pytest.mark.parametrize("kind", ["image", "discrete", "dict"])
@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_training_works_with_every_kind_of_observation(kind: str, algorithm: str) -> None:
    envs = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"kind": kind})
    off_policy = algorithm == "dqn"
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=8, mini_batch_size=4)
        if off_policy
        else prl.PPO.create_factory(num_mini_batch=1, num_epochs=1),
        (prl.OffPolicyActor if off_policy else prl.OnPolicyActor).create_factory(hidden_sizes=(8,)),
        (prl.ReplayBuffer if off_policy else prl.GAEBuffer).create_factory(size=8),
        envs,
    )
    updates = 0
    while scheme.steps < 24:
        _, due = scheme.collect(24)
        for _ in range(due):
            for info in scheme.update():
                updates += 1
                assert all(torch.isfinite(torch.as_tensor(value)).all() for value in info.values())
    assert updates


@pytest.mark.quick_share(0.35)
@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_replay_by_priority_and_recency_trains_and_logs_its_metrics(algorithm: str, tmp_path: Path) -> None:
    scheme = SCHEMES[algorithm]
    storage = prl.EREBuffer.create_factory(
        size=150, n_step=3, alpha=prl.LinearSchedule(0.6, 0.2), beta=0.4, eta=0.99, cmin=20, adapt_eta=True
    )
    learner = prl.Learner(scheme(storage=storage), 400, tmp_path / "run", log_every=100)
    learner.run()
    learner.close()
    metrics = learner.get_metrics()
    for name in ("mean_priority", "largest_priority", "effective_sample_size", "row_age", "replay_ratio", "eta"):
        assert np.isfinite(metrics[f"storage/{name}"]), name
    assert prl.Learner.resume(tmp_path / "run").scheme.config == learner.scheme.config
