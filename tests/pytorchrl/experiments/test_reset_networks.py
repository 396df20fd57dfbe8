"""Networks that are initialised anew during a run, wholly or in part."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.algorithms.resetting import reset_networks
from pytorchrl.agent.explorers import Exploration
from pytorchrl.experiments.runs import checkpoint
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme, ppo_scheme, sac_scheme
from tests.support.memories import MinimalGatedUnit
from tests.support.training import saved_and_loaded, stopped, train

CARTPOLE = prl.VecEnv.create_factory("CartPole-v1", num_envs=2)
TARGET = 120


class Watching(prl.Callback):
    """Keeps the weights with which each step began and ended, by the number of updates."""

    def __init__(self) -> None:
        self.begun: dict[int, Mapping[str, Tensor]] = {}
        self.ended: dict[int, Mapping[str, Tensor]] = {}

    def on_step_begin(self, learner: prl.Learner) -> None:
        self.begun[learner.scheme.algorithm.updates] = learner.scheme.algorithm.get_weights()

    def on_step(self, learner: prl.Learner) -> None:
        self.ended[learner.scheme.algorithm.updates] = learner.scheme.algorithm.get_weights()


def resets_of(learner: prl.Learner) -> list[tuple[float, float]]:
    found = prl.read_metrics(learner.log_dir / "metrics.jsonl")
    return [(one["steps"], one["train/resets"]) for one in found if "train/resets" in one]


def saved(learner: prl.Learner) -> Any:
    state = checkpoint.load(learner.log_dir / "checkpoint.pt", checkpoint.READING)
    return {"scheme": state["scheme"], "callbacks": state["learner"]["callbacks"]}


def test_networks_are_initialised_anew_after_every_so_many_updates(tmp_path: Path) -> None:
    watching = Watching()
    learner = prl.Learner(sac_scheme(), TARGET, tmp_path / "run", callbacks=[prl.ResetNetworks(every=25), watching])
    assert learner.run()
    # The first update follows step 41, and each step has one; the end of the run is no beginning of a step.
    assert resets_of(learner) == [(65, 1), (90, 2), (115, 3)]
    for updates, begun in watching.begun.items():
        if updates and updates % 25 == 0:
            assert_equal(begun, learner.scheme.make_algorithm(updates).get_weights())
            assert not torch.equal(
                begun["networks.policy.head.layer.weight"], watching.ended[updates]["networks.policy.head.layer.weight"]
            )
        elif updates in watching.ended:
            assert_equal(begun, watching.ended[updates])
    assert_equal(watching.begun[0], learner.scheme.make_algorithm().get_weights())
    assert_equal(learner.scheme.algorithm.get_weights(), watching.ended[80])
    learner.close()


def test_a_reset_is_logged_once_by_a_run_that_was_killed_after_it(tmp_path: Path) -> None:
    learner = prl.Learner(sac_scheme(), TARGET, tmp_path / "run", callbacks=[prl.ResetNetworks(every=25)])
    while learner.scheme.steps < 65:
        learner.step()
    learner.save_checkpoint()
    # Nothing of this is saved.
    while learner.scheme.steps < 70:
        learner.step()
    learner.close()
    with prl.Learner.resume(tmp_path / "run") as again:
        assert again.run()
    assert resets_of(again) == [(65, 1), (90, 2), (115, 3)]


def test_each_reset_draws_other_weights_and_another_seed_too() -> None:
    one, other = sac_scheme(), sac_scheme(seed=1)
    drawn = [one.make_algorithm(25), one.make_algorithm(50), other.make_algorithm(25)]
    weights = [each.get_weights()["networks.policy.head.layer.weight"] for each in drawn]
    assert not any(torch.equal(weights[first], weights[second]) for first, second in ((0, 1), (0, 2), (1, 2)))
    one.close()
    other.close()


def test_after_a_reset_a_run_goes_on_as_one_that_began_with_these_networks() -> None:
    scheme, other = train(sac_scheme(), 60), train(sac_scheme(), 60)
    fresh = scheme.make_algorithm(20)
    before = saved_and_loaded(scheme.storage.state_dict())
    reset_networks(scheme.algorithm, fresh)
    assert_equal(saved_and_loaded(scheme.storage.state_dict()), before)
    state = saved_and_loaded(fresh.state_dict())
    counters, generators = other.algorithm.training.counters, other.algorithm.random_state()
    state["training"]["counters"], state["generators"] = dict(counters), generators
    other.algorithm.load_state_dict(state)
    for each in (scheme, other):
        train(each, 90)
    assert_equal(saved_and_loaded(scheme.state_dict()), saved_and_loaded(other.state_dict()))
    scheme.close()
    other.close()


SAC_WITH_EVALUATIONS: dict[str, Any] = {"start_steps": 40, "mini_batch_size": 16, "num_test_episodes": 1}


def evaluated_sac() -> prl.Scheme:
    return prl.Scheme(
        prl.SAC.create_factory(test_every=30, **SAC_WITH_EVALUATIONS),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        prl.PERBuffer.create_factory(size=150, alpha=0.6),
        prl.VecEnv.create_factory("Pendulum-v1", env_kwargs={"max_episode_steps": 15}),
    )


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("at", [59, 60, *(pytest.param(at, marks=pytest.mark.long) for at in (61, 89, 90))])
def test_a_run_that_is_stopped_before_or_after_a_reset_resumes_bit_for_bit(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The resets follow steps 60 and 80; evaluations steps 30, 60 and 90.
    callbacks = lambda: [prl.ResetNetworks(every=20)]  # noqa: E731
    whole = prl.Learner(evaluated_sac(), TARGET, tmp_path / "whole", callbacks=callbacks())
    assert whole.run()
    # Where a step's evaluation is due, the request stops it.
    folder = stopped(prl.Learner(evaluated_sac(), TARGET, tmp_path / "run", callbacks=callbacks()), at, monkeypatch)
    resumed = prl.Learner.resume(folder)
    assert resumed.run()
    assert [steps for steps, _ in resets_of(whole)] == [60, 80, 100]
    assert_equal(saved(resumed), saved(whole))
    returns = [
        [
            (one["steps"], one["test/return"])
            for one in prl.read_metrics(each.log_dir / "metrics.jsonl")
            if "test/return" in one
        ]
        for each in (whole, resumed)
    ]
    assert returns[0] == returns[1]
    for each in (whole, resumed):
        each.close()


@pytest.mark.long
def test_collectors_in_other_processes_act_with_the_new_weights(tmp_path: Path) -> None:
    states = []
    for name, collection in (("alone", None), ("overlapped", prl.Overlapped(0))):
        scheme = sac_scheme(collection=collection)
        learner = prl.Learner(scheme, TARGET, tmp_path / name, callbacks=[prl.ResetNetworks(every=25)])
        assert learner.run()
        states.append({part: saved(learner)["scheme"][part] for part in ("algorithm", "storage")})
        learner.close()
    assert_equal(*states)


@pytest.mark.long
@pytest.mark.parametrize("at", [64, 65, pytest.param(66, marks=pytest.mark.long)])
def test_a_run_whose_collectors_are_ahead_resumes_bit_for_bit_around_a_reset(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learner(name: str) -> prl.Learner:
        scheme = sac_scheme(collection=prl.Overlapped(3))
        return prl.Learner(scheme, TARGET, tmp_path / name, callbacks=[prl.ResetNetworks(every=25)])

    whole = learner("whole")
    assert whole.run()
    resumed = prl.Learner.resume(stopped(learner("run"), at, monkeypatch))
    assert resumed.run()
    ours, theirs = saved(resumed)["scheme"], saved(whole)["scheme"]
    for part in ("algorithm", "storage"):
        assert_equal(ours[part], theirs[part], part)
    for each in (whole, resumed):
        each.close()


def test_updates_before_the_run_do_not_count(tmp_path: Path) -> None:
    pretrained = prl.Learner(sac_scheme(), 70, tmp_path / "pretrained")
    assert pretrained.run()
    pretrained.close()
    scheme = sac_scheme()
    prl.start_from(scheme, tmp_path / "pretrained")
    assert scheme.algorithm.updates == 30
    learner = prl.Learner(scheme, 70, tmp_path / "run", callbacks=[prl.ResetNetworks(every=20)])
    assert learner.run()
    assert resets_of(learner) == [(60, 1)]
    learner.close()


def test_a_phase_of_many_updates_is_followed_by_one_reset(tmp_path: Path) -> None:
    scheme = dqn_scheme(algorithm={"num_mini_batch": 7, "update_every": 10, "test_every": 0})
    learner = prl.Learner(scheme, 80, tmp_path / "run", callbacks=[prl.ResetNetworks(every=3)])
    assert learner.run()
    steps = [at for at, _ in resets_of(learner)]
    assert len(steps) == len(set(steps)) == scheme.algorithm.updates // 7 - 1
    learner.close()


def test_statistics_of_observations_stay() -> None:
    scheme = train(evaluated_sac(), 60)
    assert scheme.actor.normalization is not None
    before = saved_and_loaded(scheme.actor.normalization.state_dict())
    reset_networks(scheme.algorithm, scheme.make_algorithm(1))
    assert before["parts.0.count"] > 0
    assert_equal(saved_and_loaded(scheme.actor.normalization.state_dict()), before)
    scheme.close()


def test_learning_rates_and_schedules_go_on_as_before_a_reset() -> None:
    scheme = ppo_scheme()
    scheme.set_progress(50, 100)
    reset_networks(scheme.algorithm, scheme.make_algorithm(1))
    (rate,) = {group.stepper.learning_rate for group in scheme.algorithm.training.groups.values()}
    assert rate == pytest.approx(5e-4)
    scheme.close()


# A part of the networks


def changed_by(scheme: prl.Scheme, **parts: Any) -> set[str]:
    """The names of the actor's tensors that a reset initialises anew; all others must stay."""
    before, fresh = scheme.algorithm.get_weights(), scheme.make_algorithm(1)
    initial = fresh.get_weights()
    reset_networks(scheme.algorithm, fresh, **parts)
    after = scheme.algorithm.get_weights()
    same = {name for name in after if torch.equal(after[name], before[name])}
    anew = {name for name in after if torch.equal(after[name], initial[name])}
    assert same | anew == set(after)
    return set(after) - same


def layers_of(names: set[str]) -> set[str]:
    return {name.removeprefix("networks.").rpartition(".")[0] for name in names}


def made(algorithm: Any, env: Any = CARTPOLE, **actor: Any) -> prl.Scheme:
    """A scheme whose weights all differ from their initial ones."""
    scheme = prl.Scheme(
        algorithm,
        prl.OffPolicyActor.create_factory(**{"hidden_sizes": (8, 7)} | actor),
        prl.ReplayBuffer.create_factory(size=20, sequences=prl.Sequences(4) if "memory" in actor else None),
        env,
    )
    with torch.no_grad():
        for network in (scheme.actor, *(target.network for target in scheme.algorithm.training.targets.values())):
            for parameter in network.parameters():
                parameter.add_(0.1)
    return scheme


@pytest.mark.parametrize(
    ("count", "actor", "expected"),
    [
        (1, {}, {"q.head.numbers.layer"}),
        (2, {}, {"q.head.numbers.layer", "q.body.hidden.layers.1"}),
        (
            2,
            {"layer_norm": True},
            {"q.head.numbers.layer", "q.body.hidden.layers.1", "q.body.hidden.norms.1"},
        ),
        (
            2,
            {"body": "simba", "hidden_sizes": (8, 8)},
            {"q.head.numbers.layer", "q.body.hidden.norm"}
            | {f"q.body.hidden.blocks.1.{layer}" for layer in ("norm", "wide", "narrow")},
        ),
        (
            2,
            {"body": "bronet", "hidden_sizes": (8, 8)},
            {"q.head.numbers.layer"}
            | {f"q.body.hidden.blocks.1.{layer}.{part}" for layer in ("first", "second") for part in ("layer", "norm")},
        ),
        (
            1,
            {"dueling": True, "dueling_size": 3},
            {f"q.head.numbers.{stream}{layer}" for stream in ("value", "advantage") for layer in ("", "_hidden")},
        ),
        (2, {"memory": "gru", "memory_size": 4}, {"q.head.numbers.layer", "q.body.memory.cells"}),
        (
            2,
            {"memory": "gru", "memory_size": 4, "memory_layers": 3},
            {"q.head.numbers.layer", "q.body.memory.layers.2.cells"},
        ),
        (
            2,
            {"memory": MinimalGatedUnit, "memory_size": 4},
            {"q.head.numbers.layer", "q.body.memory.cells.gate", "q.body.memory.cells.new"},
        ),
        (9, {}, {"q.head.numbers.layer", "q.body.hidden.layers.0", "q.body.hidden.layers.1"}),
    ],
)
def test_only_the_last_layers_are_initialised_anew(count: int, actor: dict[str, Any], expected: set[str]) -> None:
    scheme = made(prl.DQN.create_factory(), **actor)
    assert layers_of(changed_by(scheme, last_layers=count)) == expected
    scheme.close()


class Images(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, 255, (12, 12, 1), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((12, 12, 1), np.uint8), {}

    def step(self, action: Any) -> Any:
        return np.zeros((12, 12, 1), np.uint8), 0.0, False, False, {}


def test_the_encoder_of_images_stays_where_only_later_layers_are_reset() -> None:
    scheme = made(prl.DQN.create_factory(), prl.VecEnv.create_factory(Images), hidden_sizes=(8,))
    assert layers_of(changed_by(scheme, last_layers=2)) == {"q.head.numbers.layer", "q.body.hidden.layers.0"}
    scheme.close()


def test_the_last_layers_of_critics_policy_and_targets_are_initialised_anew() -> None:
    scheme = made(prl.SAC.create_factory(), prl.VecEnv.create_factory("Pendulum-v1"))
    targets = scheme.algorithm.training.targets
    before = {name: saved_and_loaded(target.network.state_dict()) for name, target in targets.items()}
    changed = changed_by(scheme, last_layers=1)
    heads = {f"critics.networks.{number}.head.layer" for number in range(2)}
    assert layers_of(changed) == heads | {"policy.head.layer"}
    fresh = scheme.make_algorithm(1).training.targets
    for name, target in targets.items():
        for key, value in target.network.state_dict().items():
            expected = fresh[name].network.state_dict() if ".head." in key else before[name]
            assert torch.equal(value, expected[key]), key
    scheme.close()


class HalfFrozen(nn.Linear):
    """Its weights are frozen from the beginning."""

    def __init__(self, space: Any) -> None:
        super().__init__(space.shape[0], 8)
        self.weight.requires_grad_(False)


def test_parameters_that_were_frozen_when_they_were_made_stay() -> None:
    scheme = made(prl.DQN.create_factory(), CARTPOLE, feature_extractor=HalfFrozen)
    frozen = scheme.algorithm.q.body.features.weight
    frozen.fill_(0.5)
    changed = changed_by(scheme)
    assert torch.equal(frozen, torch.full_like(frozen, 0.5))
    assert "networks.q.body.features.bias" in changed
    scheme.close()


def test_frozen_parameters_and_their_copies_in_target_networks_stay() -> None:
    scheme = made(prl.DQN.create_factory(), CARTPOLE)
    q, target = scheme.algorithm.q, next(iter(scheme.algorithm.training.targets.values())).network
    frozen, copied = q.body.hidden.layers[0].weight, target.body.hidden.layers[0].weight
    frozen.requires_grad_(False)
    with torch.no_grad():
        frozen.fill_(0.5)
        copied.fill_(0.5)
    changed = changed_by(scheme)
    assert torch.equal(frozen, torch.full_like(frozen, 0.5))
    assert torch.equal(copied, frozen)
    assert "networks.q.body.hidden.layers.1.weight" in changed
    scheme.close()


def test_layers_before_the_last_ones_are_shrunk_and_perturbed() -> None:
    scheme = made(prl.SAC.create_factory(), prl.VecEnv.create_factory("Pendulum-v1"))
    before, fresh = scheme.algorithm.get_weights(), scheme.make_algorithm(1)
    initial = fresh.get_weights()
    reset_networks(scheme.algorithm, fresh, last_layers=1, keep=0.8)
    for name, value in scheme.algorithm.get_weights().items():
        expected = initial[name] if ".head." in name else 0.8 * before[name] + 0.2 * initial[name]
        torch.testing.assert_close(value, expected)
    scheme.close()


def test_all_layers_of_two_heads_on_one_body_are_shrunk_once() -> None:
    scheme = prl.Scheme(
        prl.PPO.create_factory(),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), shared_body=True),
        prl.GAEBuffer.create_factory(size=8),
        CARTPOLE,
    )
    before, fresh = scheme.algorithm.get_weights(), scheme.make_algorithm(1)
    reset_networks(scheme.algorithm, fresh, last_layers=0, keep=0.5)
    for name, value in scheme.algorithm.get_weights().items():
        torch.testing.assert_close(value, 0.5 * before[name] + 0.5 * fresh.get_weights()[name])
    scheme.close()


class Tied(nn.Module):
    """Features by two layers with the same weights."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.second(self.first(observation).relu())
        return features


def test_weights_that_two_layers_share_are_shrunk_once() -> None:
    scheme = made(prl.DQN.create_factory(), feature_extractor=Tied)
    before, fresh = scheme.algorithm.get_weights(), scheme.make_algorithm(1)
    reset_networks(scheme.algorithm, fresh, last_layers=0, keep=0.5)
    for name, value in scheme.algorithm.get_weights().items():
        torch.testing.assert_close(value, 0.5 * before[name] + 0.5 * fresh.get_weights()[name])
    scheme.close()


def test_temperature_and_moments_are_forgotten_of_what_changes_alone() -> None:
    scheme = train(sac_scheme(), 60)
    training = scheme.algorithm.training
    assert not torch.equal(training.variables["log_alpha"], torch.zeros(1))
    names = list(training.groups["policy"].parameters)
    head = torch.tensor([name.startswith("head.") for name in names])
    before = training.groups["policy"].stepper.state_dict()
    assert before["steps"] > 0
    reset_networks(scheme.algorithm, scheme.make_algorithm(1), last_layers=1)
    assert torch.equal(training.variables["log_alpha"], torch.zeros(1))
    assert training.groups["log_alpha"].stepper.state_dict()["steps"] == 0
    after = training.groups["policy"].stepper.state_dict()
    assert torch.equal(after["steps"], torch.where(head, 0.0, before["steps"]))
    train(scheme, 80)
    scheme.close()


# Errors


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: prl.ResetNetworks(every=0), "ResetNetworks: every must be at least 1, got 0"),
        (lambda: prl.ResetNetworks(every=-5), "ResetNetworks: every must be at least 1, got -5"),
        (lambda: prl.ResetNetworks(every=5, last_layers=-1), "last_layers must be at least 0"),
        (lambda: prl.ResetNetworks(every=5, last_layers={"q": -1}), r"last_layers\['q'\] must be at least 0, got -1"),
        (lambda: prl.ResetNetworks(every=5, last_layers=1, keep=1.5), r"keep must lie in \[0, 1\]"),
        (lambda: prl.ResetNetworks(every=5, keep=0.5), "keep=0.5 applies to the layers before the last ones"),
        (lambda: prl.ResetNetworks(every=5, last_layers=0), "last_layers=0 and keep=1 reset nothing"),
    ],
)
def test_a_reset_of_nothing_or_at_no_interval_is_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_networks_are_reset_by_their_names_as_if_the_run_had_not_been_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learner(name: str) -> prl.Learner:
        n_step = prl.RepeatedSchedule(prl.ExponentialSchedule(4, 1, fraction=0.5), every=20, after=40)
        callbacks = [
            prl.ResetNetworks(every=20, last_layers={"policy": 1}, keep=0.5),
            prl.SetHyperParameter("storage", "n_step", n_step),
        ]
        storage = prl.NStepReplayBuffer.create_factory(size=150)
        return prl.Learner(sac_scheme(storage=storage), TARGET, tmp_path / name, callbacks=callbacks)

    whole = learner("whole")
    assert whole.run()
    resumed = prl.Learner.resume(stopped(learner("run"), 65, monkeypatch))
    assert resumed.run()
    assert_equal(saved(resumed), saved(whole))
    for each in (whole, resumed):
        each.close()


def test_only_the_last_layers_of_named_networks_and_all_of_others_are_reset() -> None:
    scheme = sac_scheme()
    algorithm: Any = scheme.algorithm
    train(scheme, 50)
    fresh: Any = scheme.make_algorithm(7)
    reset_networks(algorithm, fresh, {"critics": 0}, keep=0.25)
    kept: Any = sac_scheme()
    train(kept, 50)
    for ours, old, new in zip(
        algorithm.critics.parameters(), kept.algorithm.critics.parameters(), fresh.critics.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, 0.25 * old + 0.75 * new)
    targets = (algorithm.target_critics, kept.algorithm.target_critics, fresh.target_critics)
    for ours, old, new in zip(*(each.parameters() for each in targets), strict=True):
        torch.testing.assert_close(ours, 0.25 * old + 0.75 * new)
    policies = (algorithm.actor.networks["policy"], fresh.actor.networks["policy"])
    assert all(torch.equal(*pair) for pair in zip(*(each.parameters() for each in policies), strict=True))
    with pytest.raises(ValueError, match="last_layers names 'critic', but the networks of SAC are 'policy', 'critics'"):
        reset_networks(algorithm, fresh, {"critic": 0})
    for each in (scheme, kept):
        each.close()


def test_a_network_that_does_not_exist_is_refused_before_the_first_step(tmp_path: Path) -> None:
    learner = prl.Learner(
        sac_scheme(), 50, tmp_path / "run", callbacks=[prl.ResetNetworks(every=5, last_layers={"q": 1})]
    )
    with pytest.raises(prl.CompositionError, match="last_layers names q; the networks of SAC are policy, critics"):
        learner.run()
    assert learner.scheme.steps == 0
    learner.close()


class Random(prl.OffPolicyAlgorithm):
    """Has no networks."""

    def build(self) -> None:
        pass

    def default_explorer(self) -> prl.Explorer:
        return prl.Greedy()

    def policy(self, view: Any, exploration: Exploration) -> Tensor:
        return torch.zeros(exploration.num_envs, 1, dtype=torch.int64)


def test_an_algorithm_without_trained_networks_is_refused_before_the_first_step(tmp_path: Path) -> None:
    scheme = made(Random.create_factory())
    learner = prl.Learner(scheme, 50, tmp_path / "run", callbacks=[prl.ResetNetworks(every=5)])
    with pytest.raises(prl.CompositionError, match="ResetNetworks: Random trains no networks; leave it out"):
        learner.run()
    assert scheme.steps == 0
    learner.close()
