"""A trained policy acts in a plain gymnasium loop as in the evaluations of its run."""

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from pytorchrl.experiments.recordings.demonstrations import collect_demonstrations
from pytorchrl.experiments.runs import user_modules
from pytorchrl.scheme.evaluation import evaluate
from tests.support.comparison import assert_equal
from tests.support.compositions import dqn_scheme
from tests.support.finished_runs import RUNS, trained
from tests.support.memories import FastWeights, LeakyIntegrator, LinearAfterGRU
from tests.support.toys import Counter


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("name", RUNS)
def test_a_loaded_policy_acts_as_in_an_evaluation(name: str, tmp_path: Path) -> None:
    learner = trained(name, tmp_path / "run")
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    policy = prl.load_policy(tmp_path / "run")
    scheme = learner.scheme
    exploration = prl.Exploration(scheme.algorithm.codec, 1, "cpu", seed=0, deterministic=True)
    envs = prl.VecEnv.create_factory(RUNS[name][3])()
    observation, rhs, done = envs.reset(3), scheme.actor.initial_memory(1), torch.ones(1, 1)
    for _ in range(60):
        acting = scheme.algorithm.acting_step(torch.from_numpy(observation), rhs, done, exploration)
        action = policy(observation, starts=done[:, 0].numpy() > 0)
        np.testing.assert_array_equal(action.reshape(-1), acting.env_action.numpy().reshape(-1))
        step = envs.step(acting.env_action.numpy())
        observation, rhs = step.observation, acting.rhs
        done = torch.from_numpy((step.terminated | step.truncated).astype(np.float32))
    envs.close()
    learner.close()
    assert before == {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}


class TwoParts(Counter):
    """Observes two parts of the same shape, whose names are not in the order of the alphabet."""

    def __init__(self) -> None:
        super().__init__(length=5)
        part = spaces.Box(-9, 9, (2,), np.float32)
        self.observation_space = spaces.Dict(state=part, prices=part)

    def reset(self, **given: Any) -> Any:
        return self._parts(*super().reset(**given))

    def step(self, action: Any) -> Any:
        return self._parts(*super().step(action))

    def _parts(self, observation: Any, *rest: Any) -> Any:
        return {"state": np.float32([1, 2]), "prices": np.float32([-3, 5])}, *rest


def test_parts_of_observations_in_another_order_than_the_alphabets_are_not_exchanged(tmp_path: Path) -> None:
    scheme = prl.Scheme(
        algo_factory=prl.PPO.create_factory(test_every=0),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(4,), normalize_observations=True),
        storage_factory=prl.GAEBuffer.create_factory(size=16),
        train_envs_factory=prl.VecEnv.create_factory(TwoParts),
    )
    with prl.Learner(scheme, 32, tmp_path / "run") as learner:
        learner.run(progress=False)
    loaded, trained_one = prl.load_policy(tmp_path / "run"), TrainedPolicy(scheme.algorithm)
    rows = np.random.default_rng(0).uniform(-9, 9, (2, 50, 2)).astype(np.float32)
    seen = {"prices": rows[0], "state": rows[1]}
    probabilities = [policy.log_probability(seen, np.zeros(50, np.int64)) for policy in (loaded, trained_one)]
    np.testing.assert_array_equal(*probabilities)


class Halved(gym.ActionWrapper[Any, Any, Any]):
    """Halves actions; a wrapper of a user's."""

    def action(self, action: Any) -> Any:
        return action / 2


@pytest.mark.long
def test_a_policy_says_which_wrappers_its_actions_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rescaled = ("RescaleAction", {"min_action": -1, "max_action": 1})
    scheme = prl.Scheme(
        algo_factory=prl.PPO.create_factory(test_every=0),
        actor_factory=prl.OnPolicyActor.create_factory(hidden_sizes=(4,)),
        storage_factory=prl.GAEBuffer.create_factory(size=16),
        train_envs_factory=prl.VecEnv.create_factory("Pendulum-v1", wrappers=["BoundAction", rescaled, Halved]),
    )
    with prl.Learner(scheme, 16, tmp_path / "run", callbacks=[prl.ExportPolicy("policy.ts")]) as learner:
        learner.run(progress=False)
    named = "RescaleAction(min_action=-1, max_action=1) and Halved"
    acts = f"the policy acts in Box(-1.0, 1.0, (1,), float32), which its run's {named} takes"
    assert f"ExportPolicy: {acts}" in capsys.readouterr().out
    with pytest.warns(UserWarning, match=re.escape(f"load_policy: {acts}, not in the units of the environment below")):
        policy = prl.load_policy(tmp_path / "run")
    assert repr(policy).endswith(f"actions of {named}>")
    extra: dict[str, Any] = {"metadata.json": ""}
    with warnings.catch_warnings(action="ignore"):
        torch.jit.load(tmp_path / "run" / "policy.ts", _extra_files=extra)
    wrappers = json.loads(extra["metadata.json"])["action_wrappers"]
    assert wrappers == list(policy.action_wrappers) == named.split(" and ")
    monkeypatch.setattr(sys, "argv", ["", "export", str(tmp_path / "run"), "-o", str(tmp_path / "policy.pt2")])
    main()
    assert f"Warning: {acts}" in capsys.readouterr().out
    # It acts in the environment of the run, with its wrappers.
    monkeypatch.setattr(user_modules, "_imported", dict(user_modules._imported))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["", "evaluate", str(tmp_path / "run"), "--import", __name__])
    main()
    assert acts not in capsys.readouterr().out


def test_the_best_weights_are_loaded_as_a_policy(tmp_path: Path) -> None:
    learner = trained("sac", tmp_path / "run")
    policy = prl.load_policy(tmp_path / "run" / "best_weights.pt")
    learner.use_best_weights()
    for name, weight in learner.scheme.algorithm.get_weights().items():
        assert torch.equal(weight, policy.algorithm.get_weights()[name])
    action = policy(np.zeros(3, np.float32))
    assert spaces.Box(-2, 2, (1,), np.float32).contains(action)
    assert repr(policy).startswith("<TrainedPolicy of SAC, from Box(")
    learner.close()


def test_a_policy_of_several_environments_resets_its_memory_with_episodes(
    finished: Callable[[str], Path],
) -> None:
    run = finished("dqn with memory")
    policy, alone = prl.load_policy(run), prl.load_policy(run)
    observations = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)
    starts = np.zeros((6, 3), bool)
    starts[0], starts[3, 1] = True, True
    together = [policy(step, starts=start) for step, start in zip(observations, starts, strict=True)]
    expected = []
    for t in range(6):
        if t == 3:
            alone.reset()
        expected.append(alone(observations[t, 1]))
    assert [actions[1] for actions in together] == expected


@pytest.mark.parametrize("weights", ["", "best_weights.pt"])
def test_a_loaded_policy_explores_as_at_the_end_of_training(weights: str, finished: Callable[[str], Path]) -> None:
    policy = prl.load_policy(finished("dqn") / weights)
    observations = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    explored = policy(observations, deterministic=False, seed=0)
    policy.reset()
    # Random actions differ from the greedy ones in half of the rows; epsilon has fallen to 0.05.
    assert (explored != policy(observations)).mean() < 0.1


def test_exploration_is_determined_by_its_seed(finished: Callable[[str], Path]) -> None:
    run = finished("sac")
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    drawn = []
    for seed in (0, 0, 1):
        policy = prl.load_policy(run)
        drawn.append(np.array([policy(one, deterministic=False, seed=seed) for one in observations]))
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_exploration_without_a_seed_differs_between_episodes_and_clients(finished: Callable[[str], Path]) -> None:
    run = finished("sac")
    observation = np.zeros(3, np.float32)
    policy, other = prl.load_policy(run), prl.load_policy(run)
    drawn = [float(policy(observation, deterministic=False)[0])]
    policy.reset()
    drawn += [float(one(observation, deterministic=False)[0]) for one in (policy, other)]
    assert len(set(drawn)) == 3


def test_another_seed_of_exploration_needs_a_reset(finished: Callable[[str], Path]) -> None:
    policy, observation = prl.load_policy(finished("sac")), np.zeros(3, np.float32)
    first = policy(observation, deterministic=False, seed=1)
    assert not np.array_equal(policy(observation, deterministic=False, seed=1), first)
    with pytest.raises(ValueError, match=r"seed=2 begins exploration anew; call reset\(\) before it"):
        policy(observation, deterministic=False, seed=2)
    policy.reset()
    assert np.array_equal(policy(observation, deterministic=False, seed=1), first)


@pytest.mark.long
def test_a_policy_and_its_export_tell_the_run_that_they_are_from(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    policy = prl.load_policy(finished("sac"))
    assert policy.origin == {
        "environment": "Pendulum-v1",
        "seed": policy.origin["seed"],
        "steps": policy.algorithm.steps,
    }
    policy.export(tmp_path / "policy.pt2")
    extra = {"metadata.json": ""}
    torch.export.load(tmp_path / "policy.pt2", extra_files=extra)
    assert json.loads(extra["metadata.json"])["origin"] == policy.origin


def noisy_learner(folder: Path) -> prl.Learner:
    """A run whose networks have noise and dropout, after its first updates."""
    scheme = prl.Scheme(
        prl.DQN.create_factory(explorer=prl.Greedy(), start_steps=20, test_every=0, mini_batch_size=8),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), noisy=True, dropout=0.2),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    learner = prl.Learner(scheme, 60, folder)
    while scheme.algorithm.updates < 5:
        learner.step()
    return learner


def test_the_noise_of_networks_is_determined_by_the_seed_of_a_policy_that_explores(tmp_path: Path) -> None:
    with noisy_learner(tmp_path / "run") as learner:
        algorithm = learner.scheme.algorithm
        before = algorithm.random_state()
        observations = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32) / 20
        drawn = []
        for seed in (0, 0, 1):
            policy = TrainedPolicy(algorithm)
            drawn.append(np.array([policy(one, deterministic=False, seed=seed) for one in observations]))
        assert np.array_equal(drawn[0], drawn[1])
        assert not np.array_equal(drawn[0], drawn[2])
        assert_equal(algorithm.random_state(), before)


def explore(algorithm: Any, folder: Path) -> None:
    with prl.VecEnv("CartPole-v1") as envs:
        evaluate(algorithm, envs, 1, 0, explore_at=(40, 60))


def record(algorithm: Any, folder: Path) -> None:
    with prl.VecEnv("CartPole-v1") as envs:
        collect_demonstrations(algorithm, envs, path=folder / "data.npz", steps=5, deterministic=False)


def export(algorithm: Any, folder: Path) -> None:
    TrainedPolicy(algorithm).export(folder / "policy.pt2")


@pytest.mark.parametrize("use", [explore, record, pytest.param(export, marks=pytest.mark.long)])
def test_a_run_is_not_changed_by_other_uses_of_its_networks(use: Callable[[Any, Path], None], tmp_path: Path) -> None:
    with noisy_learner(tmp_path / "whole") as whole, noisy_learner(tmp_path / "used") as used:
        use(used.scheme.algorithm, tmp_path)
        whole.run()
        used.run()
        assert_equal(used.scheme.algorithm.get_weights(), whole.scheme.algorithm.get_weights())


@pytest.mark.quick_share(0.25)
@pytest.mark.parametrize(
    "actions", [spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2), spaces.Box(-1, 1)]
)
@pytest.mark.parametrize("kind", ["vector", "dict", "discrete"])
def test_a_policy_returns_valid_actions_of_every_kind_of_space(
    actions: spaces.Space[Any], kind: str, tmp_path: Path
) -> None:
    env = Counter(kind, length=5, actions=actions)
    scheme = prl.Scheme(
        prl.PPO.create_factory(test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.GAEBuffer.create_factory(size=20),
        prl.VecEnv.create_factory(lambda: Counter(kind, length=5, actions=actions)),
    )
    learner = prl.Learner(scheme, target_steps=20, log_dir=tmp_path / "run")
    learner.run()
    learner.close()
    policy = prl.load_policy(tmp_path / "run")
    observation, _ = env.reset()
    for _ in range(3):
        action = policy(observation)
        assert actions.contains(action), action
        observation, *_ = env.step(action)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (np.zeros(3), r"must have the shape \(4,\), or \(E, 4\)"),
        (np.zeros((2, 2, 4)), "got"),
        ({"a": np.zeros(4)}, r"must be numbers with the shape \(4,\).*got other values: a mapping with \['a'\]"),
        ([[0.0] * 4, [0.0] * 3], "must be numbers with the shape.*inhomogeneous"),
        (np.array([0.0, np.nan, 0.0, 0.0]), r"the observation has nan at \(1,\); allow_nonfinite=True"),
        (np.array([[0.0] * 4, [0.0, 0.0, 0.0, -np.inf]]), r"the observation has -inf at \(1, 3\)"),
    ],
)
def test_observations_of_another_space_are_refused(
    observation: Any, message: str, finished: Callable[[str], Path]
) -> None:
    run = finished("dqn")
    policy = prl.load_policy(run)
    with pytest.raises(ValueError, match=message):
        policy(observation)


@pytest.mark.parametrize(
    ("space", "inside", "outside", "where"),
    [
        (spaces.Discrete(3, start=2), 4, 5, r"5 at \(\), outside of Discrete\(3, start=2\)"),
        (spaces.Discrete(3), np.array([0, 2]), np.array([2, -1]), r"-1 at \(1,\), outside of Discrete\(3\)"),
        (spaces.MultiDiscrete([3, 2]), [2, 1], [2, 2], r"2 at \(1,\), outside of MultiDiscrete\(\[3 2\]\)"),
        (spaces.MultiDiscrete([3, 2], start=[1, 0]), [[3, 1]], [[0, 0]], r"0 at \(0, 0\), outside of MultiDiscrete"),
    ],
)
def test_discrete_observations_out_of_range_are_refused(space: Any, inside: Any, outside: Any, where: str) -> None:
    envs: Any = SimpleNamespace(observation_space=space, action_space=spaces.Discrete(2))
    algorithm = prl.DQN.create_factory()("cpu", prl.OffPolicyActor.create_factory(hidden_sizes=(4,))("cpu", envs), envs)
    policy = TrainedPolicy(algorithm)
    assert np.isin(policy(inside), (0, 1)).all()
    with pytest.raises(ValueError, match=f"the observation has {where}"):
        policy(outside)


def test_nonfinite_observations_are_acted_on_where_the_run_has_stored_them(tmp_path: Path) -> None:
    algorithm, actor, _, env = RUNS["dqn"]
    storage = prl.ReplayBuffer.create_factory(size=500, allow_nonfinite=True)
    scheme = prl.Scheme(algorithm, actor, storage, prl.VecEnv.create_factory(env))
    learner = prl.Learner(scheme, target_steps=20, log_dir=tmp_path / "run")
    learner.run()
    learner.close()
    observation = np.array([0.0, np.nan, 0.0, np.inf])
    assert prl.load_policy(tmp_path / "run")(observation) in (0, 1)
    assert prl.TrainedPolicy(scheme.algorithm, allow_nonfinite=True)(observation) in (0, 1)
    with pytest.raises(ValueError, match="the observation has nan"):
        prl.TrainedPolicy(scheme.algorithm)(observation)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_policy_without_a_memory_acts_on_any_number_of_rows(
    deterministic: bool, finished: Callable[[str], Path]
) -> None:
    policy = prl.load_policy(finished("dqn"))
    observations = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    actions = policy(observations, deterministic=deterministic)
    for rows in (2, 4, 1):
        fewer = policy(observations[:rows], deterministic=deterministic)
        assert fewer.shape == (rows,)
        assert not deterministic or np.array_equal(fewer, actions[:rows])
    assert policy(observations[0], deterministic=deterministic) in (0, 1)


def test_a_policy_with_a_memory_needs_a_reset_for_another_number_of_environments(
    finished: Callable[[str], Path],
) -> None:
    policy = prl.load_policy(finished("dqn with memory"))
    policy(np.zeros((2, 4), np.float32))
    with pytest.raises(
        ValueError, match=r"of 3 environments, the previous ones, on which actions depend, were of 2; call reset\(\)"
    ):
        policy(np.zeros((3, 4), np.float32))
    policy.reset()
    assert policy(np.zeros((3, 4), np.float32)).shape == (3,)


class OwnDQN(prl.DQN):
    """A class that a script defines."""


_MODULES_OF_META_COMPUTATIONS = "torch._dynamo", "sympy"
_HAS_OLDER_TORCH = torch.__version__ < (2, 13)


@pytest.mark.long
@pytest.mark.skipif(_HAS_OLDER_TORCH, reason=f"torch {torch.__version__} imports them by itself")
def test_policies_are_loaded_without_the_modules_that_take_torch_seconds_to_import(
    finished: Callable[[str], Path],
) -> None:
    code = (
        "import sys, pytorchrl as prl\n"
        "before = set(sys.modules)\n"
        "for run in sys.argv[1:]:\n"
        "    prl.load_policy(run)\n"
        f"    if imported := (set(sys.modules) - before).intersection({_MODULES_OF_META_COMPUTATIONS}):\n"
        "        sys.exit(f'{run}: {imported}')\n"
    )
    runs = [str(finished(name)) for name in ("dqn", "sac", "iqn", "naf", "c51")]
    loaded = subprocess.run([sys.executable, "-c", code, *runs], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr


def test_a_loaded_policy_is_evaluated_in_its_runs_environment_or_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    envs = prl.VecEnv.create_factory(Counter, env_kwargs={"length": 3}, num_envs=2)
    with prl.Learner(dqn_scheme(envs=envs), 20, tmp_path / "run") as learner:
        learner.run()
    policy = prl.load_policy(tmp_path / "run")
    with monkeypatch.context() as before_import:
        before_import.delitem(sys.modules, Counter.__module__)
        with pytest.raises(prl.CompositionError, match="composed with the class or function Counter"):
            policy.evaluate(episodes=2)
    assert policy.evaluate(episodes=2).lengths == (3, 3)
    longer = prl.VecEnv.create_factory(Counter, env_kwargs={"length": 4}, num_envs=2)
    assert policy.evaluate(longer, episodes=3).lengths == (4, 4, 4)
    assert policy.evaluate(lambda: Counter(length=5), 2).lengths == (5, 5)
    with pytest.warns(RuntimeWarning, match="truncated after 2 steps"):
        assert policy.evaluate(longer, 2, max_episode_steps=2).episodes_cut == 2
    with pytest.raises(prl.CompositionError, match=r"TrainedPolicy\.evaluate: the policy has the observation"):
        policy.evaluate("Pendulum-v1")
    with pytest.raises(ValueError, match=r"TrainedPolicy\.evaluate: episodes must be at least 1, got 0"):
        policy.evaluate(longer, 0)
    with pytest.raises(prl.CompositionError, match="the policy was made of an algorithm"):
        TrainedPolicy(policy.algorithm).evaluate()


def test_evaluations_of_a_policy_are_those_of_the_command_and_leave_its_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = prl.load_policy("zoo:ppo-cartpole")
    first = policy(np.zeros(4, np.float32))
    result = policy.evaluate(episodes=2, seed=3)
    assert policy.evaluate(episodes=2, seed=3) == result
    monkeypatch.setattr(sys, "argv", ["pytorchrl", "evaluate", "zoo:ppo-cartpole", "--episodes", "2", "--seed", "3"])
    main()
    assert f"mean return {result.mean_return:.2f}" in capsys.readouterr().out
    assert policy(np.zeros(4, np.float32)) == first


def test_a_policy_of_a_class_of_a_script_is_loaded_with_its_factory(tmp_path: Path) -> None:
    algorithm = OwnDQN.create_factory(start_steps=10, test_every=0)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,))
    scheme = prl.Scheme(
        algorithm, actor, prl.ReplayBuffer.create_factory(size=100), prl.VecEnv.create_factory("CartPole-v1")
    )
    learner = prl.Learner(scheme, target_steps=20, log_dir=tmp_path / "run")
    learner.run()
    learner.close()
    policy = prl.load_policy(tmp_path / "run", algo_factory=algorithm, actor_factory=actor)
    assert policy(np.zeros(4, np.float32)) in (0, 1)


def halved(progress: float) -> float:
    return 1e-3 if progress < 0.5 else 5e-4


def test_a_policy_whose_learning_rate_was_a_function_is_loaded_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rate, epsilon = prl.FunctionSchedule(halved, 0.0, 1e-3), prl.FunctionSchedule(halved, 0.0, 1.0)
    algorithm = prl.DQN.create_factory(start_steps=10, test_every=0, lr=rate, epsilon=epsilon)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,))
    scheme = prl.Scheme(
        algorithm, actor, prl.ReplayBuffer.create_factory(size=100), prl.VecEnv.create_factory("CartPole-v1")
    )
    with prl.Learner(scheme, target_steps=20, log_dir=tmp_path / "run") as learner:
        learner.run()
    assert f"prl.load_policy({str(tmp_path / 'run')!r})" in capsys.readouterr().out
    seen = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    expected = TrainedPolicy(learner.scheme.algorithm)(seen)
    policy = prl.load_policy(tmp_path / "run")
    np.testing.assert_array_equal(policy(seen), expected)
    with pytest.raises(prl.CompositionError, match="to explore, give algo_factory to load_policy"):
        policy(seen, deterministic=False)
    given = prl.load_policy(tmp_path / "run", algo_factory=algorithm)
    np.testing.assert_array_equal(given(seen), expected)


def test_resuming_a_run_whose_learning_rate_is_a_function_names_it_and_the_way_out(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return prl.Scheme(
            prl.DQN.create_factory(start_steps=10, test_every=0, lr=prl.FunctionSchedule(halved, 0.0, 1e-3)),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.ReplayBuffer.create_factory(size=100),
            prl.VecEnv.create_factory("CartPole-v1"),
        )

    with prl.Learner(scheme(), target_steps=20, log_dir=tmp_path / "run") as learner:
        learner.run()
    with pytest.raises(prl.CompositionError, match=r"lr of DQN is a FunctionSchedule of halved") as raised:
        prl.Learner.resume(tmp_path / "run", target_steps=30)
    assert "Learner.resume(log_dir, scheme=scheme)" in str(raised.value)
    assert "import the module" not in str(raised.value)
    with prl.Learner.resume(tmp_path / "run", scheme=scheme(), target_steps=30) as learner:
        learner.run()
    assert learner.scheme.steps == 30


class OwnNetwork(nn.Module):
    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.layer(observation)
        return features


class OwnBody(nn.Sequential):
    def __init__(self, input_size: int, hidden_sizes: Any) -> None:
        super().__init__(nn.Linear(input_size, *hidden_sizes), nn.SiLU())


@pytest.mark.parametrize("own", [{"feature_extractor": OwnNetwork}, {"body": OwnBody}], ids=["extractor", "body"])
def test_a_network_of_ones_own_is_given_by_the_actors_factory_which_the_error_names(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), **own)
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=10, test_every=0),
        actor,
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    with prl.Learner(scheme, target_steps=20, log_dir=tmp_path / "run") as learner:
        learner.run()
    with monkeypatch.context() as other_process:
        other_process.delitem(sys.modules, __name__)
        with pytest.raises(prl.CompositionError, match="the class or function Own") as raised:
            prl.load_policy(tmp_path / "run")
    assert any("load_policy(path, algo_factory=..., actor_factory=...)" in note for note in raised.value.__notes__)
    policy = prl.load_policy(tmp_path / "run", actor_factory=actor)
    assert policy(np.zeros(4, np.float32)) in (0, 1)


@pytest.mark.parametrize("memory", [LeakyIntegrator, FastWeights, ("lstm", LinearAfterGRU)])
def test_a_memory_of_ones_own_is_given_by_the_actors_factory_and_acts_as_in_training(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4)
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=10, mini_batch_size=4, test_every=0),
        actor,
        prl.ReplayBuffer.create_factory(size=100, sequences=prl.Sequences(4)),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    with prl.Learner(scheme, target_steps=30, log_dir=tmp_path / "run") as learner:
        learner.run()
    with monkeypatch.context() as other_process:
        other_process.delitem(sys.modules, FastWeights.__module__)
        with pytest.raises(prl.CompositionError, match=r"the class or function (LeakyI|FastW|LinearAfterGRU)"):
            prl.load_policy(tmp_path / "run")
    policy = prl.load_policy(tmp_path / "run", actor_factory=actor)
    expected = TrainedPolicy(scheme.algorithm)
    seen = np.random.default_rng(0).normal(size=(20, 3, 4)).astype(np.float32)
    actions = [policy(observations, starts=np.arange(3) == step) for step, observations in enumerate(seen)]
    wanted = [expected(observations, starts=np.arange(3) == step) for step, observations in enumerate(seen)]
    np.testing.assert_array_equal(actions, wanted)


def test_weights_of_other_networks_are_refused_before_memory_is_allocated(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    run = finished("dqn")
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    state["config"]["actor"]["hyper_parameters"]["hidden_sizes"] = [10**9, 10**9]
    torch.save(state, tmp_path / "large.pt")
    with pytest.raises(prl.CheckpointError, match=r"large\.pt does not fit its own composition: the weights"):
        prl.load_policy(tmp_path / "large.pt")


def test_a_policy_with_nan_weights_is_neither_loaded_nor_exported(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    run = finished("dqn")
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    weights = state["scheme"]["algorithm"]["actor"]
    policy = prl.load_policy(run)
    name, _ = next(policy.algorithm.actor.named_parameters())
    for wrong in (float("nan"), float("inf")):
        weights[name].view(-1)[0] = wrong
        torch.save(state, tmp_path / "diverged.pt")
        said = rf"diverged.pt is no policy to act with: its weights '{name}' hold NaN or infinity.*training diverged"
        with pytest.raises(prl.CheckpointError, match=said):
            prl.load_policy(tmp_path / "diverged.pt")
        policy.algorithm.set_weights(weights)
        with pytest.raises(ValueError, match=f"not exported to .*its weights '{name}' hold NaN or infinity"):
            policy.export(tmp_path / "policy.pt2")
    assert not (tmp_path / "policy.pt2").exists()


def test_an_observation_beyond_the_bounds_of_a_box_is_acted_on(finished: Callable[[str], Path]) -> None:
    # Environments themselves may leave their bounds, as CartPole's last observation does.
    policy = prl.load_policy(finished("dqn"))
    assert policy([1e3, 0.0, 0.0, 0.0]) in policy.action_space
