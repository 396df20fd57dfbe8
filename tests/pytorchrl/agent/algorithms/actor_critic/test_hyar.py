"""HyAR's losses, corrections and targets equal those computed by hand; it acts and is saved like its paper says."""

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.algorithms.actor_critic.hyar import LATENT_ACTION, NO_LATENT_ACTION
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.envs.spaces import space_as_data
from storages.datasets import About, write_dataset
from storages.episode import Episode
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import (
    copies,
    envs_with,
    exploring,
    first_adam_step,
    layer_of,
    linear,
    numeric_gradient,
    numpy,
    perturb,
    replayed,
)
from tests.support.comparison import assert_equal
from tests.support.hybrid import PARTS, joined
from tests.support.hybrid_tasks import STEPS, Actuators, Steering, hybrid_scheme
from tests.support.profiles import FULL
from tests.support.toys import Noise
from tests.support.training import saved_and_loaded, train

ROWS = 6
COLUMNS = {"scores": [1, 2, 3], "parameters": [0, 4]}
"""Of the actions of ``joined()``."""
ACTIONS = np.array(
    [
        [-1.0, 0.5, -1.0, -0.2, 0.75],
        [0.5, -0.1, 0.4, -1.0, 0.25],
        [-2.0, -1.0, -1.0, 1.0, 0.5],
        [1.0, 0.2, 0.1, 0.9, 0.0],
        [-0.5, -1.0, 1.0, -1.0, 1.0],
        [0.0, 1.0, -1.0, -1.0, 0.3],
    ],
    np.float32,
)
CHOICES = [0, 1, 2, 2, 1, 0]


def linear_hyar(space: Any = None, observations: Any = None, actor: Any = None, **hyper_parameters: Any) -> prl.HyAR:
    envs = envs_with(joined() if space is None else space)
    if observations is not None:
        envs = SimpleNamespace(observation_space=observations, action_space=envs.action_space)
    made = prl.OffPolicyActor.create_factory(**({"hidden_sizes": ()} | (actor or {})))("cpu", envs)
    sizes = {"embedding_size": 2, "latent_size": 3}
    algorithm = prl.HyAR.create_factory(**(sizes | hyper_parameters))("cpu", made, envs)
    algorithm.seed(0)
    for seed, network in enumerate((*algorithm.representation.networks, algorithm.pi, algorithm.critics)):
        perturb(network, seed, 0.3)
    for seed, network in enumerate((algorithm.target_pi, algorithm.target_critics)):
        perturb(network, 10 + seed, 0.3)
    return algorithm


class NumpyRepresentation:
    """Embeddings, encoder and decoder of a linear HyAR, for the rows of a batch."""

    def __init__(self, algorithm: prl.HyAR, batch: dict[str, torch.Tensor]) -> None:
        learnt, action = algorithm.representation, numpy(batch[ACT])
        self.obs = numpy(batch[OBS])
        self.parameters = np.column_stack([(action[:, 0] + 0.5) / 1.5, 2 * action[:, 4] - 1])  # in [-1, 1]
        self.table = numpy(learnt.latents.tables[0])
        self.encoder, self.decoder = layer_of(learnt.encoder.head), layer_of(learnt.decoder.head)

    def embedded(self) -> Any:
        return np.tanh(self.table)[CHOICES]

    def drawn(self, noise: Any) -> tuple[Any, Any, Any]:
        """Latents of the encoder, and their mean and logarithm of the standard deviation."""
        inputs = np.hstack([self.obs, self.embedded(), self.parameters])
        mean, log_std = np.split(linear(self.encoder, inputs), 2, axis=1)
        return mean + np.exp(log_std) * noise, mean, log_std

    def decoded(self, latent: Any) -> tuple[Any, Any]:
        numbers = linear(self.decoder, np.hstack([self.obs, self.embedded(), latent]))
        return np.tanh(numbers[:, :2]), numbers[:, 2:]

    def errors(self, latent: Any) -> Any:
        return ((self.decoded(latent)[0] - self.parameters) ** 2).sum(1)


def noise_of(algorithm: prl.HyAR, *sizes: int) -> list[Any]:
    """The standard normal numbers (ROWS, size) that the algorithm is about to draw."""
    generator = torch.Generator()
    generator.set_state(algorithm.generator.get_state())
    return [numpy(torch.empty(ROWS, size).normal_(generator=generator)) for size in sizes]


@pytest.mark.parametrize("dynamics_weight", [0.7, 0.0])
def test_the_loss_and_gradients_of_the_representation_equal_those_in_numpy(
    dynamics_weight: float,
) -> None:
    algorithm = linear_hyar(kl_weight=0.3, dynamics_weight=dynamics_weight, lr_representation=0.01)
    batch = replayed(ACTIONS)
    by_hand, change = NumpyRepresentation(algorithm, batch), numpy(batch[OBS2] - batch[OBS])
    (noise,) = noise_of(algorithm, 3)
    parts = {}

    def loss() -> float:
        latent, mean, log_std = by_hand.drawn(noise)
        predicted = by_hand.decoded(latent)[1]
        parts["parameter_error"] = by_hand.errors(latent).mean()
        divergence = (0.5 * (mean**2 + np.exp(2 * log_std) - 1) - log_std).sum(1).mean()
        parts["change_error"] = ((predicted - change) ** 2 / change.var(0)).mean() if dynamics_weight else 0.0
        parts["representation_loss"] = (
            parts["parameter_error"] + 0.3 * divergence + dynamics_weight * parts["change_error"]
        )
        return float(parts["representation_loss"])

    weights = [by_hand.table, *by_hand.encoder, *by_hand.decoder]
    gradients = [numeric_gradient(loss, weight) for weight in weights]
    loss()
    others = copies(algorithm.pi.state_dict() | algorithm.critics.state_dict())
    metrics = algorithm.update_representation(batch)
    for name, value in parts.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-4, atol=1e-6)
    found = algorithm.train_representation.parameters
    names = ("0.tables.0", *(f"{number}.head.layer.{part}" for number in (1, 2) for part in ("weight", "bias")))
    assert set(found) == set(names)
    for name, weight, gradient in zip(names, weights, gradients, strict=True):
        np.testing.assert_allclose(numpy(found[name].grad), gradient, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(numpy(found[name]), weight + first_adam_step(gradient, 0.01), atol=1e-4)
    assert algorithm.representation.latents.updates == 1
    assert_equal(algorithm.pi.state_dict() | algorithm.critics.state_dict(), others)
    assert algorithm.updates == 0


LOW, HIGH = np.array([-1.0, -0.5, 0.1]), np.array([0.5, 2.0, 0.4])


def with_latents(algorithm: prl.HyAR, batch: dict[str, torch.Tensor]) -> None:
    """Store latent actions of which some choices, and some parameters, are those of the stored actions by now."""
    by_hand = NumpyRepresentation(algorithm, batch)
    stored = torch.empty(ROWS, 5).uniform_(-1, 1, generator=torch.Generator().manual_seed(4))
    for row in (0, 1, 2):
        stored[row, :2] = torch.from_numpy(by_hand.embedded()[row]) + 0.01
    stored[3, :2] = torch.from_numpy(np.tanh(by_hand.table[0])) + 0.01  # that row's choice is another
    stored[5] = NO_LATENT_ACTION
    batch[LATENT_ACTION] = stored
    # The numbers that stand for none would be decoded to the parameters of the last action.
    latents = (numpy(stored[:, 2:]) + 1) / 2 * (HIGH - LOW) + LOW
    last = by_hand.decoded(latents)[0][5]
    batch[ACT][5, COLUMNS["parameters"]] = torch.tensor([1.5 * last[0] - 0.5, (last[1] + 1) / 2]).float()
    learnt = algorithm.representation.latents
    learnt.low.copy_(torch.from_numpy(LOW))
    learnt.high.copy_(torch.from_numpy(HIGH))
    errors = sorted(NumpyRepresentation(algorithm, batch).errors(latents))
    assert errors[0] < 1e-6
    learnt.tolerance.fill_((errors[2] + errors[3]) / 2)


def corrected_by_hand(algorithm: prl.HyAR, batch: dict[str, torch.Tensor], noises: list[Any]) -> tuple[Any, Any, Any]:
    """The corrected latent actions, and which rows keep their vector and their latent."""
    learnt, stored = algorithm.representation.latents, batch[LATENT_ACTION]
    by_hand = NumpyRepresentation(algorithm, batch)
    low, high = numpy(learnt.low), numpy(learnt.high)
    vector, scaled = np.split(numpy(stored), [2], axis=1)
    distances = ((vector[:, None] - np.tanh(by_hand.table)) ** 2).sum(2)
    known = np.abs(numpy(stored)).max(1) <= 1
    keeps_vector = known & (distances.argmin(1) == CHOICES)
    keeps_latent = known & (by_hand.errors((scaled + 1) / 2 * (high - low) + low) <= float(learnt.tolerance))
    moved = np.clip(by_hand.embedded() + algorithm.embedding_noise * noises[0], -1, 1)
    drawn = np.clip(2 * (by_hand.drawn(noises[1])[0] - low) / (high - low) - 1, -1, 1)
    corrected = np.hstack(
        [np.where(keeps_vector[:, None], vector, moved), np.where(keeps_latent[:, None], scaled, drawn)]
    )
    return corrected, keeps_vector, keeps_latent


@pytest.mark.parametrize("embedding_noise", [0.0, 0.2, 30.0])
def test_stored_latent_actions_are_replaced_where_they_mean_others_by_now(embedding_noise: float) -> None:
    algorithm = linear_hyar(embedding_noise=embedding_noise)
    batch = replayed(ACTIONS)
    with_latents(algorithm, batch)
    expected, keeps_vector, keeps_latent = corrected_by_hand(algorithm, batch, noise_of(algorithm, 2, 3))
    assert keeps_vector[:3].all()
    assert not keeps_vector[[3, 5]].any()
    assert keeps_latent.sum() == 2
    assert not keeps_latent[5]
    found = algorithm.read(batch).action
    np.testing.assert_allclose(numpy(found), expected, rtol=1e-4, atol=1e-5)
    assert not found.requires_grad


def test_actions_of_data_without_latent_ones_are_encoded() -> None:
    algorithm = linear_hyar()
    batch = replayed(ACTIONS)
    noises = noise_of(algorithm, 2, 3)
    found = algorithm.read(batch).action
    batch[LATENT_ACTION] = torch.full((ROWS, 5), NO_LATENT_ACTION)
    expected, keeps_vector, keeps_latent = corrected_by_hand(algorithm, batch, noises)
    assert not (keeps_vector | keeps_latent).any()
    np.testing.assert_allclose(numpy(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("central_range", [0.5, 0.96, 1.0])
def test_bounds_are_quantiles_of_recent_latents_and_the_tolerance_is_the_mean_error(central_range: float) -> None:
    algorithm = linear_hyar()
    batches = [replayed(ACTIONS, seed) for seed in range(3)]
    latents, errors = [], []
    for batch, noise in zip(batches, noise_of(algorithm, 3, 3, 3), strict=True):
        by_hand = NumpyRepresentation(algorithm, batch)
        latents.append(by_hand.drawn(noise)[0])
        errors.append(by_hand.errors(latents[-1]))
    rows = [Rows(batch, algorithm.codec) for batch in batches]
    algorithm.representation.set_scale(rows, central_range, algorithm.generator)
    learnt = algorithm.representation.latents
    tail = (1 - central_range) / 2
    np.testing.assert_allclose(learnt.low, np.quantile(np.vstack(latents), tail, axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(learnt.high, np.quantile(np.vstack(latents), 1 - tail, axis=0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(learnt.tolerance, np.mean(errors), rtol=1e-4)


def test_padding_of_sequences_does_not_count_in_bounds() -> None:
    algorithm = linear_hyar()
    flat = replayed(ACTIONS)
    batch = {key: field.view(3, 2, *field.shape[1:]) for key, field in flat.items()}
    batch[MASK] = torch.tensor([[1.0, 1], [1, 0], [1, 0]])[..., None]
    batch[OBS][1:, 1] = 1e6
    algorithm.representation.set_scale([Rows(batch, algorithm.codec)], 1.0, algorithm.generator)
    assert algorithm.representation.latents.high.max() < 100


def test_losses_and_gradients_equal_those_of_td3_on_corrected_latent_actions() -> None:
    algorithm = linear_hyar(policy_delay=1, target_noise=0.3, target_noise_clip=0.4)
    batch = replayed(ACTIONS)
    with_latents(algorithm, batch)
    noise, *noises = noise_of(algorithm, 5, 2, 3)
    latent_action, *_ = corrected_by_hand(algorithm, batch, noises)
    fields = {key: numpy(value) for key, value in batch.items()}
    policy, target_policy = layer_of(algorithm.pi.head), layer_of(algorithm.target_pi.head)
    critics = [layer_of(critic.head) for critic in algorithm.critics]
    target_critics = [layer_of(critic.head) for critic in algorithm.target_critics]
    smoothed = np.tanh(linear(target_policy, fields[OBS2])) + np.clip(0.3 * noise, -0.4, 0.4)
    after = np.hstack([fields[OBS2], np.clip(smoothed, -1, 1)])
    target = fields[REW] + fields[DISCOUNT] * np.min([linear(critic, after) for critic in target_critics], axis=0)
    before = np.hstack([fields[OBS], latent_action])

    def critic_loss() -> float:
        errors = [linear(critic, before) - target for critic in critics]
        return float(sum(0.5 * (fields[WEIGHTS] * error**2).mean() for error in errors))

    def policy_loss() -> float:
        acted = np.hstack([fields[OBS], np.tanh(linear(policy, fields[OBS]))])
        return float(-linear(critics[0], acted).mean())

    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["critic_loss"], critic_loss(), rtol=1e-4)
    np.testing.assert_allclose(result.metrics["policy_loss"], policy_loss(), rtol=1e-4)
    errors = np.mean([np.abs(linear(critic, before) - target) for critic in critics], axis=0)
    np.testing.assert_allclose(numpy(result.info[ERRORS]), errors, rtol=1e-4)
    expected = {"policy": (policy_loss, policy), "critics.networks.0": (critic_loss, critics[0])}
    for name, (loss, weights) in expected.items():
        for part, weight in zip(("weight", "bias"), weights, strict=True):
            found = numpy(gradients[f"{name}.head.layer.{part}"])
            np.testing.assert_allclose(found, numeric_gradient(loss, weight), rtol=1e-3, atol=1e-4)
    # The representation learns in phases of its own.
    assert not any(name.startswith("representation") for name in gradients)


def acting(algorithm: prl.HyAR, obs: torch.Tensor, **how: Any) -> Any:
    exploration = exploring(algorithm, len(obs), **how)
    return algorithm.acting_step(obs, None, torch.zeros(len(obs), 1), exploration), exploration


def test_an_action_is_the_nearest_choice_with_the_parameters_decoded_for_it() -> None:
    algorithm = linear_hyar(start_steps=0, exploration_noise=0.4)
    algorithm.representation.latents.low.copy_(torch.from_numpy(LOW))
    algorithm.representation.latents.high.copy_(torch.from_numpy(HIGH))
    obs = torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
    (step, _), by_hand = acting(algorithm, obs), NumpyRepresentation(algorithm, replayed(ACTIONS))
    vector, scaled = np.split(numpy(step.fields[LATENT_ACTION]), [2], axis=1)
    noise = numpy(step.fields[LATENT_ACTION]) - np.tanh(linear(layer_of(algorithm.pi.head), numpy(obs)))
    assert 0.2 < noise.std() < 0.4
    table = np.tanh(by_hand.table)
    choices = ((vector[:, None] - table) ** 2).sum(2).argmin(1)
    assert len(np.unique(choices)) == 3
    latent = (scaled + 1) / 2 * (HIGH - LOW) + LOW
    parameters = np.tanh(linear(by_hand.decoder, np.hstack([numpy(obs), table[choices], latent]))[:, :2])
    taken = numpy(step.env_action)
    np.testing.assert_array_equal(taken[:, COLUMNS["scores"]], 2 * np.eye(3)[choices] - 1)
    np.testing.assert_allclose(taken[:, 0], 1.5 * parameters[:, 0] - 0.5, atol=1e-5)
    np.testing.assert_allclose(taken[:, 4], (parameters[:, 1] + 1) / 2, atol=1e-5)
    assert torch.equal(step.action, step.env_action)


def test_first_actions_are_random_ones_of_the_environment_without_latent_ones() -> None:
    algorithm = linear_hyar(start_steps=10)
    step, _ = acting(algorithm, torch.zeros(3_000, 3))
    assert (step.fields[LATENT_ACTION] == NO_LATENT_ACTION).all()
    choices = step.action[:, COLUMNS["scores"]].argmax(1).bincount() / 3_000
    torch.testing.assert_close(choices, torch.full((3,), 1 / 3), atol=0.05, rtol=0)
    torch.testing.assert_close(step.action[:, 0].mean(), torch.tensor(-0.5), atol=0.1, rtol=0)


def test_several_choices_have_embeddings_of_their_own() -> None:
    algorithm = linear_hyar(
        joined(spaces.Tuple((spaces.MultiDiscrete([2, 4]), spaces.Box(-1, 1, (1,))))), start_steps=0
    )
    latents = algorithm.representation.latents
    assert [tuple(table.shape) for table in latents.tables] == [(2, 2), (4, 2)]
    choices = torch.tensor([[0, 3], [1, 0], [1, 2]])
    assert torch.equal(latents.nearest(latents.embed(choices)), choices)
    step, _ = acting(algorithm, torch.randn(40, 3))
    scores = step.action[:, :6]
    assert torch.equal(scores[:, :2].sum(1), torch.zeros(40))
    assert torch.equal(scores[:, 2:].sum(1), torch.full((40,), -2.0))
    stored = {**replayed(numpy(step.action)[:6].astype(np.float32)), LATENT_ACTION: step.fields[LATENT_ACTION][:6]}
    assert torch.equal(algorithm.read(stored).action[:, :4], stored[LATENT_ACTION][:, :4])


class HybridNoise(Noise):
    action_space = PARTS  # type: ignore[assignment]


def scheme_of(storage: Any = None, seed: int = 0, **hyper_parameters: Any) -> prl.Scheme:
    settings = {"start_steps": 12, "update_every": 6, "mini_batch_size": 4, "test_every": 0} | hyper_parameters
    return prl.Scheme(
        prl.HyAR.create_factory(**settings),
        prl.OffPolicyActor.create_factory(hidden_sizes=(6,)),
        storage or prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory(HybridNoise, num_envs=2, wrappers=["JoinActions"]),
        seed=seed,
    )


def test_the_representation_learns_first_and_again_after_each_interval() -> None:
    scheme = scheme_of(pretraining_updates=5, representation_every=3, representation_updates=2)
    algorithm: Any = scheme.algorithm
    learnt, phases, bounds = algorithm.representation.latents, [], []
    while scheme.steps < 72:
        _, due = scheme.collect(72)
        for _ in range(due):
            metrics = list(scheme.update())
            phases.append("".join("r" if "representation_loss" in each else "u" for each in metrics))
            bounds.append(learnt.high.clone())
    assert phases == ["rrrrr", "u", "u", "u", "rr", "u", "u", "u", "rr", "u"]
    assert learnt.updates == 9
    assert algorithm.updates == 7
    changed = [not torch.equal(one, other) for one, other in pairwise(bounds)]
    assert changed == [phase == "rr" for phase in phases[1:]]
    assert (bounds[0] != 2).all()


def test_a_pretraining_that_was_cut_short_is_completed_in_the_next_phase() -> None:
    scheme = scheme_of(pretraining_updates=5)
    train(scheme, 12)
    updates = scheme.update()
    for _ in range(2):
        next(updates)
    state = saved_and_loaded(scheme.algorithm.state_dict())
    other = scheme_of(pretraining_updates=5)
    other.load_state_dict(saved_and_loaded(scheme.state_dict()))
    assert_equal(other.algorithm.state_dict(), state)
    assert len(list(other.update())) == 3
    assert len(list(other.update())) == 1


def test_storages_keep_the_latent_actions_of_which_actions_were_decoded() -> None:
    scheme = train(scheme_of(prl.PERBuffer.create_factory(size=100, n_step=2, alpha=0.5), pretraining_updates=3), 60)
    stored = scheme.storage.get_all_buffer_data()
    latents, actions = stored[LATENT_ACTION].flatten(0, 1), stored[ACT].flatten(0, 1)
    random = (latents == NO_LATENT_ACTION).all(1)
    assert random.tolist() == [True] * 12 + [False] * 48
    assert (latents[~random].abs() <= 1).all()
    # The newest were decoded by the present networks but for the last update, which leaves the decoder as it is.
    algorithm: Any = scheme.algorithm
    view = algorithm.actor.view(stored[OBS].flatten(0, 1)[-4:])
    with torch.no_grad():
        decoded = algorithm.codec.to_env(algorithm.representation.action(view, latents[-4:]))
    torch.testing.assert_close(decoded, actions[-4:])


def test_a_loaded_and_an_exported_policy_act_like_the_trained_one(tmp_path: Path) -> None:
    scheme = scheme_of(pretraining_updates=4)
    learner = prl.Learner(scheme, target_steps=60, log_dir=tmp_path / "run")
    assert learner.run()
    algorithm: Any = scheme.algorithm
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    step, _ = acting(algorithm, torch.from_numpy(obs), deterministic=True)
    expected = numpy(step.env_action)
    learner.close()
    with pytest.warns(UserWarning, match="JoinActions"):
        policy = prl.load_policy(tmp_path / "run")
    np.testing.assert_allclose(policy(obs), expected, atol=1e-6)
    exported = torch.export.load(policy.export(tmp_path / "policy.pt2")).module()
    np.testing.assert_allclose(numpy(exported(torch.from_numpy(obs))), expected, atol=1e-5)
    taken = prl.JoinActions(HybridNoise()).action(policy(obs)[0])
    assert PARTS.contains(taken)


def test_joined_parameters_alone_and_unbounded_ones_are_refused() -> None:
    with pytest.raises(prl.UnsupportedSpaceError, match="HyAR needs actions of discrete choices"):
        linear_hyar(joined(spaces.Tuple((spaces.Box(-1, 1, (2,)),))))
    with pytest.raises(prl.UnsupportedSpaceError, match="HyAR needs finite bounds"):
        linear_hyar(joined(spaces.Tuple((spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (1,))))))


def test_changes_are_predicted_of_numbers_only() -> None:
    images = spaces.Box(0, 255, (3, 40, 40), np.uint8)
    with pytest.raises(ValueError, match=r"HyAR predicts changes of observations.*dynamics_weight=0 predicts none"):
        linear_hyar(observations=images)
    algorithm = linear_hyar(observations=images, dynamics_weight=0.0, actor={"hidden_sizes": (4,)})
    batch = replayed(ACTIONS)
    batch[OBS], batch[OBS2] = torch.zeros(2, ROWS, 3, 40, 40, dtype=torch.uint8)
    assert algorithm.update_representation(batch)["change_error"] == 0


def test_changes_of_a_dict_are_those_of_its_floating_point_parts() -> None:
    parts = spaces.Dict(
        gear=spaces.Discrete(3), place=spaces.Box(-9, 9, (2,), np.float32), clock=spaces.Box(0, 1e9, (1,), np.float64)
    )
    algorithm = linear_hyar(observations=parts, actor={"hidden_sizes": (4,)})
    batch = replayed(ACTIONS)
    place, clock = torch.rand(2, ROWS, 2), 1e9 + torch.rand(2, ROWS, 1).double()
    for key, number in ((OBS, 0), (OBS2, 1)):
        batch[key] = {"gear": torch.zeros(ROWS, 1, dtype=torch.int64), "place": place[number], "clock": clock[number]}
    expected = torch.cat([place[1] - place[0], (clock[1] - clock[0]).float()], dim=1)
    assert torch.equal(Rows(batch, algorithm.codec).change, expected)
    assert algorithm.update_representation(batch)["change_error"] > 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("env", "least"),
    # Random actions return -0.3 on average in the first task.
    [(Steering, 1.6), pytest.param(Actuators, 1.3, marks=FULL)],
)
def test_it_learns_what_to_choose_and_how(env: Any, least: float) -> None:
    scheme = train(hybrid_scheme(env, prl.HyAR, seed=1), STEPS)
    assert scheme.evaluate(50).mean_return > least
    scheme.close()


def test_it_learns_from_data_alone_whose_file_tells_the_columns_of_choices(tmp_path: Path) -> None:
    space, random = joined(), np.random.default_rng(0)
    space.seed(0)
    episodes = []
    for _ in range(6):
        fields = {ACT: np.stack([space.sample() for _ in range(5)]), REW: np.ones((5, 1), np.float32)}
        observations = random.normal(size=(6, 3)).astype(np.float32)
        episodes.append(Episode(observations, fields, terminated=True, truncated=False))
    observed = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    about = About(observation_space=space_as_data(observed), action_space=space_as_data(space))
    write_dataset(tmp_path / "data.npz", episodes, about=about)
    scheme = prl.Scheme(
        prl.HyAR.create_factory(pretraining_updates=3, mini_batch_size=4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(6,)),
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=40), tmp_path / "data.npz"),
    )
    algorithm: Any = scheme.algorithm
    with prl.Learner(scheme, 6, tmp_path / "run") as learner:
        assert learner.run()
    assert algorithm.representation.latents.updates == 3
    assert algorithm.updates == 5
