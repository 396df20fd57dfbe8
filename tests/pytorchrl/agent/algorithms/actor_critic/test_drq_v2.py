"""DrQ-v2's losses equal those of numpy loops; critics alone train the encoder; shifted images compose with storages."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import pytorchrl as prl
from storages.transition import DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import OBSERVATION_SIZE, layer_of, linear, numeric_gradient, numpy
from tests.support.comparison import assert_equal
from tests.support.soft_critics import Array, drawn, made, n_step_batch
from tests.support.training import train

LATENT, FEATURES = 4, 3


class Encoder(nn.Linear):
    """A learnt encoder of vectors, in the place of convolutions."""

    def __init__(self, space: Any) -> None:
        super().__init__(OBSERVATION_SIZE, LATENT)


def learner(**settings: Any) -> Any:
    return made(prl.DrQV2, {"feature_extractor": Encoder}, feature_size=FEATURES, **settings)


class NumpyDrQV2:
    """The losses of one batch, with the noise that the algorithm draws next; heads have one layer."""

    def __init__(self, algorithm: Any, batch: dict[str, torch.Tensor]) -> None:
        self.batch = {key: numpy(value) for key, value in batch.items()}
        draws = drawn(algorithm.generator, [lambda g: torch.empty(5, 2).normal_(generator=g)] * 2)
        deviation, clip = algorithm.current(algorithm.exploration_noise), algorithm.noise_clip
        noise2, noise = (np.clip(deviation * draw, -clip, clip) for draw in draws)
        self.encoder = linear_of(algorithm.encoder.body.features)
        self.pi_features, self.critic_features, target_features = (
            [*linear_of(module.layer), numpy(module.norm.weight), numpy(module.norm.bias)]
            for module in (algorithm.pi_features, algorithm.critic_features, algorithm.target_features)
        )
        self.policy = layer_of(algorithm.pi.head)
        self.critics = [layer_of(critic.head) for critic in algorithm.critics]
        target_critics = [layer_of(critic.head) for critic in algorithm.target_critics]
        self.taken = (self.batch["Action"] + 1) / 2  # the Box is [-3, 1]: middle -1, half range 2
        # Constants of the gradients: targets, encoded observations, and what noise and bounds add to actions.
        following = linear(self.encoder, self.batch[OBS2])
        next_action = np.clip(self.action(following) + noise2, -1, 1)
        values = self.values(target_features, target_critics, following, next_action)
        self.target = self.batch[REW] + self.batch[DISCOUNT] * np.min(values, axis=0)
        self.latent = linear(self.encoder, self.batch[OBS])
        self.added = np.clip(self.action(self.latent) + noise, -1, 1) - self.action(self.latent)

    def action(self, latent: Array) -> Any:
        return np.tanh(linear(self.policy, reduced(self.pi_features, latent)))

    def values(self, features: Sequence[Array], critics: Any, latent: Array, action: Array) -> list[Any]:
        return [linear(critic, np.hstack([reduced(features, latent), action])) for critic in critics]

    def differences(self) -> list[Any]:
        latent = linear(self.encoder, self.batch[OBS])
        return [each - self.target for each in self.values(self.critic_features, self.critics, latent, self.taken)]

    def critic_loss(self) -> float:
        return float(sum(0.5 * (self.batch[WEIGHTS] * each**2).mean() for each in self.differences()))

    def policy_loss(self) -> float:
        action = self.action(self.latent) + self.added
        return -float(np.min(self.values(self.critic_features, self.critics, self.latent, action), axis=0).mean())


def linear_of(module: Any) -> list[Array]:
    return [numpy(module.weight), numpy(module.bias)]


def reduced(features: Sequence[Array], latent: Array) -> Any:
    weight, bias, scale, shift = features
    rows = latent @ weight.T + bias
    centred = rows - rows.mean(1, keepdims=True)
    return np.tanh(centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + shift)


@pytest.mark.parametrize(
    "settings",
    [
        {"exploration_noise": 0.2},
        {"exploration_noise": 3.0, "noise_clip": 0.3},
        {"exploration_noise": 3.0, "noise_clip": 1.5, "num_critics": 3},
        {"exploration_noise": 0.0, "num_critics": 1},
    ],
    ids=str,
)
def test_losses_errors_and_gradients_equal_those_of_numpy_loops(settings: dict[str, Any]) -> None:
    algorithm, batch = learner(**settings), n_step_batch()
    by_hand = NumpyDrQV2(algorithm, batch)
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["critic_loss"], by_hand.critic_loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["policy_loss"], by_hand.policy_loss(), rtol=1e-3, atol=1e-5)
    errors = np.abs(by_hand.differences()).mean(0)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), errors, rtol=1e-4, atol=1e-6)
    of_features = ("layer.weight", "layer.bias", "norm.weight", "norm.bias")
    parts: list[tuple[str, Any, Sequence[str], Any]] = [
        ("critics.0.body.features", by_hand.encoder, ("weight", "bias"), by_hand.critic_loss),
        ("critics.1", by_hand.critic_features, of_features, by_hand.critic_loss),
        ("policy.0", by_hand.pi_features, of_features, by_hand.policy_loss),
        ("policy.1.head.layer", by_hand.policy, ("weight", "bias"), by_hand.policy_loss),
    ]
    for number, critic in enumerate(by_hand.critics):
        parts.append((f"critics.2.networks.{number}.head.layer", critic, ("weight", "bias"), by_hand.critic_loss))
    expected = {
        f"{prefix}.{name}": numeric_gradient(loss, array)
        for prefix, arrays, names, loss in parts
        for name, array in zip(names, arrays, strict=True)
    }
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        np.testing.assert_allclose(numpy(gradients[name]), gradient, rtol=2e-3, atol=1e-4, err_msg=name)


def test_the_noise_of_updates_follows_the_schedule_of_exploration() -> None:
    algorithm, batch = learner(exploration_noise=prl.LinearSchedule(1.0, 0.1, fraction=0.5)), n_step_batch()
    losses = []
    for steps, deviation in ((0, 1.0), (25, 0.55), (50, 0.1), (100, 0.1)):
        algorithm.set_progress(steps, 100)
        assert algorithm.current(algorithm.exploration_noise) == pytest.approx(deviation)
        by_hand = NumpyDrQV2(algorithm, batch)
        result = algorithm.compute_gradients(batch)[1]
        np.testing.assert_allclose(result.metrics["critic_loss"], by_hand.critic_loss(), rtol=1e-4)
        losses.append(by_hand.critic_loss())
    assert len(set(losses)) == 4
    assert algorithm.explorer_of_policy == prl.GaussianNoise(algorithm.exploration_noise)


def test_the_policys_loss_leaves_encoder_and_critics_without_gradients() -> None:
    algorithm, batch = learner(), n_step_batch()
    losses = algorithm.losses_after_step(algorithm.read(batch))
    losses.backward()
    group = algorithm.training.groups["critics"].parameters.values()
    assert all(parameter.grad is None and parameter.requires_grad for parameter in group)
    assert all(parameter.grad is not None for parameter in algorithm.training.groups["policy"].parameters.values())


def test_noisy_actions_lie_within_the_bounds_and_pass_the_gradient_at_them() -> None:
    algorithm, batch = learner(exploration_noise=50.0, noise_clip=2.0), n_step_batch()
    latent = algorithm.encoder(algorithm.read(batch).now).detach()
    action = algorithm.noisy_action(latent)
    assert action.abs().max() == 1
    assert (action.abs() == 1).float().mean() > 0.5
    parameters = list(algorithm.training.groups["policy"].parameters.values())
    found = torch.autograd.grad(action.sum(), parameters)
    plain = algorithm.policy(algorithm.read(batch).now, None)
    for ours, theirs in zip(found, torch.autograd.grad(plain.sum(), parameters), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_target_networks_are_of_the_critics_alone_and_follow_slowly() -> None:
    algorithm, batch = learner(polyak=0.9), n_step_batch()
    pairs = [(algorithm.target_features, algorithm.critic_features), (algorithm.target_critics, algorithm.critics)]
    assert len(algorithm.training.targets) == len(pairs)
    before = [[parameter.clone() for parameter in target.parameters()] for target, _ in pairs]
    algorithm.update(batch)
    for old, (target, network) in zip(before, pairs, strict=True):
        for was, now, followed in zip(old, target.parameters(), network.parameters(), strict=True):
            torch.testing.assert_close(now, 0.9 * was + 0.1 * followed)


def test_an_actor_with_a_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="DrQV2 encodes single observations; give the actor memory=None"):
        made(prl.DrQV2, {"memory": "gru"})


def test_networks_can_have_settings_of_their_own() -> None:
    sizes: Any = {"policy": {"hidden_sizes": (6,)}, "critics": {"hidden_sizes": (7, 5)}}
    sizes["encoder"] = {"feature_extractor": Encoder}
    algorithm = made(prl.DrQV2, {"hidden_sizes": (9,), "per_network": sizes}, feature_size=FEATURES)
    # Features of a policy are its input, those of a critic are joined by two numbers of an action.
    assert [layer.in_features for layer in algorithm.pi.body.hidden.layers] == [FEATURES]
    assert algorithm.pi.head.layer.in_features == 6
    assert isinstance(algorithm.encoder.body.features, Encoder)
    assert algorithm.critic_features.layer.in_features == LATENT
    assert [layer.in_features for layer in algorithm.critics[0].joint.layers] == [FEATURES + 2, 7]


def test_the_papers_networks_and_replay_have_its_sizes() -> None:
    preset = prl.DrQV2.paper()
    envs = SimpleNamespace(
        observation_space=spaces.Box(0, 255, (3, 3, 84, 84), np.uint8),
        action_space=spaces.Box(-1, 1, (6,), np.float32),
        num_envs=1,
        stacked_frames=3,
    )
    algorithm = preset["algo_factory"]("meta", preset["actor_factory"]("meta", envs), envs)
    assert algorithm.encoder.body.output_size == 32 * 35 * 35
    assert [tuple(each.shape) for each in algorithm.pi_features.parameters()] == [(50, 39200), (50,), (50,), (50,)]
    assert [layer.out_features for layer in algorithm.critics[1].joint.layers] == [1024, 1024]
    assert algorithm.encoder.body.features.convolutions[1].in_channels == 9
    storage = preset["storage_factory"].hyper_parameters
    assert storage["size"] == 1_000_000
    assert storage["n_step"] == 3
    assert storage["transforms"] == {OBS: prl.RandomShift(4, interpolate=True)}


@pytest.mark.long
def test_it_solves_pendulum_from_vectors() -> None:
    scheme = prl.Scheme(
        prl.DrQV2.create_factory(
            lr_pi=1e-3, lr_q=1e-3, gamma=0.98, start_steps=500, update_every=1, mini_batch_size=64, test_every=0
        ),
        prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64), initialisation="orthogonal"),
        prl.NStepReplayBuffer.create_factory(size=5_000, n_step=3),
        prl.VecEnv.create_factory("Pendulum-v1"),
        seed=1,
    )
    train(scheme, 5_000)
    assert scheme.evaluate(10).mean_return > -250
    scheme.close()


def pixels(storage: Any, **settings: Any) -> prl.Scheme:
    envs = prl.pixel_envs("Pendulum-v1", 2, size=36, grayscale=True, max_episode_steps=14)
    algorithm = prl.DrQV2.create_factory(start_steps=20, mini_batch_size=8, feature_size=5, test_every=0, **settings)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,), feature_extractor="nature_convolutions")
    return prl.Scheme(algorithm, actor, storage, envs, seed=1)


SHIFT = {"n_step": 3, "transforms": {OBS: prl.RandomShift(2, interpolate=True)}}


@pytest.mark.parametrize("kind", ["n steps", "priorities", "on disk", "priorities on disk"])
def test_it_learns_from_shifted_images_in_every_storage(kind: str, tmp_path: Path) -> None:
    place: dict[str, Any] = {"directory": tmp_path / "replay"} if "disk" in kind else {}
    if "priorities" in kind:
        storage: Any = prl.PERBuffer.create_factory(size=60, alpha=0.6, beta=0.4, **SHIFT, **place)
    else:
        storage = prl.NStepReplayBuffer.create_factory(size=60, **SHIFT, **place)
    scheme = pixels(storage)
    algorithm: Any = scheme.algorithm
    before = [parameter.clone() for parameter in algorithm.encoder.parameters()]
    train(scheme, 40)
    assert algorithm.updates >= 5
    for old, new in zip(before, algorithm.encoder.parameters(), strict=True):
        assert not torch.equal(old, new)
    (batch,) = scheme.storage.generate_batches(1, 16)
    assert batch[OBS].shape == (16, 3, 36, 36)
    assert batch[OBS].dtype == torch.uint8
    # Each image is stored once, at the most with the first ones of an episode repeated.
    assert scheme.storage.nbytes < 1.5 * 120 * 36 * 36
    scheme.close()


def test_a_saved_run_draws_the_same_shifts_when_it_goes_on() -> None:
    scheme, other = (pixels(prl.NStepReplayBuffer.create_factory(size=60, **SHIFT)) for _ in range(2))
    train(scheme, 40)
    other.load_state_dict(scheme.state_dict())
    for _ in range(2):
        (ours,), (theirs,) = (one.storage.generate_batches(1, 8) for one in (scheme, other))
        assert_equal(ours, theirs)
    for one in (scheme, other):
        one.close()
