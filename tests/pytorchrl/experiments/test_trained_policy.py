"""A trained policy acts in a plain gymnasium loop as in the evaluations of its run."""

import functools
import re
import resource
import signal
import subprocess
import sys
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
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from pytorchrl.experiments.recordings.demonstrations import collect_demonstrations
from pytorchrl.scheme.evaluation import evaluate
from tests.support.by_hand import envs_with, perturb
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded
from tests.support.memories import FastWeights, LeakyIntegrator, LinearAfterGRU
from tests.support.toys import Counter

RUNS: dict[str, tuple[Any, Any, Any, Any]] = {
    "dqn": (
        prl.DQN.create_factory(start_steps=50, test_every=100, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,), normalize_observations=True),
        prl.ReplayBuffer.create_factory(size=500),
        "CartPole-v1",
    ),
    "dqn with memory": (
        prl.DQN.create_factory(start_steps=50, mini_batch_size=8, test_every=100, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,), memory="lstm", memory_size=8),
        prl.ReplayBuffer.create_factory(size=500, sequences=prl.Sequences(5)),
        "CartPole-v1",
    ),
    "sac": (
        prl.SAC.create_factory(start_steps=50, mini_batch_size=8, test_every=100, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
        prl.ReplayBuffer.create_factory(size=500),
        "Pendulum-v1",
    ),
    "iqn": (
        prl.IQN.create_factory(start_steps=50, risk=prl.risk_measures.CVaR(0.25), mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
        prl.ReplayBuffer.create_factory(size=500),
        "CartPole-v1",
    ),
    "c51": (
        prl.CategoricalDQN.create_factory(start_steps=50, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
        prl.ReplayBuffer.create_factory(size=500),
        "CartPole-v1",
    ),
    "dueling iqn with a hidden layer": (
        prl.IQN.create_factory(start_steps=50, quantile_layers=(8,), mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,), dueling=True),
        prl.ReplayBuffer.create_factory(size=500),
        "CartPole-v1",
    ),
    "naf": (
        prl.NAF.create_factory(start_steps=50, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(16,)),
        prl.ReplayBuffer.create_factory(size=500),
        "Pendulum-v1",
    ),
    "ppo with memory": (
        prl.PPO.create_factory(num_mini_batch=1, test_every=100, num_test_episodes=2),
        prl.OnPolicyActor.create_factory(hidden_sizes=(16,), memory="gru", memory_size=8, normalize_observations=True),
        prl.GAEBuffer.create_factory(size=50),
        "Pendulum-v1",
    ),
}


def trained(name: str, folder: Path) -> prl.Learner:
    algorithm, actor, storage, env = RUNS[name]
    scheme = prl.Scheme(algorithm, actor, storage, prl.VecEnv.create_factory(env), seed=1)
    learner = prl.Learner(scheme, target_steps=150, log_dir=folder)
    learner.run()
    return learner


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes the folder of a finished run, once for each composition; tests only read it."""

    @functools.cache
    def make(name: str) -> Path:
        folder = tmp_path_factory.mktemp("runs") / "run"
        trained(name, folder).close()
        return folder

    return make


def returns_of(policy: TrainedPolicy, env: gym.Env[Any, Any], seeds: list[int]) -> list[float]:
    returns = []
    for seed in seeds:
        policy.reset()
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation))
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


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


def test_the_returns_of_a_loaded_policy_equal_those_of_greedy_actions(tmp_path: Path) -> None:
    learner = trained("dqn", tmp_path / "run")
    env = gym.make("CartPole-v1")
    policy = prl.load_policy(tmp_path / "run")
    returns = returns_of(policy, env, [5, 6])
    acted_by_hand = []
    for seed in (5, 6):
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            with torch.no_grad():
                values = learner.scheme.algorithm.q(learner.scheme.actor.view(torch.tensor(observation)[None])).values
            observation, reward, terminated, truncated, _ = env.step(int(values.argmax()))
            total, over = total + float(reward), terminated or truncated
        acted_by_hand.append(total)
    assert returns == acted_by_hand
    learner.close()


def test_the_best_weights_are_loaded_as_a_policy(tmp_path: Path) -> None:
    learner = trained("sac", tmp_path / "run")
    policy = prl.load_policy(tmp_path / "run" / "best_weights.pt")
    learner.use_best_weights()
    for name, weight in learner.scheme.algorithm.get_weights().items():
        assert torch.equal(weight, policy.algorithm.get_weights()[name])
    action = policy(np.zeros(3, np.float32))
    assert spaces.Box(-2, 2, (1,), np.float32).contains(action)
    learner.close()


def test_a_policy_acts_in_several_environments_and_resets_its_memory_where_episodes_begin(
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
    explored = policy(observations, deterministic=False)
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
        ({"a": np.zeros(4)}, "must have the shape|could not|float"),
        (np.array([0.0, np.nan, 0.0, 0.0]), r"the observation has nan at \(1,\); allow_nonfinite=True"),
        (np.array([[0.0] * 4, [0.0, 0.0, 0.0, -np.inf]]), r"the observation has -inf at \(1, 3\)"),
    ],
)
def test_observations_of_another_space_are_refused(
    observation: Any, message: str, finished: Callable[[str], Path]
) -> None:
    run = finished("dqn")
    policy = prl.load_policy(run)
    with pytest.raises((ValueError, TypeError), match=message):
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


class OwnNetwork(nn.Module):
    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.layer(observation)
        return features


def test_a_network_of_ones_own_is_given_by_the_actors_factory_which_the_error_names(tmp_path: Path) -> None:
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), feature_extractor=OwnNetwork)
    scheme = prl.Scheme(
        prl.DQN.create_factory(start_steps=10, test_every=0),
        actor,
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("CartPole-v1"),
    )
    with prl.Learner(scheme, target_steps=20, log_dir=tmp_path / "run") as learner:
        learner.run()
    with pytest.raises(prl.CompositionError, match="the class or function OwnNetwork") as raised:
        prl.load_policy(tmp_path / "run")
    assert any("load_policy(path, algo_factory=..., actor_factory=...)" in note for note in raised.value.__notes__)
    policy = prl.load_policy(tmp_path / "run", actor_factory=actor)
    assert policy(np.zeros(4, np.float32)) in (0, 1)


@pytest.mark.parametrize("memory", [LeakyIntegrator, FastWeights, ("lstm", LinearAfterGRU)])
def test_a_memory_of_ones_own_is_given_by_the_actors_factory_and_acts_as_in_training(
    memory: Any, tmp_path: Path
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


def exported_file(policy: TrainedPolicy, path: Path) -> Path:
    """Export a policy; skips the test if an older torch refuses with the error that names a later version."""
    try:
        return policy.export(path)
    except RuntimeError as error:
        if _HAS_OLDER_TORCH and "A later version may" in str(error):
            pytest.skip(str(error))
        raise


@pytest.mark.quick_share(0, long=0.6)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(
    "suffix", [pytest.param(".pt2", marks=pytest.mark.long), pytest.param(".onnx", marks=pytest.mark.long)]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_an_exported_policy_returns_the_same_actions(
    name: str, suffix: str, finished: Callable[[str], Path], tmp_path: Path
) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxscript", reason="onnx and onnxscript write ONNX files")
        runtime = pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files")
    run = finished(name)
    policy = prl.load_policy(run)
    path = exported_file(policy, tmp_path / f"policy{suffix}")
    size = policy.observation_space.shape
    generator = np.random.default_rng(0)
    remembers = policy.algorithm.actor.memory is not None
    states = policy.algorithm.actor.initial_memory(5)
    session = runtime.InferenceSession(str(path)) if suffix == ".onnx" else None
    exported = torch.export.load(path).module() if suffix == ".pt2" else None
    for _ in range(4):
        observations = generator.normal(size=(5, *size)).astype(np.float32)
        inputs = [torch.from_numpy(observations)] + ([states] if remembers else [])
        if session is not None:
            outputs = session.run(None, {i.name: v.numpy() for i, v in zip(session.get_inputs(), inputs, strict=True)})
        else:
            assert exported is not None
            found = exported(*inputs)
            outputs = [part.numpy() for part in (found if isinstance(found, tuple) else (found,))]
        if remembers:
            states = torch.from_numpy(np.array(outputs[1]))
        np.testing.assert_allclose(outputs[0].reshape(5, -1), policy(observations).reshape(5, -1), rtol=1e-4, atol=1e-5)
    # Classes that torch derives from the networks' during the export do not hide them from runs loaded later.
    assert type(prl.load_policy(run).algorithm) is type(policy.algorithm)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    "actions",
    [
        spaces.Discrete(3, start=5),
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([3, 2], start=[1, 5]),
        spaces.MultiDiscrete([3, 2]),
    ],
    ids=str,
)
@pytest.mark.parametrize("suffix", [".pt2", pytest.param(".onnx", marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_an_exported_policy_counts_actions_as_the_environment_does(actions: Any, suffix: str, tmp_path: Path) -> None:
    envs = envs_with(actions)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    algorithm = prl.PPO.create_factory()("cpu", actor, envs)
    perturb(actor, 1, 2.0)
    policy = TrainedPolicy(algorithm)
    path = exported_file(policy, tmp_path / f"policy{suffix}")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    observations = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    if suffix == ".onnx":
        pytest.importorskip("onnxscript", reason="onnx and onnxscript write ONNX files")
        session = pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files").InferenceSession(str(path))
        [found] = session.run(None, {session.get_inputs()[0].name: observations})
    else:
        found = torch.export.load(path).module()(torch.from_numpy(observations)).numpy()
    chosen = policy(observations)
    assert len(np.unique(chosen, axis=0)) > 1
    np.testing.assert_array_equal(found.reshape(chosen.shape), chosen)


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
@pytest.mark.parametrize("cls", [prl.BCQ, prl.BEAR, prl.QtOpt])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_an_exported_policy_that_draws_proposals_draws_some_for_any_number_of_rows(
    cls: Any, suffix: str, tmp_path: Path
) -> None:
    data = prl.from_dataset(prl.ReplayBuffer.create_factory(size=100), recorded(tmp_path / "data.npz", "Pendulum-v1"))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(16,))
    envs = prl.VecEnv.create_factory("Pendulum-v1")
    scheme = prl.Scheme(cls.create_factory(test_every=0), actor, data, test_envs_factory=envs)
    learner = prl.Learner(scheme, 2, tmp_path / "run")
    learner.run()
    learner.close()
    path = exported_file(prl.load_policy(tmp_path / "run"), tmp_path / f"policy{suffix}")
    if suffix == ".onnx":
        pytest.importorskip("onnxscript", reason="onnx and onnxscript write ONNX files")
        session = pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files").InferenceSession(str(path))
    exported = torch.export.load(path).module() if suffix == ".pt2" else None
    generator = np.random.default_rng(0)
    for rows in (1, 2, 5):
        seen = generator.normal(size=(rows, 3)).astype(np.float32)
        if exported is not None:
            drawn = [exported(torch.from_numpy(seen)).numpy() for _ in range(2)]
        else:
            drawn = [session.run(None, {session.get_inputs()[0].name: seen})[0] for _ in range(2)]
        assert drawn[0].shape == (rows, 1)
        assert np.abs(drawn[0]).max() <= 2
        # The best of BCQ's proposals often has the clipped latents that were the best before, QtOpt's is often a bound.
        assert cls is not prl.BEAR or (drawn[0] != drawn[1]).any()


def test_a_policy_is_exported_to_known_formats_only(finished: Callable[[str], Path], tmp_path: Path) -> None:
    run = finished("dqn")
    with pytest.raises(ValueError, match=r"ends in \.onnx or \.pt2, got .*policy\.h5"):
        prl.load_policy(run).export(tmp_path / "policy.h5")


def test_an_export_makes_missing_folders_and_refuses_a_folder_in_place_of_a_file(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    policy = prl.load_policy(finished("dqn"))
    assert policy.export(tmp_path / "new" / "folder" / "q.pt2").stat().st_size
    (tmp_path / "q.pt2").mkdir()
    for folder in (tmp_path, tmp_path / "q.pt2"):
        with pytest.raises(IsADirectoryError, match=f"^{folder} is a folder; name a file in it that ends in .onnx or"):
            policy.export(folder)


def test_an_export_to_a_disk_that_cannot_be_written_names_the_disk_and_not_the_version_of_torch(
    finished: Callable[[str], Path], tmp_path: Path
) -> None:
    policy = prl.load_policy(finished("dqn"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match=r"^\[Errno 27\] File too large"):
            policy.export(tmp_path / "policy.pt2")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list(tmp_path.iterdir())


def test_a_policy_that_torch_cannot_export_is_an_error_that_names_the_version(
    finished: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Constraints violated (rows)!\nMore lines.")

    monkeypatch.setattr(torch.export, "export", refuse)
    expected = rf"^torch {re.escape(torch.__version__)} cannot export this policy of DQN to .*policy\.pt2: "
    with pytest.raises(RuntimeError, match=expected + r"Constraints violated \(rows\)! A later version may"):
        prl.load_policy(finished("dqn")).export(tmp_path / "policy.pt2")
