"""SPR's losses equal those computed by hand, targets have no gradients, and BBF acts by its target network."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from pytorchrl.agent.algorithms.resetting import reset_networks
from pytorchrl.agent.algorithms.value_based.spr import TransitionModel, in_unit_range
from storages.transition import ACT, DISCOUNT, DONE, ERRORS, MASK, OBS, OBS2, REW, WEIGHTS, Batch
from tests.support.by_hand import envs_with, exploring, numpy, perturb
from tests.support.toys import RandomEnds
from tests.support.training import train

ACTIONS, ATOMS, HORIZON, ROWS = 3, 5, 3, 4
SMALL = {"num_atoms": ATOMS, "v_min": -2.0, "v_max": 2.0, "explorer": prl.EpsilonGreedy(0.1), "horizon": HORIZON}
Values = NDArray[np.float64]


class Images(gym.Env[Any, Any]):
    """Random images of 6 x 6 pixels; episodes end after 2 to 5 steps."""

    observation_space = spaces.Box(0, 255, (6, 6, 2), np.uint8)
    action_space = spaces.Discrete(ACTIONS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 6))
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return self._seen(), float(self.np_random.normal()), self.left == 0, False, {}

    def _seen(self) -> Any:
        return self.np_random.integers(0, 256, (6, 6, 2), np.uint8)


def made(cls: Any = prl.SPR, observations: Any = None, actor: dict[str, Any] | None = None, **settings: Any) -> Any:
    envs = envs_with(spaces.Discrete(ACTIONS))
    if observations is not None:
        envs.observation_space = observations
    torch.manual_seed(0)
    network: dict[str, Any] = {"hidden_sizes": (6,), "dueling": True, "dueling_size": 4} | (actor or {})
    algorithm = cls.create_factory(**SMALL | settings)(
        "cpu", prl.OffPolicyActor.create_factory(**network)("cpu", envs), envs
    )
    algorithm.seed(0)
    perturb(algorithm.actor, 3, 0.3)
    return algorithm


def batch_of(ends: list[int], seed: int = 0, steps: int = HORIZON + 1) -> Batch:
    """A batch of sequences, each of which ends after a number of steps and is padded from there."""
    generator = np.random.default_rng(seed)
    shape = (steps, len(ends), 1)
    mask = (np.arange(steps)[:, None, None] < np.array(ends)[None, :, None]).astype(np.float32)
    fields = {
        OBS: generator.normal(size=(*shape[:2], 3)).astype(np.float32),
        OBS2: generator.normal(size=(*shape[:2], 3)).astype(np.float32),
        ACT: generator.integers(0, ACTIONS, shape),
        REW: generator.normal(size=shape).astype(np.float32),
        DISCOUNT: generator.choice([0.0, 0.73, 0.9], shape).astype(np.float32),
        DONE: np.zeros(shape, np.float32),
        MASK: mask,
        WEIGHTS: generator.uniform(0.5, 1.5, (len(ends), 1)).astype(np.float32),
    }
    return {key: torch.from_numpy(value.copy()) for key, value in fields.items()}


def affine(layer: Any, features: Values) -> Values:
    return numpy(layer.weight) @ features + numpy(layer.bias)


def rescaled(features: Values) -> Values:
    return (features - features.min()) / (features.max() - features.min() + 1e-5)


def relu(features: Values) -> Values:
    return np.maximum(features, 0)


def representation(network: Any, obs: Any) -> Values:
    return rescaled(relu(affine(network.body.hidden.layers[0], np.asarray(obs, np.float64))))


def projected(network: Any, latent: Values) -> Values:
    streams = network.head.values.numbers
    return relu(np.concatenate([affine(streams.value_hidden, latent), affine(streams.advantage_hidden, latent)]))


def distributions(network: Any, latent: Values) -> Values:
    """Probabilities (actions, atoms)."""
    streams = network.head.values.numbers
    value = affine(streams.value, relu(affine(streams.value_hidden, latent)))
    advantage = affine(streams.advantage, relu(affine(streams.advantage_hidden, latent))).reshape(ACTIONS, ATOMS)
    logits = value + advantage - advantage.mean(0)
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def cross_entropy(algorithm: Any, batch: Batch, row: int) -> float:
    """Rainbow's loss of the first step of a row: categorical, by double DQN."""
    atoms = np.linspace(-2, 2, ATOMS)
    following = batch[OBS2][0, row]
    best = int((distributions(algorithm.q, representation(algorithm.q, following)) @ atoms).argmax())
    probabilities = distributions(algorithm.q_target, representation(algorithm.q_target, following))[best]
    target = np.zeros(ATOMS)
    for atom, probability in zip(atoms, probabilities, strict=True):
        place = float(np.clip(batch[REW][0, row].item() + batch[DISCOUNT][0, row].item() * atom, -2, 2) + 2)
        lower = min(int(place), ATOMS - 2)
        target[lower] += probability * (lower + 1 - place)
        target[lower + 1] += probability * (place - lower)
    taken = int(batch[ACT][0, row])
    now = distributions(algorithm.q, representation(algorithm.q, batch[OBS][0, row]))[taken]
    return float(-(target * np.log(now)).sum())


def prediction_error(algorithm: Any, batch: Batch, row: int, steps: int) -> float:
    """1 minus the cosine of each prediction with its target, summed over steps."""
    latent, total = representation(algorithm.q, batch[OBS][0, row]), 0.0
    for step in range(steps):
        action = np.eye(ACTIONS)[int(batch[ACT][step, row])]
        hidden = relu(affine(algorithm.transition.first, np.concatenate([latent, action])))
        latent = rescaled(relu(affine(algorithm.transition.second, hidden)))
        predicted = affine(algorithm.predictor, projected(algorithm.q, latent))
        target = projected(algorithm.q_target, representation(algorithm.q_target, batch[OBS][step + 1, row]))
        total += 1 - float(predicted @ target / (np.linalg.norm(predicted) * np.linalg.norm(target)))
    return total


@pytest.mark.parametrize("ends", [[4, 4, 4, 4], [1, 2, 3, 4]])
def test_the_loss_is_that_of_rainbow_plus_cosine_errors_up_to_the_episodes_end(ends: list[int]) -> None:
    algorithm, batch = made(prediction_weight=0.7), batch_of(ends)
    errors = [cross_entropy(algorithm, batch, row) for row in range(ROWS)]
    predictions = [prediction_error(algorithm, batch, row, ends[row] - 1) for row in range(ROWS)]
    losses = algorithm.losses(algorithm.read(batch))
    weights = numpy(batch[WEIGHTS])[:, 0]
    expected = np.mean(weights * (np.array(errors) + 0.7 * np.array(predictions)))
    assert losses.of[algorithm.trained].item() == pytest.approx(expected, rel=1e-4)
    assert losses.metrics["prediction_error"].item() == pytest.approx(np.mean(predictions), rel=1e-4)
    # All steps of a sequence have the error of its first one, of which its priority consists.
    np.testing.assert_allclose(losses.errors[..., 0], np.tile(errors, (HORIZON + 1, 1)), rtol=1e-4)


def test_a_new_episode_within_a_sequence_ends_its_predictions() -> None:
    algorithm, batch = made(), batch_of([4, 4])
    batch[DONE][2, 0] = 1
    found = algorithm.losses(algorithm.read(batch)).metrics["prediction_error"].item()
    expected = prediction_error(algorithm, batch, 0, 1) + prediction_error(algorithm, batch, 1, HORIZON)
    assert found == pytest.approx(expected / 2, rel=1e-4)


def test_observations_and_actions_after_an_episodes_end_change_nothing() -> None:
    algorithm, batch = made(), batch_of([1, 2, 3, 4])
    changed = {key: value.clone() for key, value in batch.items()}
    beyond = batch[MASK][..., 0] == 0
    changed[OBS][beyond] = 5.0
    # The last action within an episode leads to its end.
    changed[ACT][beyond] = (changed[ACT][beyond] + 1) % ACTIONS
    for key in (REW, OBS2, DISCOUNT):
        changed[key][1:] = 0.5
    (gradients, _), (others, _) = (algorithm.compute_gradients(each) for each in (batch, changed))
    assert all(torch.equal(gradients[name], others[name]) for name in gradients)
    changed[OBS][1, 1] = 5.0
    assert not all(
        torch.equal(gradients[name], other) for name, other in algorithm.compute_gradients(changed)[0].items()
    )


def test_all_networks_but_the_target_have_gradients_of_the_predictions() -> None:
    algorithm, batch = made(), batch_of([4, 4, 4, 4])
    window = algorithm.read(batch)
    for parameter in algorithm.actor.parameters():
        parameter.requires_grad_(True)
    for parameter in algorithm.q_target.parameters():
        parameter.requires_grad_(True)
    losses = algorithm.losses(window)
    losses.of[algorithm.trained].backward()
    assert all(parameter.grad is None for parameter in algorithm.q_target.parameters())
    for network in (algorithm.q.body, algorithm.transition, algorithm.predictor):
        assert all(parameter.grad.abs().sum() > 0 for parameter in network.parameters())


def test_without_a_weight_of_predictions_it_is_rainbow_of_the_first_steps() -> None:
    algorithm, batch = made(prediction_weight=0.0), batch_of([4, 4, 4, 4])
    first = {key: value if key == WEIGHTS else value[0] for key, value in batch.items() if key != MASK}
    expected = super(prl.SPR, algorithm).losses(algorithm.read(first))
    found = algorithm.losses(algorithm.read(batch))
    assert torch.equal(found.of[algorithm.trained], expected.of[algorithm.trained])


def test_sequences_shorter_than_the_horizon_are_predicted_to_their_end() -> None:
    algorithm, batch = made(horizon=9), batch_of([2, 2], steps=2)
    found = algorithm.losses(algorithm.read(batch)).metrics["prediction_error"].item()
    expected = sum(prediction_error(algorithm, batch, row, 1) for row in range(2)) / 2
    assert found == pytest.approx(expected, rel=1e-4)
    alone = algorithm.losses(algorithm.read(batch_of([1, 1], steps=1)))
    assert alone.metrics["prediction_error"] == 0


def test_the_model_of_maps_is_convolutional_with_actions_as_planes() -> None:
    algorithm = made(
        observations=spaces.Box(0, 255, (6, 6, 2), np.uint8),
        actor={"feature_extractor": "small_convolutions", "hidden_sizes": ()},
    )
    model = algorithm.transition
    assert (model.first.in_channels, model.first.out_channels, model.second.out_channels) == (16 + ACTIONS, 16, 16)
    latent, action = torch.rand(2, 16 * 4 * 4), torch.eye(ACTIONS)[[2, 0]]
    planes = torch.zeros(2, ACTIONS, 4, 4)
    planes[0, 2], planes[1, 0] = 1, 1
    image = torch.cat([latent.view(2, 16, 4, 4), planes], dim=1)
    expected = model.second(model.first(image).relu()).relu().flatten(1)
    low, high = expected.min(1, keepdim=True).values, expected.max(1, keepdim=True).values
    torch.testing.assert_close(model(latent, action), (expected - low) / (high - low + 1e-5))


def test_hidden_layers_after_convolutions_make_representations_of_vectors() -> None:
    algorithm = made(
        observations=spaces.Box(0, 255, (6, 6, 2), np.uint8),
        actor={"feature_extractor": "small_convolutions", "hidden_sizes": (7,), "dueling": False},
    )
    assert algorithm.transition.first.in_features == 7 + ACTIONS
    assert algorithm.q.head.project(torch.rand(2, 7)).shape == (2, 7)


def test_constant_representations_are_0() -> None:
    assert torch.equal(in_unit_range(torch.full((2, 5), 3.0)), torch.zeros(2, 5))
    assert torch.isfinite(TransitionModel(4, 2, None)(torch.zeros(1, 4), torch.eye(2)[:1])).all()


def test_an_actor_with_a_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="SPR encodes single observations; give the actor memory=None"):
        made(actor={"memory": "gru"})


def scheme_of(cls: Any, storage: dict[str, Any], **settings: Any) -> prl.Scheme:
    augmentation = [prl.RandomShift(1, channels_last=True, by_step=True), prl.RandomIntensity(by_step=True)]
    replay: dict[str, Any] = {"size": 200, "alpha": 0.5, "beta": 0.4, "n_step": 3, "sequences": prl.Sequences(4)}
    return prl.Scheme(
        cls.create_factory(**SMALL | {"start_steps": 40, "mini_batch_size": 8, "test_every": 0} | settings),
        prl.OffPolicyActor.create_factory(feature_extractor="small_convolutions", hidden_sizes=(), dueling=True),
        prl.PERBuffer.create_factory(**replay | {"transforms": {OBS: augmentation}} | storage),
        prl.VecEnv.create_factory(Images, num_envs=2),
        seed=1,
    )


@pytest.mark.parametrize(
    "storage",
    [
        {},
        {"sequences": prl.Sequences(6, across_episodes=True), "prefetch": 1},
        {"sequences": prl.Episodes(max_steps=4, whole=False), "n_step": 1},
        {"sequences": prl.Episodes(packed=True, whole=False), "n_step": 1},
    ],
)
def test_it_composes_with_priorities_n_steps_augmentation_and_all_windows(storage: dict[str, Any]) -> None:
    scheme = scheme_of(prl.SPR, storage)
    train(scheme, 60)
    (batch,) = scheme.storage.generate_batches(1, 8)
    result = scheme.algorithm.update(batch)
    assert result.info[ERRORS].shape == batch[REW].shape
    assert np.isfinite(result.metrics["loss"].item())
    scheme.close()


def test_it_composes_with_a_storage_on_disk(tmp_path: Any) -> None:
    scheme = scheme_of(prl.SPR, {"directory": tmp_path / "replay", "commit_every": 10})
    train(scheme, 60)
    assert scheme.algorithm.updates > 0
    scheme.close()


def test_single_transitions_are_refused() -> None:
    message = r"SPR learns from sequences, but PERBuffer makes batches of single transitions; give it sequences="
    with pytest.raises(prl.CompositionError, match=message):
        scheme_of(prl.SPR, {"sequences": None})


def test_bbf_acts_by_its_target_network_and_at_random_by_epsilon() -> None:
    algorithm = made(prl.BBF)
    perturb(algorithm.q_target, 5, 1.0)
    obs, done = torch.randn(50, 3), torch.zeros(50, 1)
    action = algorithm.acting_step(obs, None, done, exploring(algorithm, 50, deterministic=True)).action
    with torch.no_grad():
        by_target, by_online = (net(algorithm.actor.view(obs)).greedy() for net in (algorithm.q_target, algorithm.q))
    assert torch.equal(action, by_target)
    assert not torch.equal(by_target, by_online)
    default = prl.BBF.create_factory().hyper_parameters["epsilon"]
    assert [default.at(steps, 100_000) for steps in (0, 2_000, 3_000, 4_000)] == [1, 1, 0.5, 0]


def test_bbfs_target_network_is_sent_to_those_who_collect() -> None:
    algorithm, other = made(prl.BBF), made(prl.BBF)
    perturb(algorithm.q_target, 5, 1.0)
    other.set_weights(algorithm.get_weights())
    obs = torch.randn(5, 3)
    with torch.no_grad():
        values = [each.q_target(each.actor.view(obs)).values for each in (algorithm, other)]
    assert torch.equal(*values)


def test_a_saved_policy_of_bbf_acts_by_the_target_network(tmp_path: Path) -> None:
    scheme = scheme_of(prl.BBF, {}, epsilon=0.2)
    learner = prl.Learner(scheme, 45, tmp_path / "run")
    assert learner.run()
    algorithm: Any = scheme.algorithm
    perturb(algorithm.q, 4, 0.5)
    perturb(algorithm.q_target, 5, 0.5)
    learner.save_checkpoint()
    generator = np.random.default_rng(0)
    images = [generator.integers(0, 256, (6, 6, 2), np.uint8) for _ in range(40)]
    with torch.no_grad():
        views = [algorithm.actor.view(torch.as_tensor(image)[None]) for image in images]
        by_target, by_online = (
            [int(network(view).greedy()) for view in views] for network in (algorithm.q_target, algorithm.q)
        )
    policy = prl.load_policy(tmp_path / "run")
    assert [int(policy(image)) for image in images] == by_target
    assert by_target != by_online
    learner.close()


def test_bbf_resets_the_head_and_shrinks_the_encoder_and_the_model() -> None:
    before, fresh = made(prl.BBF), made(prl.BBF)
    perturb(fresh.actor, 9, 1.0)
    changed = made(prl.BBF)
    layers = {"q": 1, "transition": 0}
    reset_networks(changed, fresh, layers, keep=0.5)
    for name in ("q.body", "transition", "q_target.body"):
        ours, old, new = (
            list(each.actor.networks.get_submodule(name).parameters()) for each in (changed, before, fresh)
        )
        for one, two, three in zip(ours, old, new, strict=True):
            torch.testing.assert_close(one, (two + three) / 2)
    for name in ("q.head", "q_target.head", "predictor"):
        ours, _, new = (list(each.actor.networks.get_submodule(name).parameters()) for each in (changed, before, fresh))
        assert all(torch.equal(one, other) for one, other in zip(ours, new, strict=True))


@pytest.mark.parametrize("make", [prl.SPR.paper, lambda **sizes: prl.BBF.paper(width=1, **sizes)])
def test_presets_of_the_papers_compose_with_atari_like_observations(make: Any) -> None:
    class Frames(RandomEnds):
        observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)

        def _seen(self) -> Any:
            return self.np_random.integers(0, 256, (4, 84, 84), np.uint8)

    scheme = prl.Scheme(**make(capacity=100), train_envs_factory=prl.VecEnv.create_factory(Frames), seed=1)
    algorithm: Any = scheme.algorithm
    assert algorithm.transition.first.kernel_size == (3, 3)
    storage = scheme.config["storage"]["hyper_parameters"]
    assert storage["n_step"] == (3 if isinstance(algorithm, prl.BBF) else 10)
    assert [each["name"] for each in storage["transforms"][OBS]] == ["RandomShift", "RandomIntensity"]
    scheme.close()


@pytest.mark.long
@pytest.mark.parametrize("cls", [prl.SPR, prl.BBF])
def test_it_learns_to_balance_the_pole_within_few_transitions(cls: Any) -> None:
    preset = cls.small()
    settings = preset["algo_factory"].hyper_parameters | {"lr": 1e-3, "start_steps": 500, "mini_batch_size": 32}
    envs = prl.VecEnv.create_factory("CartPole-v1")
    factories = cls.create_factory(**settings), preset["actor_factory"], preset["storage_factory"], envs
    scheme = prl.Scheme(*factories, seed=1)
    train(scheme, 3_000)
    # Random actions balance it for 22 steps.
    assert scheme.evaluate(10).mean_return > 80
    scheme.close()
