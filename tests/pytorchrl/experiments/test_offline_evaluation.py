"""Offline evaluation of a policy: its estimates from data alone are logged, and do not change training."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.experiments import TrainedPolicy
from pytorchrl.experiments.callbacks.offline import first_observations, values_of_policy
from storages import Episode
from storages.datasets import SelectedDataset, open_dataset, write_dataset
from storages.transition import ACT, REW
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded
from tests.support.training import stopped

CARTPOLE = prl.VecEnv.create_factory("CartPole-v1")
PENDULUM = prl.VecEnv.create_factory("Pendulum-v1")


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("data") / "damped.npz", "Pendulum-v1", 200)


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("data") / "balanced.npz", steps=200)


def scheme_of(algorithm: Any, data: Path, envs: Any, storage: Any = None, **changes: Any) -> prl.Scheme:
    filled = prl.from_dataset(
        storage or prl.ReplayBuffer.create_factory(size=400), data, select=changes.pop("select", None)
    )
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(16,), **changes)
    return prl.Scheme(algorithm, actor, filled, test_envs_factory=envs)


def sac(data: Path, **changes: Any) -> prl.Scheme:
    return scheme_of(prl.SAC.create_factory(mini_batch_size=16, test_every=0), data, PENDULUM, **changes)


def dqn(data: Path, **changes: Any) -> prl.Scheme:
    return scheme_of(prl.DQN.create_factory(mini_batch_size=16, test_every=0, gamma=0.9), data, CARTPOLE, **changes)


def write_random_episodes(
    path: Path, episodes: int = 20, steps: int = 10, terminated: bool = False, reward: Any = None
) -> Path:
    """Write episodes of random observations and actions, with rewards of 1 or of a function of the actions."""
    random = np.random.default_rng(0)

    def episode() -> Episode:
        actions = random.integers(2, size=(steps, 1))
        rewards = np.ones((steps, 1)) if reward is None else reward(actions)
        observations = random.normal(size=(steps + 1, 4)).astype(np.float32)
        return Episode(observations, {ACT: actions, REW: rewards}, terminated, not terminated)

    write_dataset(path, [episode() for _ in range(episodes)])
    return path


@pytest.mark.long
@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_fitted_value_of_constant_rewards_of_one_is_their_discounted_sum(batch_norm: bool, tmp_path: Path) -> None:
    scheme = dqn(write_random_episodes(tmp_path / "ones.npz"), batch_norm=batch_norm)
    evaluated = prl.FittedQEvaluation(updates=1_000, mini_batch_size=32, lr=5e-3, polyak=0.9).evaluate(scheme)
    assert evaluated["fitted_q_value"] == pytest.approx(10.0, rel=0.05)
    assert evaluated["fitted_q_loss"] < 0.1


@pytest.mark.long
def test_fitted_values_are_those_of_the_policy_and_not_of_the_data(tmp_path: Path) -> None:
    scheme = dqn(
        write_random_episodes(
            tmp_path / "bandit.npz", 300, steps=1, terminated=True, reward=lambda actions: 2.0 * actions
        )
    )
    starts = first_observations(open_dataset(tmp_path / "bandit.npz"))
    actions = TrainedPolicy(scheme.algorithm)(starts)
    evaluated = prl.FittedQEvaluation(updates=800, mini_batch_size=64, lr=1e-2, polyak=0.9).evaluate(scheme)
    assert 0 < actions.mean() < 1, "the policy must choose both actions"
    assert evaluated["fitted_q_value"] == pytest.approx(2 * actions.mean(), abs=0.1)


def test_the_initial_value_is_the_minimum_over_critics_of_the_policys_first_actions(pendulum: Path) -> None:
    scheme = sac(pendulum)
    starts = torch.from_numpy(np.stack([np.asarray(one.observations)[0] for one in open_dataset(pendulum)]))
    view = scheme.actor.view(starts)
    algorithm: Any = scheme.algorithm
    with torch.no_grad():
        action = algorithm.policy(view, None).mode()
        one, two = (value.mean for value in algorithm.critics(view, action))
    expected = float(torch.minimum(one, two).mean())
    assert prl.InitialValue().evaluate(scheme)["initial_value"] == pytest.approx(expected, rel=1e-5)


def test_the_initial_value_of_dqn_is_that_of_the_greedy_actions(cartpole: Path) -> None:
    scheme = dqn(cartpole)
    starts = torch.from_numpy(np.stack([np.asarray(one.observations)[0] for one in open_dataset(cartpole)]))
    algorithm: Any = scheme.algorithm
    with torch.no_grad():
        expected = algorithm.q(scheme.actor.view(starts)).values.max(1).values.mean()
    assert prl.InitialValue().evaluate(scheme)["initial_value"] == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("memory", [None, "gru"])
def test_the_action_difference_of_discrete_actions_is_the_share_that_differs(
    memory: str | None, cartpole: Path
) -> None:
    storage = prl.ReplayBuffer.create_factory(size=400, sequences=prl.Episodes() if memory else None)
    scheme = dqn(cartpole, storage=storage, memory=memory)
    policy, differ = TrainedPolicy(scheme.algorithm), []
    for episode in open_dataset(cartpole):
        policy.reset()
        for observation, action in zip(np.asarray(episode.observations)[:-1], episode.fields[ACT][:, 0], strict=True):
            differ.append(policy(observation) != action)
    assert prl.ActionDifference().evaluate(scheme)["action_difference"] == pytest.approx(np.mean(differ))


def test_the_difference_of_box_actions_is_the_squared_distance_of_scaled_ones(pendulum: Path) -> None:
    scheme = sac(pendulum)
    policy, distances = TrainedPolicy(scheme.algorithm), []
    for episode in open_dataset(pendulum):
        actions = policy(np.asarray(episode.observations)[:-1])
        distances += ((actions - episode.fields[ACT])[:, 0] ** 2 / 4).tolist()
    assert prl.ActionDifference().evaluate(scheme)["action_difference"] == pytest.approx(np.mean(distances), rel=1e-4)


def test_the_difference_of_a_decision_transformer_is_of_its_actions_in_turn(pendulum: Path) -> None:
    scheme = scheme_of(
        prl.DecisionTransformer.create_factory(embedding_size=8, num_layers=1, context_length=4, test_every=0),
        pendulum,
        PENDULUM,
        storage=prl.ReplayBuffer.create_factory(size=400, sequences=prl.Episodes()),
    )
    policy, distances = TrainedPolicy(scheme.algorithm), []
    for episode in open_dataset(pendulum):
        policy.reset()
        rewards = [None, *episode.fields[REW][:, 0]]
        for observation, reward, action in zip(
            np.asarray(episode.observations), rewards, episode.fields[ACT], strict=False
        ):
            distances.append(float(((policy(observation, rewards=reward) - action) ** 2).sum()))
    assert prl.ActionDifference().evaluate(scheme)["action_difference"] == pytest.approx(np.mean(distances), rel=1e-4)
    with pytest.raises(ValueError, match="actions of DecisionTransformer depend on earlier ones"):
        prl.FittedQEvaluation(updates=1).evaluate(scheme)


def test_the_td_error_is_the_mean_absolute_error_on_the_data(cartpole: Path) -> None:
    scheme = dqn(cartpole)
    error = prl.TDError(batches=40, mini_batch_size=200).evaluate(scheme)["td_error"]
    algorithm: Any = scheme.algorithm
    (batch,) = scheme.storage.generate_batches(1, 5_000)
    expected = algorithm.losses(algorithm.read(batch)).errors.detach().abs().mean()
    assert error == pytest.approx(float(expected), rel=0.05)


def test_episodes_that_the_run_holds_out_are_used_for_evaluation(cartpole: Path, tmp_path: Path) -> None:
    train = prl.SelectEpisodes(part="train", validation_share=0.3, seed=4)
    scheme = dqn(cartpole, select=train)
    held_out = SelectedDataset(
        open_dataset(cartpole), prl.SelectEpisodes(part="validation", validation_share=0.3, seed=4)
    )
    for callback in (prl.TDError(), prl.ActionDifference()):
        assert [one.facts for one in callback.data(scheme)] == [one.facts for one in held_out]
        assert callback.data(scheme).steps == held_out.steps
    assert len(prl.TDError().storage(scheme, like_the_run=True)) == held_out.steps
    other = prl.TDError(dataset=str(write_random_episodes(tmp_path / "other.npz", 3)))
    assert other.data(scheme).steps == 30


def offline_callbacks() -> list[prl.Callback]:
    return [
        prl.TDError(every=4, batches=2, mini_batch_size=8),
        prl.InitialValue(every=4),
        prl.ActionDifference(every=4),
        prl.FittedQEvaluation(every=4, updates=3, mini_batch_size=8),
    ]


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("make", ["sac", "crossq", "dqn with priorities"])
def test_offline_evaluation_does_not_change_a_run(
    make: str, pendulum: Path, cartpole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scheme() -> prl.Scheme:
        if make == "sac":
            return sac(pendulum)
        if make == "crossq":
            return scheme_of(prl.CrossQ.create_factory(mini_batch_size=16, test_every=0), pendulum, PENDULUM)
        return dqn(cartpole, storage=prl.PERBuffer.create_factory(size=400, n_step=3, alpha=0.6, epsilon=0.01))

    plain = prl.Learner(scheme(), 12, tmp_path / "plain")
    assert plain.run()
    evaluated = prl.Learner(scheme(), 12, tmp_path / "judged", callbacks=offline_callbacks(), log_every=4)
    evaluated = prl.Learner.resume(stopped(evaluated, 6, monkeypatch), scheme=scheme(), callbacks=offline_callbacks())
    assert evaluated.run()
    assert_equal(evaluated.scheme.state_dict(), plain.scheme.state_dict())
    records = prl.read_metrics(tmp_path / "judged" / "metrics.jsonl")
    for name in ("td_error", "initial_value", "action_difference", "fitted_q_value"):
        found = {record["steps"]: record[f"offline/{name}"] for record in records if f"offline/{name}" in record}
        assert list(found) == [4, 8, 12], name
        # The greedy actions need not change within so few updates, and an unchanged policy has unchanged values.
        assert len(set(found.values())) == 3 or name != "td_error", name


class Errorless(prl.BehaviourCloning):
    """An algorithm that returns no TD errors."""

    def losses(self, rows: prl.Rows) -> prl.Losses:
        return dataclasses.replace(super().losses(rows), errors=None)


def test_algorithms_and_runs_that_cannot_be_evaluated_are_refused_by_name(cartpole: Path) -> None:
    cloning = scheme_of(Errorless.create_factory(test_every=0), cartpole, CARTPOLE)
    with pytest.raises(prl.CompositionError, match=r"TDError: Errorless returns no TD errors"):
        prl.TDError().evaluate(cloning)
    with pytest.raises(prl.CompositionError, match=r"InitialValue: Errorless has no critics of actions"):
        prl.InitialValue().evaluate(cloning)
    storage = prl.ReplayBuffer.create_factory(size=400, sequences=prl.Episodes())
    with_memory = dqn(cartpole, storage=storage, memory="gru")
    with pytest.raises(ValueError, match="the actor has a memory"):
        prl.FittedQEvaluation(updates=1).evaluate(with_memory)
    without = prl.Scheme(
        prl.DQN.create_factory(), prl.OffPolicyActor.create_factory(), prl.ReplayBuffer.create_factory(size=9), CARTPOLE
    )
    with pytest.raises(prl.CompositionError, match=r"TDError: the run learns from no data set; name one: TDError\(d"):
        prl.TDError().evaluate(without)


def test_unsuitable_algorithms_and_missing_data_sets_are_reported_before_training(
    cartpole: Path, tmp_path: Path
) -> None:
    cloning = scheme_of(prl.BehaviourCloning.create_factory(test_every=0), cartpole, CARTPOLE)
    learner = prl.Learner(cloning, 100, tmp_path / "cloning", callbacks=[prl.InitialValue(50)])
    with pytest.raises(prl.CompositionError, match="InitialValue: BehaviourCloning has no critics of actions"):
        learner.run()
    assert cloning.steps == 0
    collecting = prl.Scheme(
        prl.DQN.create_factory(), prl.OffPolicyActor.create_factory(), prl.ReplayBuffer.create_factory(size=9), CARTPOLE
    )
    learner = prl.Learner(collecting, 100, tmp_path / "collecting", callbacks=[prl.TDError(50)])
    with pytest.raises(prl.CompositionError, match="TDError: the run learns from no data set"):
        learner.run()
    assert collecting.steps == 0


def test_a_recurrent_policy_has_one_value_for_each_first_observation(cartpole: Path) -> None:
    storage = prl.ReplayBuffer.create_factory(size=400, sequences=prl.Episodes())
    scheme = dqn(cartpole, storage=storage, memory="gru")
    starts = torch.from_numpy(np.asarray(first_observations(open_dataset(cartpole))))
    values = values_of_policy(scheme.algorithm, starts, np.random.SeedSequence(0))
    algorithm: Any = scheme.algorithm
    body, head = algorithm.q.body, algorithm.q.head
    with torch.no_grad():
        # Without a state, torch's GRU begins with zeros.
        features, _ = body.memory.cells(body.body(starts)[None])
        expected = head.numbers(features[0]).max(1, keepdim=True).values
    torch.testing.assert_close(values, expected)


class DropoutEncoder(torch.nn.Module):
    def __init__(self, space: Any) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(*space.shape, 8), torch.nn.Dropout(0.5))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.layers(observation)
        return features


@pytest.mark.parametrize("callback", [prl.TDError(batches=2), prl.FittedQEvaluation(updates=3)])
def test_evaluations_draw_the_dropout_of_users_encoders_by_the_seed_of_the_run(callback: Any, cartpole: Path) -> None:
    scheme = dqn(cartpole, feature_extractor=DropoutEncoder)
    before, found = scheme.algorithm.random_state(), []
    for number in range(2):
        torch.manual_seed(number)
        state = torch.get_rng_state()
        found.append(callback.evaluate(scheme))
        assert torch.equal(torch.get_rng_state(), state)
    assert found[0] == found[1]
    assert_equal(scheme.algorithm.random_state(), before)
