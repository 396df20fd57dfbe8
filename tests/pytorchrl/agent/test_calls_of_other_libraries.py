"""Calls as in stable-baselines3, RLlib and Tianshou: the error says what to write here."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import pytorchrl as prl


class PeersVectorEnv:
    """A vector environment that is none of gymnasium's, as those of stable-baselines3 are."""

    num_envs = 3

    def reset(self) -> None: ...

    def step(self, actions: Any) -> None: ...


def made_vector() -> gym.vector.VectorEnv[Any, Any, Any]:
    return gym.vector.SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)


def vector_with_a_spec() -> gym.vector.VectorEnv[Any, Any, Any]:
    return gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")


def parts() -> dict[str, Any]:
    return {
        "algo_factory": prl.DQN.create_factory(start_steps=10),
        "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        "storage_factory": prl.ReplayBuffer.create_factory(size=100),
        "train_envs_factory": prl.VecEnv.create_factory("CartPole-v1"),
    }


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: prl.PPO("MlpPolicy", gym.make("CartPole-v1")), TypeError, 'prl.compose("PPO", "CartPole-v1")'),  # type: ignore[arg-type, call-arg]
        (lambda: prl.PPO.create_factory("MlpPolicy", "CartPole-v1"), TypeError, "prl.compose(prl.PPO.create_factory("),  # type: ignore[call-arg, arg-type]
        (lambda: prl.PPO.create_factory().learn(total_timesteps=10), AttributeError, "prl.Learner("),  # type: ignore[attr-defined]
        (lambda: prl.PPO.create_factory().environment("CartPole-v1"), AttributeError, "train_envs_factory="),  # type: ignore[attr-defined]
        (lambda: prl.PPO.create_factory().training(lr=1e-3), AttributeError, "arguments of create_factory"),  # type: ignore[attr-defined]
        (lambda: prl.PPO.create_factory(lr=lambda p: 1e-3 * p), ValueError, "LinearSchedule(initial, final)"),  # type: ignore[arg-type, return-value]
        (lambda: prl.VecEnv.create_factory(made_vector()), ValueError, "create_factory(make_env, num_envs=2)"),  # type: ignore[arg-type]
        (lambda: prl.VecEnv.create_factory(vector_with_a_spec()), ValueError, "'CartPole-v1', num_envs=2"),  # type: ignore[arg-type]
        (lambda: prl.VecEnv.create_factory(PeersVectorEnv()), ValueError, "num_envs=3"),  # type: ignore[arg-type]
        (lambda: prl.VecEnv.create_factory([made_vector] * 4), ValueError, "num_envs=4"),  # type: ignore[arg-type]
        (lambda: prl.VecEnv.create_factory(made_vector)(), ValueError, "it has to make one environment"),  # type: ignore[arg-type]
        (lambda: prl.Scheme(**parts() | {"algo_factory": prl.DQN}), ValueError, "write prl.DQN.create_factory()"),
        (lambda: prl.Scheme(**parts() | {"train_envs_factory": "Acrobot-v1"}), ValueError, "'Acrobot-v1', num_envs"),
        (lambda: prl.Scheme(**parts() | {"train_envs_factory": gym.make("Acrobot-v1")}), ValueError, "'Acrobot-v1'"),
    ],
)  # fmt: skip
def test_a_call_of_another_library_is_refused_with_what_to_write(
    call: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)


@pytest.fixture(scope="module")
def scheme() -> prl.Scheme:
    return prl.Scheme(**parts())


@pytest.mark.parametrize(
    ("of", "name", "text"),
    [
        ("learner", "learn", "run() trains up to target_steps"),
        ("learner", "predict", "prl.load_policy(log_dir)"),
        ("learner", "save", "save_policy(path)"),
        ("algorithm", "learn", "prl.Learner("),
        ("algorithm", "predict", "prl.load_policy(log_dir)"),
        ("storage", "sample", "generate_batches(num_mini_batch, mini_batch_size)"),
        ("storage", "add", "insert_transition(sample)"),
    ],
)
def test_a_method_of_another_library_is_refused_with_what_to_write(
    of: str, name: str, text: str, scheme: prl.Scheme, tmp_path: Path
) -> None:
    owners = {"algorithm": scheme.algorithm, "storage": scheme.storage}
    owner = prl.Learner(scheme, 10, tmp_path / "run") if of == "learner" else owners[of]
    with pytest.raises(AttributeError) as raised:
        getattr(owner, name)
    assert text in str(raised.value)
    assert not hasattr(owner, "no_method_of_any_library")


@pytest.mark.parametrize("read", [lambda ring: ring[0], lambda ring: ring["Observation"], list])
def test_a_storage_that_is_indexed_names_its_methods(read: Callable[[Any], object], scheme: prl.Scheme) -> None:
    with pytest.raises(TypeError, match=r"get_data_slice\(start, end\)"):
        read(scheme.storage)


@pytest.mark.parametrize("output", [np.zeros((1, 2), np.float32), torch.zeros(1, 2)])
def test_an_array_or_a_tensor_in_place_of_an_output_names_outputs(output: Any) -> None:
    with pytest.raises(TypeError, match=r"prl.outputs: ScalarValues\(values\)"):
        prl.EpsilonGreedy(0.1).check_output(output)


class BrokenAlgorithm(prl.DQN):
    @property
    def share(self) -> float:
        return self.misspelt  # type: ignore[no-any-return,attr-defined]


class BrokenBuffer(prl.ReplayBuffer):
    @property
    def share(self) -> float:
        return self.misspelt  # type: ignore[no-any-return,attr-defined]


def test_a_mistake_in_a_property_is_named_and_not_the_property() -> None:
    scheme = prl.Scheme(
        **parts()
        | {
            "algo_factory": BrokenAlgorithm.create_factory(start_steps=10),
            "storage_factory": BrokenBuffer.create_factory(size=100),
        }
    )
    for part in (scheme.algorithm, scheme.storage):
        with pytest.raises(AttributeError, match="no attribute 'misspelt'"):
            _ = part.share


def test_a_factory_is_copied_and_pickled_although_it_answers_to_unknown_names() -> None:
    factory = prl.PPO.create_factory(lr=1e-3)
    assert copy.deepcopy(factory) == pickle.loads(pickle.dumps(factory)) == factory


@pytest.fixture(scope="module")
def policy() -> Any:
    return prl.load_policy("zoo:ppo-cartpole")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda policy: policy(np.zeros(4), state=None), "'state'; here it is no argument: the policy keeps its"),
        (lambda policy: policy(np.zeros(4), episode_start=[True]), "'episode_start'; here it is starts, (E,) booleans"),
        (lambda policy: policy(np.zeros(4), action_masks=[1, 1]), "the part of the observation that action_mask"),
        (lambda policy: policy(np.zeros(4), None), "write action = policy(observation)"),
        (lambda policy: policy.evaluate(n_eval_episodes=5), "TrainedPolicy.evaluate: unknown argument 'n_eval_epis"),
        (lambda policy: policy.evaluate(n_eval_episodes=5), "here it is episodes"),
        (lambda _: prl.load_policy("zoo:ppo-cartpole", env="CartPole-v1"), "policy.evaluate(env) runs episodes in"),  # type: ignore[call-arg]
    ],
)
def test_arguments_of_other_libraries_policies_are_answered_with_ours(
    call: Callable[[Any], object], text: str, policy: Any
) -> None:
    with pytest.raises(TypeError) as raised:
        call(policy)
    assert text in str(raised.value)


def test_parameters_of_a_policy_are_answered_with_its_weights(policy: Any) -> None:
    with pytest.raises(AttributeError, match=r"policy\.algorithm\.get_weights\(\)"):
        policy.get_parameters()


def test_an_error_in_a_call_that_fits_is_not_taken_for_one_of_its_arguments() -> None:
    policy = prl.load_policy("zoo:ppo-cartpole")
    with pytest.raises(TypeError) as raised:
        policy.evaluate(lambda: 1 + "1", episodes=1)  # type: ignore[operator]
    assert "unsupported operand" in str(raised.value)


def test_an_evaluation_that_is_unpacked_names_the_mean_and_the_deviation() -> None:
    result = prl.Evaluation((1.0, 3.0), (2, 2))
    with pytest.raises(TypeError, match=r'mean_return is the mean, evaluation\.metrics\["test/return_std"\]'):
        _, _ = result  # type: ignore[misc]
    assert (result.mean_return, result.metrics["test/return_std"]) == (2.0, 1.0)
