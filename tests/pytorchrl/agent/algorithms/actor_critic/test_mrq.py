"""MR.Q's targets and losses equal those computed by hand; encoders learn in phases; it solves Pendulum."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

import pytorchrl as prl
from storages.transition import DISCOUNT, DONE, DONE2, ERRORS, MASK, OBS, OBS2, REW, TRUNC2, WEIGHTS, Batch
from tests.support.by_hand import envs_with, perturb
from tests.support.training import train

SPACE = gym.spaces.Box(-1, 1, (2,), np.float32)
HORIZON = 4


class Ending(gym.Env[Any, Any]):
    """Random observations and rewards; episodes end after 3 to 6 steps, by a termination or a truncation."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = SPACE

    def __init__(self, terminates: bool = True) -> None:
        self.terminates = terminates

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 7))
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        ends, terminates = self.left == 0, self.terminates and bool(self.np_random.integers(2))
        return self._seen(), float(5 * self.np_random.normal()), ends and terminates, ends and not terminates, {}

    def _seen(self) -> Any:
        return self.np_random.normal(size=3).astype(np.float32)


def scheme_of(window: Any, terminates: bool = True, storage: Any = prl.PERBuffer, **settings: Any) -> prl.Scheme:
    sizes: dict[str, Any] = {"action_features": 4, "num_bins": 9, "largest_bin": 3.0, "optimizer": prl.Adam()}
    settings = {"start_steps": 60, "mini_batch_size": 32, "test_every": 0, "target_update_interval": 3} | settings
    replay: dict[str, Any] = {"alpha": 0.4, "beta": 0.4} if storage is prl.PERBuffer else {}
    return prl.Scheme(
        prl.MRQ.create_factory(**sizes | settings),
        prl.OffPolicyActor.create_factory(hidden_sizes=(6, 5), activation="elu"),
        storage.create_factory(size=100, sequences=window, **replay),
        prl.VecEnv.create_factory(Ending, env_kwargs={"terminates": terminates}),
        seed=1,
    )


def learnt(window: Any, updates: int = 4, **settings: Any) -> tuple[Any, Batch]:
    """An algorithm after some updates, whose networks all differ from their targets, and a batch."""
    scheme = scheme_of(window, **settings)
    train(scheme, 60 + updates)
    algorithm, batch = scheme.algorithm, next(iter(scheme.storage.generate_batches(1, 32)))
    scheme.close()
    perturb(algorithm.actor, 3, 0.1)
    return algorithm, batch


WINDOWS = {
    "transitions": None,
    "sequences": prl.Sequences(HORIZON),
    "sequences across episodes": prl.Sequences(HORIZON, across_episodes=True),
    "episodes": prl.Episodes(),
    "packed episodes": prl.Episodes(packed=True),
}


def paths_of(batch: Batch) -> list[list[dict[str, Tensor]]]:
    """The steps of each row of a batch, up to the end of the first episode in it."""
    fields = [OBS, OBS2, REW, DONE, DONE2, TRUNC2, DISCOUNT, "Action"]
    if "BatchSizes" in batch:
        sizes = [int(size) for size in batch["BatchSizes"]]
        found: list[list[dict[str, Tensor]]] = [[] for _ in range(sizes[0])]
        rows = iter(range(sum(sizes)))
        for size in sizes:
            for path in range(size):
                row = next(rows)
                found[path].append({name: batch[name][row] for name in fields})
        return found
    if batch[REW].ndim == 2:
        return [[{name: batch[name][row] for name in fields}] for row in range(len(batch[REW]))]
    steps, number, _ = batch[REW].shape
    found = []
    for path in range(number):
        found.append([])
        for step in range(steps):
            if not bool(batch.get(MASK, torch.ones(batch[REW].shape))[step, path]) or (
                step and batch[DONE][step, path]
            ):
                break
            found[-1].append({name: batch[name][step, path] for name in fields})
    return found


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("window", WINDOWS)
def test_targets_sum_up_rewards_until_the_horizon_or_the_episodes_end(window: str, horizon: int) -> None:
    algorithm, batch = learnt(WINDOWS[window], value_horizon=horizon, target_noise=0.0, least_error=1.5)
    algorithm.model.reward_scale.fill_(2.0)
    algorithm.target_model.reward_scale.fill_(3.0)
    paths, losses, errors = paths_of(batch), [], []
    weights = batch.get(WEIGHTS, torch.ones(len(paths), 1))
    if "BatchSizes" in batch:
        weights = weights[batch["Episode"][: len(paths), 0]]
    assert len({len(path) for path in paths}) > 1 or window == "transitions"
    for parameter in algorithm.actor.parameters():
        parameter.requires_grad_(False)
    for path, weight in zip(paths, weights, strict=True):
        used = path[:horizon]
        reward = sum(algorithm.gamma**k * float(step[REW]) for k, step in enumerate(used))
        following = algorithm.target_encoder(algorithm.actor.view(used[-1][OBS2][None]))
        features = algorithm.target_model(following, algorithm.target_pi(following).tanh())
        value = min(float(critic(features)) for critic in algorithm.target_critics)
        discount = 0.0 if used[-1][DONE2] else algorithm.gamma ** len(used)
        target = (reward + discount * 3.0 * value) / 2.0
        latent = algorithm.encoder(algorithm.actor.view(path[0][OBS][None]))
        features = algorithm.model(latent, path[0]["Action"][None])
        differences = [abs(float(critic(features)) - target) for critic in algorithm.critics]
        huber = [0.5 * each**2 if each < 1 else each - 0.5 for each in differences]
        losses.append(float(weight) * sum(huber) / len(huber))
        errors.append(max(1.5, *differences))
    found = algorithm.losses(algorithm.read(batch))
    assert found.metrics["critic_loss"].item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)
    assert found.errors.shape == batch[REW].shape
    of_first = found.errors if batch[REW].ndim == 2 else found.errors[0]
    np.testing.assert_allclose(of_first[: len(paths), 0], errors, rtol=1e-4)
    assert min(errors) == pytest.approx(1.5), "the least error is that of some rows"


@pytest.mark.parametrize("window", WINDOWS)
def test_encoders_learn_to_predict_until_the_horizon_or_the_episodes_end(
    window: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, batch = learnt(WINDOWS[window], model_horizon=3)
    algorithm.dynamics_weight, algorithm.reward_weight, algorithm.termination_weight = 0.7, 0.2, 0.3
    bins = [math.copysign(math.expm1(abs(x)), x) for x in np.linspace(-3, 3, 9)]
    loss = torch.zeros(())
    paths = paths_of(batch)
    for path in paths:
        latent = algorithm.encoder(algorithm.actor.view(path[0][OBS][None]))
        for step in path[:3]:
            features = algorithm.model(latent, step["Action"][None])
            numbers = algorithm.model.predictions(features)[0]
            latent = numbers[None, 1:6]
            target = algorithm.target_encoder(algorithm.actor.view(step[OBS2][None])).detach()
            logarithms = numbers[6:].log_softmax(0)
            reward = min(max(float(step[REW]), bins[0]), bins[-1])
            above = next(place for place in range(1, 9) if bins[place] >= reward)
            share = (reward - bins[above - 1]) / (bins[above] - bins[above - 1])
            loss = loss + 0.7 * (latent - target).square().mean()
            loss = loss - 0.2 * ((1 - share) * logarithms[above - 1] + share * logarithms[above])
            loss = loss + 0.3 * (numbers[0] - step[DONE2][0]).square()
    parameters = [*algorithm.encoder.parameters(), *algorithm.model.parameters()]
    expected = torch.autograd.grad(loss / len(paths), parameters)
    found: list[Any] = []
    monkeypatch.setattr(algorithm, "minimise", found.append)
    algorithm.update_encoder(algorithm.read(batch))
    ((group, ours),) = found[0].of.items()
    assert group is algorithm.train_encoder
    assert ours.item() == pytest.approx(float(loss.detach()) / len(paths), rel=1e-4)
    for one, other in zip(torch.autograd.grad(ours, parameters), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_terminations_count_once_there_was_one() -> None:
    algorithm, batch = learnt(WINDOWS["sequences"], terminates=False)
    assert not algorithm.model.has_ended
    weight = algorithm.model.predictions.weight
    before = weight[0].clone()
    algorithm.update_encoder(algorithm.read(batch))
    assert torch.equal(weight[0], before)
    batch[DONE2][0, 0] = 1.0
    algorithm.update_encoder(algorithm.read(batch))
    assert algorithm.model.has_ended
    assert not torch.equal(weight[0], before)


def test_the_policy_maximises_the_mean_of_the_critics_and_leaves_them_as_they_are() -> None:
    algorithm, batch = learnt(WINDOWS["sequences"], preactivation_weight=0.5)
    rows = algorithm.read(batch)
    latent = algorithm.encoder(algorithm.actor.view(batch[OBS][0])).detach()
    output = algorithm.pi(latent)
    values = [critic(algorithm.model(latent, output.tanh())) for critic in algorithm.critics]
    expected = 0.5 * output.square().mean() - torch.stack(values).mean()
    losses = algorithm.losses_after_step(rows)
    ((group, loss),) = losses.of.items()
    torch.testing.assert_close(loss, expected)
    kept = [*algorithm.model.parameters(), *algorithm.critics.parameters(), *algorithm.encoder.parameters()]
    for parameter in kept:
        parameter.grad = None
    losses.backward()
    assert all(parameter.grad is None for parameter in kept)
    assert all(parameter.grad.abs().max() > 0 for parameter in group.parameters.values())


def test_encoders_learn_in_phases_as_long_as_the_targets_interval_and_rewards_are_scaled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheme = scheme_of(WINDOWS["sequences"])
    algorithm: Any = scheme.algorithm
    calls: list[Any] = []
    update_encoder, update = algorithm.update_encoder, algorithm.update
    monkeypatch.setattr(
        algorithm,
        "update_encoder",
        lambda rows: calls.append(rows.mean(rows.reward.abs()).item()) or update_encoder(rows),
    )
    monkeypatch.setattr(
        algorithm, "update", lambda batch: calls.append(algorithm.model.reward_scale.item()) or update(batch)
    )
    train(scheme, 60 + 7)
    assert len(calls) == 3 + 3 + 3 + 3 + 3 + 1
    for phase in range(3):
        begun = 6 * phase
        assert calls[begun + 3] == pytest.approx(sum(calls[begun : begun + 3]) / 3)
    assert algorithm.target_model.reward_scale.item() == pytest.approx(calls[9])
    assert algorithm.model.reward_scale.item() == pytest.approx(calls[15])
    scheme.close()


def test_target_networks_are_copies_after_each_interval() -> None:
    scheme = scheme_of(WINDOWS["sequences"])
    algorithm: Any = scheme.algorithm
    train(scheme, 60 + 6)
    pairs = [(algorithm.encoder, algorithm.target_encoder), (algorithm.critics, algorithm.target_critics)]
    for network, target in pairs:
        assert all(torch.equal(*both) for both in zip(network.parameters(), target.parameters(), strict=True))
    train(scheme, 60 + 7)
    for network, target in pairs:
        assert not all(torch.equal(*both) for both in zip(network.parameters(), target.parameters(), strict=True))
    scheme.close()


def test_priorities_follow_errors_but_not_below_the_least_one() -> None:
    scheme = scheme_of(WINDOWS["sequences"], least_error=1e6)
    train(scheme, 60 + 5)
    (batch,) = scheme.storage.generate_batches(1, 32)
    result = scheme.algorithm.update(batch)
    assert (result.info[ERRORS] == 1e6).all()
    scheme.close()


def test_an_actor_with_a_memory_is_refused() -> None:
    envs = envs_with(SPACE)
    actor = prl.OffPolicyActor.create_factory(memory="gru")("cpu", envs)
    with pytest.raises(ValueError, match="MRQ encodes single observations; give the actor memory=None"):
        prl.MRQ.create_factory()("cpu", actor, envs)


def test_the_papers_networks_have_its_sizes() -> None:
    preset = prl.MRQ.paper(capacity=1_000)
    scheme = prl.Scheme(**preset, train_envs_factory=prl.VecEnv.create_factory(Ending))
    algorithm: Any = scheme.algorithm

    def linear(network: Any) -> list[tuple[int, int]]:
        return [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, torch.nn.Linear)]

    assert linear(algorithm.encoder) == [(3, 512), (512, 512), (512, 512)]
    model = [(2, 256), (768, 512), (512, 512), (512, 512), (512, 1 + 512 + 65)]
    assert linear(algorithm.model) == model
    assert linear(algorithm.pi) == [(512, 512), (512, 512), (512, 2)]
    assert linear(algorithm.critics) == 2 * [(512, 512), (512, 512), (512, 512), (512, 1)]
    scheme.close()


@pytest.mark.long
def test_it_solves_pendulum() -> None:
    scheme = prl.Scheme(
        prl.MRQ.create_factory(start_steps=1_000, mini_batch_size=64, gamma=0.98, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64), activation="elu", layer_norm=True),
        prl.PERBuffer.create_factory(size=5_000, alpha=0.4, beta=0.0, sequences=prl.Sequences(5)),
        prl.VecEnv.create_factory("Pendulum-v1"),
        seed=1,
    )
    train(scheme, 5_000)
    assert scheme.evaluate(10).mean_return > -250
    scheme.close()
