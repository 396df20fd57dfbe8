"""RND's intrinsic rewards are the errors of its predictor, and it learns from two kinds of advantages."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ADV, DONE2, IADV, IRET, IREW, IVAL, LOGP, OBS2, RET
from tests.support.by_hand import envs_with, layer_of, linear, numeric_gradient, numpy, perturb
from tests.support.profiles import FULL
from tests.support.rollout_batches import OBSERVATION_SIZE, rollout_batch
from tests.support.toys import Counter, Noise
from tests.support.training import train


def linear_rnd(**hyper_parameters: Any) -> prl.RND:
    envs = envs_with(spaces.Discrete(3))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
        algorithm: prl.RND = prl.RND.create_factory(**{"num_features": 4} | hyper_parameters)("cpu", actor, envs)
    algorithm.seed(0)
    perturb(actor, 1, 0.3)
    return algorithm


def batch_of(algorithm: prl.RND) -> Any:
    random = torch.Generator().manual_seed(5)
    batch = rollout_batch(algorithm)
    assert {IVAL, IREW, LOGP} <= batch.keys()
    return batch | {
        OBS2: 3 * torch.randn(8, OBSERVATION_SIZE, generator=random),
        IRET: torch.randn(8, 1, generator=random),
        IADV: torch.randn(8, 1, generator=random),
    }


def test_losses_and_gradients_of_values_and_predictor_are_those_of_a_numpy_version() -> None:
    algorithm = linear_rnd(predictor_share=1.0, value_loss_coef=0.7)
    batch = batch_of(algorithm)
    algorithm.novelty.seen.add(batch[OBS2])
    algorithm.novelty.seen.use_newest()
    fields = {key: numpy(value) for key, value in batch.items()}
    seen = fields[OBS2]
    normalised = np.clip((seen - seen.mean(0)) / seen.std(0), -5, 5)
    values = {name: layer_of(getattr(algorithm, name).head) for name in ("value", "intrinsic_value")}
    layers = [
        [numpy(layer.weight), numpy(layer.bias)]
        for layer in algorithm.novelty.predictor.modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    (random_layer,) = [
        [numpy(layer.weight), numpy(layer.bias)]
        for layer in algorithm.novelty.random.modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    assert len(layers) == 3

    def loss() -> float:
        errors = [linear(values["value"], fields["Observation"]) - fields[RET]]
        errors.append(linear(values["intrinsic_value"], fields["Observation"]) - fields[IRET])
        hidden = normalised
        for layer in layers[:-1]:
            hidden = np.maximum(linear(layer, hidden), 0)
        predicted = linear(layers[-1], hidden)
        of_predictor = ((predicted - linear(random_layer, normalised)) ** 2).mean()
        return float(0.7 * 0.5 * sum((error**2).mean() for error in errors) + of_predictor)

    gradients, result = algorithm.compute_gradients(batch)
    names = [name for name in gradients if name.startswith("predictor.")]
    assert len(names) == 6
    expected = {
        "policy_and_value.1.head.layer.": values["value"],
        "policy_and_value.2.head.layer.": values["intrinsic_value"],
    }
    for prefix, layer in expected.items():
        for part, array in zip(("weight", "bias"), layer, strict=True):
            found = numpy(gradients[f"{prefix}{part}"])
            np.testing.assert_allclose(found, numeric_gradient(loss, array), rtol=1e-3, atol=1e-5)
    for name, array in zip(names, [part for layer in layers for part in layer], strict=True):
        np.testing.assert_allclose(numpy(gradients[name]), numeric_gradient(loss, array), rtol=1e-3, atol=1e-5)
    total = 0.7 * float(result.metrics["value_loss"]) + float(result.metrics["predictor_loss"])
    assert total == pytest.approx(loss(), rel=1e-4)


def test_the_predictor_learns_from_a_random_share_of_the_transitions() -> None:
    algorithm, all_of_them = linear_rnd(predictor_share=0.25), linear_rnd(predictor_share=1.0)
    all_of_them.set_weights(algorithm.get_weights())
    batch = batch_of(algorithm)
    expected = float(all_of_them.compute_gradients(batch)[1].metrics["predictor_loss"])
    found = [float(algorithm.compute_gradients(batch)[1].metrics["predictor_loss"]) for _ in range(400)]
    assert np.std(found) > 0
    assert np.mean(found) == pytest.approx(expected, abs=4 * np.std(found) / 20)


def test_the_random_network_is_not_trained_and_the_predictor_learns_its_output() -> None:
    algorithm = linear_rnd(predictor_share=1.0, lr_predictor=1e-2)
    batch = batch_of(algorithm)
    before = [parameter.clone() for parameter in algorithm.novelty.random.parameters()]
    losses = [float(algorithm.update(batch).metrics["predictor_loss"]) for _ in range(200)]
    assert losses[-1] < 0.5 * losses[0]
    assert all(torch.equal(old, new) for old, new in zip(before, algorithm.novelty.random.parameters(), strict=True))


# Rollouts


def scheme_of(env: Any = Noise, memory: Any = None, actor: Any = None, **hyper_parameters: Any) -> prl.Scheme:
    short = {"num_features": 5, "num_mini_batch": 2, "num_epochs": 1, "test_every": 0}
    return prl.Scheme(
        prl.RND.create_factory(**short | hyper_parameters),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,), memory=memory, memory_size=3, **actor or {}),
        prl.GAEBuffer.create_factory(size=16, sequence_length=4 if memory else None),
        prl.VecEnv.create_factory(env, 2),
    )


def errors_of(algorithm: Any, data: Any, seen: Any) -> Any:
    """(T, E): errors of the predictor, for observations that numpy normalises by all observations so far."""
    shift, scale = seen.mean(0), seen.std(0)
    normalised = torch.from_numpy(np.clip((numpy(data[OBS2]) - shift) / scale, -5, 5)).float()
    outputs = []
    for network in (algorithm.novelty.predictor, algorithm.novelty.random):
        body = network.body
        outputs.append(network.head(body.hidden(body.features(normalised.flatten(0, 1)))))
    return numpy((outputs[0] - outputs[1]).square().mean(1)).reshape(data[OBS2].shape[:2])


@pytest.mark.parametrize("memory", [None, "gru"])
def test_intrinsic_rewards_are_errors_divided_by_the_deviation_of_their_sums(memory: Any) -> None:
    scheme = scheme_of(memory=memory, intrinsic_gamma=0.8, lr_predictor=0.01)
    algorithm, storage = scheme.algorithm, scheme.storage
    seen, sums, running = np.zeros((0, 3)), [], np.zeros(2)
    for _ in range(3):
        scheme.collect(10**6)
        assert not storage.get_all_buffer_data()[IREW].any()
        data = storage.get_all_buffer_data()
        seen = np.concatenate([seen, numpy(data[OBS2]).reshape(-1, 3)])
        errors = errors_of(algorithm, data, seen)
        for error in errors:
            running = 0.8 * running + error
            sums.append(running)
        phase = scheme.algorithm.update_phase(scheme.sources)
        metrics = next(phase)
        paid = storage.get_all_buffer_data()[IREW]
        np.testing.assert_allclose(paid[..., 0], errors / np.std(sums), rtol=1e-3)
        assert float(metrics["intrinsic_reward"]) == pytest.approx(float(paid.mean()), rel=1e-5)
        list(phase)
        storage.reset()


@pytest.mark.parametrize("normalize", [True, False, "rollout"])
def test_the_advantage_is_the_weighted_sum_of_extrinsic_and_intrinsic_advantages(normalize: Any) -> None:
    scheme = scheme_of(normalize_advantages=normalize, extrinsic_coef=0.5, intrinsic_coef=3.0)
    scheme.collect(10**6)
    storage, algorithm = scheme.storage, scheme.algorithm
    storage.before_gradients()
    before = storage.get_all_buffer_data()
    expected = (0.5 * before[ADV] + 3.0 * before[IADV]).flatten()
    batches = list(algorithm.batches(storage))
    found = torch.cat([algorithm.advantages(algorithm.read(batch)) for batch in batches]).flatten()
    if normalize == "rollout":
        expected = (expected - expected.mean()) / expected.std()
    if normalize is True:
        assert all(
            float(algorithm.advantages(algorithm.read(batch)).std()) == pytest.approx(1, abs=1e-4) for batch in batches
        )
    else:
        torch.testing.assert_close(found.sort().values, expected.sort().values)


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    "kind", ["vector", "discrete", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("image", "dict"))]
)
def test_new_observations_have_larger_prediction_errors(kind: str) -> None:
    def env() -> gym.Env[Any, Any]:
        return Counter(kind, length=40)

    scheme = scheme_of(env, lr_predictor=3e-3, predictor_share=1.0, num_epochs=8)
    train(scheme, 600)
    algorithm = scheme.algorithm
    batches = [_transitions_to(scheme, kind, counts) for counts in (range(5, 35), range(200, 230))]
    with torch.no_grad():
        known, new = (algorithm.novelty.errors(algorithm.read(batch)) for batch in batches)
    assert float(new.mean()) > 1.5 * float(known.mean())


def _transitions_to(scheme: prl.Scheme, kind: str, counts: Any) -> Any:
    """Transitions to the observations of some counts."""
    env = Counter(kind)
    seen = []
    for count in counts:
        env.count = count
        seen.append(env._observation())
    if kind == "dict":
        obs: Any = {key: torch.from_numpy(np.stack([one[key] for one in seen])) for key in seen[0]}
    else:
        obs = torch.from_numpy(np.stack([np.atleast_1d(one) for one in seen]))
    return {OBS2: obs, "Observation": obs, "Reward": torch.zeros(len(seen), 1)}


@pytest.mark.parametrize("extra", [{"noisy": True}, {"dropout": 0.5}, {"shared_body": True}])
def test_the_random_network_is_deterministic_and_shares_no_parameters(extra: Any) -> None:
    algorithm = scheme_of(actor=extra).algorithm
    rows = algorithm.read({OBS2: torch.randn(6, 3), "Observation": torch.randn(6, 3), "Reward": torch.zeros(6, 1)})
    assert torch.equal(algorithm.novelty.random(rows.next), algorithm.novelty.random(rows.next))
    ours = {id(parameter) for parameter in algorithm.novelty.random.parameters()}
    assert not any(id(parameter) in ours for parameter in algorithm.pi.parameters())


def test_a_storage_without_intrinsic_returns_is_refused() -> None:
    parts = prl.RND.create_factory(), prl.OnPolicyActor.create_factory()
    with pytest.raises(prl.CompositionError, match="RND gives intrinsic rewards, for which VTraceBuffer computes no"):
        prl.Scheme(*parts, prl.VTraceBuffer.create_factory(size=8), prl.VecEnv.create_factory(Noise))


def test_intrinsic_returns_can_end_with_episodes() -> None:
    returns = {}
    for ends in (False, True):
        scheme = scheme_of(intrinsic_returns_end=ends)
        scheme.collect(10**6)
        scheme.storage.insert_single_tensor_slice(IREW, torch.ones(16, 2, 1))
        scheme.storage.before_gradients()
        returns[ends] = scheme.storage.get_all_buffer_data()
    ended = returns[True][DONE2] == 1
    assert ended.any()
    torch.testing.assert_close(returns[True][IADV][ended], 1 - returns[True][IVAL][ended])
    assert not torch.allclose(returns[False][IADV][ended], returns[True][IADV][ended])


@FULL
@pytest.mark.long
def test_it_reaches_the_goal_in_more_runs_than_ppo_with_the_same_number_of_steps() -> None:
    reached = {cls: sum(_reaches_the_goal(cls, seed) for seed in (1, 2, 3)) for cls in (prl.RND, prl.PPO)}
    assert reached[prl.RND] >= 2
    assert reached[prl.RND] > reached[prl.PPO]


def _reaches_the_goal(cls: Any, seed: int) -> bool:
    # Normalised advantages would be large noise as long as there are no rewards, by which PPO reaches the goal, too.
    scheme = prl.Scheme(
        cls.create_factory(lr=1e-3, normalize_advantages=False, test_every=0),
        prl.OnPolicyActor.create_factory(normalize_observations=True),
        prl.GAEBuffer.create_factory(size=128),
        prl.VecEnv.create_factory("MountainCar-v0", num_envs=8, wrappers=["TerminalReward"]),
        seed=seed,
    )
    train(scheme, 60_000)
    mean_return = scheme.evaluate(10).mean_return
    scheme.close()
    # An episode that does not reach the goal lasts 200 steps, each with a reward of -1.
    return mean_return > -190


def test_steps_that_environments_skip_are_neither_counted_nor_rewarded() -> None:
    scheme = prl.Scheme(
        prl.RND.create_factory(num_features=5, num_mini_batch=1, num_epochs=1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,)),
        prl.GAEBuffer.create_factory(size=60),
        prl.VecEnv.create_factory("CartPole-v1", 3, vectorization_mode="vector_entry_point"),
        seed=1,
    )
    scheme.collect(10**6)
    algorithm: Any = scheme.algorithm
    rewards = algorithm._intrinsic_rewards(scheme.storage)
    skipped = torch.from_numpy(scheme.storage.ring.skipped())[..., None]
    assert skipped.any()
    assert (rewards[skipped] == 0).all()
    assert (rewards[~skipped] > 0).all()
    assert algorithm.novelty.seen.parts[0].count == scheme.steps == int((~skipped).sum())
    # The running sums of errors, and with them the scale, are those of the steps that were made.
    assert algorithm.novelty._scale.count == scheme.steps
    scheme.close()
