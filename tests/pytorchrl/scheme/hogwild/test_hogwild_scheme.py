"""Updates by several processes of parameters in shared memory."""

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors.heads import Values
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.scheme.hogwild import hogwild_scheme
from pytorchrl.scheme.hogwild.worker import Order
from pytorchrl.scheme.seeds import seed_of_worker
from storages.component.schedule import FunctionSchedule
from tests.support.comparison import assert_equal
from tests.support.hogwild import (
    TARGET,
    Parts,
    a3c,
    dqn,
    explored_apart,
    noisy,
    nsq,
    pcl,
    processes_of,
    recurrent,
    train,
)
from tests.support.toys import Counter
from tests.support.training import saved_and_loaded


@pytest.mark.parametrize("parts", [a3c, nsq, noisy, recurrent, pcl, dqn])
def test_a_single_process_makes_the_updates_of_an_ordinary_scheme(parts: Parts) -> None:
    with prl.Scheme(**parts(), seed=3) as ordinary, prl.HogwildScheme(**parts(), seed=3, processes=1) as shared:
        expected, found = train(ordinary, TARGET), train(shared, TARGET)
        assert_equal(shared.state_dict()["algorithm"]["actor"], ordinary.state_dict()["algorithm"]["actor"])
        assert_equal(shared.state_dict()["algorithm"]["training"], ordinary.state_dict()["algorithm"]["training"])
        assert (shared.steps, shared.unit) == (ordinary.steps, "steps")
        assert shared.collector is not None
        assert ordinary.collector is not None
        assert shared.collector.episodes == ordinary.collector.episodes > 0
        assert shared.take_shaped_returns() == ordinary.take_shaped_returns()
        assert {one.pop("train/policy_lag") for one in found} == {0.0}
        assert found == expected


EXPLORERS = (prl.EpsilonGreedy(0.9), prl.EpsilonGreedy(0.1))


@pytest.mark.parametrize(("parts", "explorers"), [(a3c, None), (nsq, None), (nsq, EXPLORERS), (explored_apart, None)])
def test_processes_learn_from_where_the_others_have_brought_the_parameters(
    parts: Parts, explorers: tuple[prl.Explorer, ...] | None
) -> None:
    """In turns, the processes make the updates that ordinary schemes make if their training state is passed on."""
    turns, rollout = [0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 0, 1], 5
    schemes: list[Any] = []
    for number in range(2):
        made = parts()
        if explorers is not None:
            given = made["algo_factory"].hyper_parameters | {"explorer": explorers[number]}
            made["algo_factory"] = prl.NStepQLearning.create_factory(**given)
        schemes.append(prl.Scheme(**made, seed=seed_of_worker(7, number)))
        schemes[number].collector.explore_among(2, number)
    passed_on = copy.deepcopy(schemes[0].algorithm.state_dict())
    with prl.HogwildScheme(**parts(), seed=7, processes=2, explorers=explorers) as scheme:
        for turn, number in enumerate(turns):
            one = schemes[number]
            one.algorithm.load_state_dict(passed_on | {"generators": one.algorithm.random_state()})
            one.set_progress(turn * rollout, TARGET)
            one.collector.steps_elsewhere = turn * rollout - one.steps
            one.collect(one.steps + rollout)
            one.set_progress((turn + 1) * rollout, TARGET)
            (expected,) = one.update()
            passed_on = copy.deepcopy(one.algorithm.state_dict())
            report = processes_of(scheme)[number].ask("work", Order(rollout, TARGET, {}, {}, {}))
            (found,) = report.metrics
            assert found.pop("train/policy_lag") == 0
            assert found == {name: float(value) for name, value in expected.items()}
            assert_equal(scheme.state_dict()["algorithm"]["actor"], passed_on["actor"], f"turn {turn}")
        scheme.set_progress(len(turns) * rollout, TARGET)
        assert_equal(scheme.state_dict()["algorithm"]["training"]["optimizers"], passed_on["training"]["optimizers"])
        assert_equal(scheme.state_dict()["algorithm"]["training"]["targets"], passed_on["training"]["targets"])
        assert scheme.algorithm.updates == len(turns)
    for one in schemes:
        one.close()


@pytest.mark.parametrize(("num_envs", "target", "made"), [(1, 203, 203), (2, 203, 204)])
def test_the_steps_of_all_processes_are_counted_and_none_goes_beyond_the_target(
    num_envs: int, target: int, made: int
) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", num_envs)
    with prl.HogwildScheme(**a3c(train_envs_factory=envs), processes=3, rollouts_at_once=2) as scheme:
        metrics = train(scheme, target, target)
        state = scheme.state_dict()
        by_process = [one["scheme"]["collector"] for one in state["collector"]["workers"]]
        assert scheme.steps == sum(one["steps"] for one in by_process) == made
        assert state["collector"]["episodes"] == sum(one["episodes"] for one in by_process) > 0
        rollouts = sum(one["steps"] // (5 * num_envs) for one in by_process)
        assert len(metrics) == scheme.algorithm.updates == state["algorithm"]["training"]["counters"]["updates"]
        assert len(metrics) == rollouts
        assert all(one["train/policy_lag"] >= 0 for one in metrics)


class WaitsInItsThirdStep(Counter):
    """Waits in a process for which there is a named pipe, until something has opened and closed it."""

    folder = Path()

    def step(self, action: Any) -> Any:
        pipe = self.folder / str(os.getpid())
        if self.count == 2 and pipe.exists():
            pipe.read_text()
        return super().step(action)


def test_the_lag_counts_the_updates_of_others_since_the_parameters_were_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WaitsInItsThirdStep, "folder", tmp_path)
    envs = prl.VecEnv.create_factory(WaitsInItsThirdStep, env_kwargs={"length": 50})
    with prl.HogwildScheme(**a3c(train_envs_factory=envs), processes=2) as scheme:
        quick, slow = processes_of(scheme)
        pipe = tmp_path / str(slow._process.pid)
        os.mkfifo(pipe)
        slow.tell("work", Order(10, TARGET, {}, {}, {}))
        with pipe.open("w"):
            quick.ask("work", Order(15, TARGET, {}, {}, {}))
        assert [one["train/policy_lag"] for one in slow.answer().metrics] == [3, 0]


def test_each_process_has_random_numbers_of_its_own() -> None:
    with prl.HogwildScheme(**a3c(), processes=2) as scheme:
        first, second = (process.ask("state", None)["scheme"] for process in processes_of(scheme))
        assert not torch.equal(
            first["collector"]["exploration"]["generator"], second["collector"]["exploration"]["generator"]
        )
        assert first["collector"]["envs"] is not None


def test_parameters_rest_while_the_policy_is_evaluated_and_saved() -> None:
    with prl.HogwildScheme(**a3c(), processes=2, rollouts_at_once=20) as scheme:
        scheme.set_progress(0, 10_000)
        scheme.collect(10_000)
        assert any(process.transitions for process in processes_of(scheme))
        scheme.evaluate(1)
        assert not any(process.transitions for process in processes_of(scheme))
        scheme.collect(10_000)
        assert any(process.transitions for process in processes_of(scheme))
        state = saved_and_loaded(scheme.state_dict())
        assert not any(process.transitions for process in processes_of(scheme))
        scheme.collect(10_000)
        scheme.load_state_dict(state)
        assert_equal(scheme.state_dict()["algorithm"], state["algorithm"])


def test_changed_hyper_parameters_reach_all_processes() -> None:
    with prl.HogwildScheme(**a3c(), processes=2) as scheme:
        train(scheme, 60)
        scheme.state_dict()
        scheme.algorithm.update_algorithm_parameter("lr", 0.0)
        weights, updates = scheme.algorithm.get_weights(), scheme.algorithm.updates
        train(scheme, TARGET)
        assert scheme.algorithm.updates > updates
        assert_equal(scheme.algorithm.get_weights(), weights)


def test_changes_have_the_effect_that_they_have_in_an_ordinary_scheme() -> None:
    parts = a3c(storage_factory=prl.GAEBuffer.create_factory(size=5))
    with prl.Scheme(**parts) as ordinary, prl.HogwildScheme(**parts, processes=1) as shared:
        for scheme in (ordinary, shared):
            train(scheme, 50)
            scheme.algorithm.update_algorithm_parameter("entropy_coef", 0.3)
            scheme.algorithm.update_algorithm_parameter("max_grad_norm", 0.1)
            scheme.storage.update_storage_parameter("gae_lambda", 0.2)
            train(scheme, TARGET)
        assert_equal(shared.algorithm.get_weights(), ordinary.algorithm.get_weights())


class FixedNetwork(prl.A2C):
    """A2C beside a network that is not trained."""

    def build(self) -> None:
        super().build()
        self.fixed = self.actor.make("fixed", Values())

    def losses(self, rows: Any) -> Any:
        losses = super().losses(rows)
        weights = sum(parameter.detach().double().sum() for parameter in self.fixed.parameters())
        return Losses(losses.of, {**losses.metrics, "fixed": weights})


def test_networks_that_are_not_trained_are_the_same_in_all_processes() -> None:
    algorithm = FixedNetwork.create_factory(optimizer=prl.SGD())
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(8,), shared_body=False)
    with prl.HogwildScheme(**a3c(algo_factory=algorithm, actor_factory=actor), processes=2) as scheme:
        found = [
            process.ask("work", Order(5, TARGET, {}, {}, {})).metrics[0]["fixed"] for process in processes_of(scheme)
        ]
        assert found[0] == found[1] != 0


def test_a_run_with_an_explorer_for_each_process_resumes_from_its_folder(tmp_path: Path) -> None:
    with prl.Learner(prl.HogwildScheme(**nsq(), processes=2, explorers=EXPLORERS), 50, tmp_path / "run") as learner:
        assert learner.run()
    with prl.Learner.resume(tmp_path / "run", target_steps=100) as again:
        assert again.scheme.config["hogwild"]["explorers"] == [one.config for one in EXPLORERS]
        assert again.run()
        assert again.scheme.steps == 100


def test_a_change_that_cannot_be_sent_to_the_processes_is_refused_by_name() -> None:
    with prl.HogwildScheme(**nsq(), processes=1) as scheme:
        explorer = prl.EpsilonGreedy(FunctionSchedule(lambda progress: 0.5, 0.0, 1.0))
        scheme.algorithm.update_algorithm_parameter("explorer", explorer)
        with pytest.raises(TypeError, match=r"HogwildScheme: NStepQLearning\.explorer was changed to .*cannot be sent"):
            scheme.collect(10)


@pytest.mark.parametrize("parts", [a3c, noisy, recurrent, pcl, dqn])
def test_a_resumed_run_of_one_process_is_the_uninterrupted_run(parts: Parts) -> None:
    with prl.HogwildScheme(**parts(), processes=1) as whole:
        train(whole, TARGET)
        expected = whole.state_dict()
    with prl.HogwildScheme(**parts(), processes=1) as saved:
        train(saved, 84)
        state = saved_and_loaded(saved.state_dict())
    with prl.HogwildScheme(**parts(), processes=1) as resumed:
        assert resumed.load_state_dict(state) == []
        train(resumed, TARGET)
        assert_equal(resumed.state_dict()["algorithm"], expected["algorithm"])
        assert resumed.steps == TARGET


def test_a_resumed_run_of_several_processes_has_its_weights_and_counts(tmp_path: Path) -> None:
    parts = a3c(algo_factory=prl.A2C.create_factory(test_every=50, num_test_episodes=1))
    learner = prl.Learner(prl.HogwildScheme(**parts, processes=2), 200, tmp_path / "run")
    while learner.scheme.steps < 80:
        learner.step()
    learner.save_checkpoint()
    before = copy.deepcopy(learner.scheme.state_dict())
    learner.close()
    again = prl.Learner.resume(tmp_path / "run")
    assert isinstance(again.scheme, prl.HogwildScheme)
    after = again.scheme.state_dict()
    assert_equal(after["algorithm"], before["algorithm"])
    assert again.scheme.steps == before["collector"]["steps"]
    assert again.run()
    assert again.scheme.steps == 200
    made = [one["scheme"]["collector"]["steps"] for one in again.scheme.state_dict()["collector"]["workers"]]
    assert sum(made) == 200
    metrics = again.get_metrics()
    assert metrics.keys() >= {"train/return", "train/policy_lag", "test/return", "losses/entropy"}
    again.close()
    other = prl.HogwildScheme(**parts, processes=3)
    with pytest.raises(prl.CheckpointError, match=r"hogwild\.processes: 3 here, 2 in the checkpoint"):
        prl.Learner.resume(tmp_path / "run", scheme=other)
    other.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"algo_factory": prl.SAC.create_factory(), "storage_factory": prl.ReplayBuffer.create_factory(size=9)},
            "SAC does more in an update than apply the gradients of its losses; take A2C.*DQN or PCL",
        ),
        ({"algo_factory": prl.PPO.create_factory()}, "PPO does more in an update than apply the gradients"),
        ({"algo_factory": prl.REINFORCE.create_factory()}, "updates by EveryEpisodes.*take one of these"),
        ({"algo_factory": prl.A2C.create_factory(optimizer=prl.Adam())}, r"share the state of Adam\(.*give it RMSprop"),
        (
            {"actor_factory": prl.OnPolicyActor.create_factory(normalize_observations=True)},
            "leave out normalize_observations, or take gradient workers of RayScheme",
        ),
        ({"sources": {"more": prl.ReplayBuffer.create_factory(size=9)}}, "leave out sources, or take Scheme"),
        ({"collection": prl.Overlapped(max_policy_lag=1)}, "HogwildScheme collects in processes of its own; leave out"),
        ({"device": "meta"}, 'give it device="cpu"'),
        ({"explorers": (prl.EpsilonGreedy(0.1),)}, "there are 2 processes and 1 explorers; give one for each"),
    ],
)
def test_parts_that_cannot_be_shared_are_refused_by_name_before_a_process_is_started(
    changes: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hogwild_scheme, "HogwildProcesses", None)
    with pytest.raises(prl.CompositionError, match=message):
        prl.HogwildScheme(**a3c(**changes), processes=2)


@pytest.mark.parametrize("parts", [pcl, dqn])
def test_several_processes_learn_from_replay_of_their_own(parts: Parts, tmp_path: Path) -> None:
    learner = prl.Learner(prl.HogwildScheme(**parts(), processes=2), 400, tmp_path / "run")
    before = learner.scheme.algorithm.get_weights()
    while learner.scheme.steps < 240:
        learner.step()
    learner.save_checkpoint()
    saved = copy.deepcopy(learner.scheme.state_dict())
    learner.close()
    again = prl.Learner.resume(tmp_path / "run")
    assert_equal(again.scheme.state_dict()["algorithm"], saved["algorithm"])
    assert again.run()
    state = again.scheme.state_dict()
    after = again.scheme.algorithm.get_weights()
    again.close()
    assert any((after[name] != weight).any() for name, weight in before.items())
    workers = [one["scheme"] for one in state["collector"]["workers"]]
    assert sum(one["collector"]["steps"] for one in workers) == 400
    first, second = (one["storage"] for one in workers)
    with pytest.raises(AssertionError):
        assert_equal(first, second)


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ({"directory": "there"}, "each process has a ReplayBuffer of its own, and a directory belongs to one"),
        ({"rate_limit": prl.RateLimit(1.0, 10, 5)}, "leave out rate_limit"),
    ],
)
def test_storages_that_belong_to_one_process_are_refused(storage: dict[str, Any], message: str) -> None:
    with pytest.raises(prl.CompositionError, match=message):
        prl.HogwildScheme(**dqn(storage_factory=prl.ReplayBuffer.create_factory(size=9, **storage)), processes=2)


def test_numbers_out_of_range_are_refused() -> None:
    for name in ("processes", "rollouts_at_once"):
        with pytest.raises(ValueError, match=f"HogwildScheme: {name}"):
            prl.HogwildScheme(**a3c(), **({"processes": 2} | {name: 0}))
    with pytest.raises(prl.CompositionError, match="A2C takes no explorer"):
        prl.HogwildScheme(**a3c(), processes=1, explorers=(prl.EpsilonGreedy(0.1),))


@pytest.mark.long
def test_a3c_with_two_processes_balances_the_pole(tmp_path: Path) -> None:
    scheme = prl.HogwildScheme(
        prl.A2C.create_factory(
            lr=prl.LinearSchedule(3e-3, 0.0),
            optimizer=prl.RMSprop(alpha=0.99, eps=1e-5, centered=False),
            entropy_coef=0.0,
            max_grad_norm=0.5,
            test_every=10_000,
            num_test_episodes=10,
        ),
        prl.OnPolicyActor.create_factory(hidden_sizes=(64, 64)),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory("CartPole-v1", 4),
        processes=2,
    )
    with prl.Learner(scheme, 150_000, tmp_path / "run") as learner:
        learner.run()
        learner.use_best_weights()
        assert learner.scheme.evaluate(20).mean_return >= 400
