"""TRPO's step is the natural gradient within the trust region, or none, and its value function is fitted after it."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.algorithms.policy_gradient import natural_gradient
from pytorchrl.agent.algorithms.policy_gradient.fisher_products import conjugate_gradient
from pytorchrl.agent.algorithms.policy_gradient.natural_gradient import (
    TrustRegion,
    fisher_product,
    gradient_of,
    line_search,
)
from storages.transition import ADV, OBS, RET, Batch
from tests.support.by_hand import copies, envs_with, first_adam_step, numpy
from tests.support.profiles import examples
from tests.support.rollout_batches import SPACES, rollout_batch, rollout_of_sequences
from tests.support.toys import Noise


def small_trpo(
    space: Any = SPACES["discrete"], actor: Any = None, device: str = "cpu", **hyper_parameters: Any
) -> prl.TRPO:
    envs = envs_with(space)
    arguments = {"hidden_sizes": (4,), "initial_log_std": -0.5} | (actor or {})
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        made = prl.OnPolicyActor.create_factory(**arguments)(device, envs)
        algorithm: prl.TRPO = prl.TRPO.create_factory(**hyper_parameters)(device, made, envs)
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, device=device))
    return algorithm


@pytest.fixture(params=SPACES)
def algorithm(request: pytest.FixtureRequest) -> prl.TRPO:
    return small_trpo(SPACES[request.param])


# The Fisher information


def flattened(algorithm: prl.TRPO, parts: list[Tensor]) -> Tensor:
    """The algorithm's vector of one tensor for each parameter of the policy."""
    vector, views = algorithm._weights.empty_vector()
    for view, part in zip(views, parts, strict=True):
        view.copy_(part)
    return vector


def fisher_times(algorithm: prl.TRPO, batch: Batch) -> Callable[[Tensor], Tensor]:
    """The product of the algorithm's damped Fisher information with vectors."""
    rows = algorithm.read(batch)
    policy = algorithm.pi(rows.now)
    divergence = rows.mean(policy.detach().kl(policy))
    return fisher_product(divergence, algorithm._weights, algorithm.damping)


def region_of(algorithm: prl.TRPO) -> TrustRegion:
    """The algorithm's trust region."""
    return TrustRegion(
        algorithm.current(algorithm.max_kl),
        algorithm.damping,
        algorithm.cg_iterations,
        algorithm.backtracks,
        algorithm.backtrack_ratio,
    )


def product(algorithm: prl.TRPO, batch: Batch, vector: Tensor) -> NDArray[np.float64]:
    """The algorithm's product of the Fisher information with a vector, without the gaps between parameters."""
    sizes = [parameter.numel() for parameter in algorithm.pi.parameters()]
    parts = [part.view_as(p) for part, p in zip(vector.split(sizes), algorithm.pi.parameters(), strict=True)]
    times = fisher_times(algorithm, batch)
    views = algorithm._weights.views_of(times(flattened(algorithm, parts)))
    return np.concatenate([numpy(view).ravel() for view in views])


def random_vector(algorithm: prl.TRPO) -> Tensor:
    number = sum(parameter.numel() for parameter in algorithm.pi.parameters())
    return torch.randn(number, generator=torch.Generator().manual_seed(2))


def scores(algorithm: prl.TRPO, obs: Tensor, action: Tensor) -> NDArray[np.float64]:
    """The gradient of the log probability of one action."""
    log_prob = algorithm.pi(algorithm.actor.view(obs[None])).log_prob(action[None]).sum()
    return np.concatenate([numpy(g).ravel() for g in torch.autograd.grad(log_prob, list(algorithm.pi.parameters()))])


def fisher_matrix(algorithm: prl.TRPO, obs: Tensor) -> NDArray[np.float64]:
    """The mean over observations of the expected outer product of scores, every action weighted by its probability."""
    matrix: Any = 0
    for observation in obs:
        policy = algorithm.pi(algorithm.actor.view(observation[None]))
        if isinstance(algorithm.action_space, spaces.Discrete):
            chances = policy.probabilities[0].tolist()
            actions = [(chance, torch.tensor([action])) for action, chance in enumerate(chances)]
        else:
            # Gauss-Hermite quadrature is exact for polynomials, such as products of a normal's scores.
            nodes, weights = np.polynomial.hermite_e.hermegauss(5)
            mean, deviation = policy.mean[0].detach(), policy.log_std[0].detach().exp()
            actions = [
                (wx * wy / weights.sum() ** 2, mean + deviation * torch.tensor([x, y], dtype=mean.dtype))
                for x, wx in zip(nodes, weights, strict=True)
                for y, wy in zip(nodes, weights, strict=True)
            ]
        for chance, action in actions:
            score = scores(algorithm, observation, action)
            matrix = matrix + chance * np.outer(score, score) / len(obs)
    return matrix


@pytest.mark.parametrize("kind", SPACES)
def test_the_fisher_product_is_that_of_the_expected_outer_product_of_scores(kind: str) -> None:
    algorithm = small_trpo(SPACES[kind], damping=0.0)
    batch, vector = rollout_batch(algorithm), random_vector(algorithm)
    expected = fisher_matrix(algorithm, batch[OBS]) @ numpy(vector)
    np.testing.assert_allclose(product(algorithm, batch, vector), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_the_fisher_product_of_a_recurrent_policy_is_that_of_finite_differences(memory: str) -> None:
    algorithm = small_trpo(actor={"memory": memory, "memory_size": 3}, damping=0.0)
    batch, vector = rollout_of_sequences(algorithm), random_vector(algorithm)
    parameters = list(algorithm.pi.parameters())
    before = algorithm.pi(algorithm.read(batch).now).detach()
    directions = [d.view_as(p) for d, p in zip(vector.split([p.numel() for p in parameters]), parameters, strict=True)]

    def gradient_of_kl(distance: float) -> NDArray[np.float64]:
        with torch.no_grad():
            torch._foreach_add_(parameters, directions, alpha=distance)
        divergence = before.kl(algorithm.pi(algorithm.read(batch).now)).mean()
        gradients = torch.autograd.grad(divergence, parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, directions, alpha=-distance)
        return np.concatenate([numpy(gradient).ravel() for gradient in gradients])

    expected = (gradient_of_kl(5e-3) - gradient_of_kl(-5e-3)) / 1e-2
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(product(algorithm, batch, vector), expected, rtol=5e-3, atol=2e-5)


def test_damping_adds_to_the_diagonal_of_the_fisher_information(algorithm: prl.TRPO) -> None:
    batch, vector = rollout_batch(algorithm), random_vector(algorithm)
    algorithm.update_algorithm_parameter("damping", 0.0)
    plain = product(algorithm, batch, vector)
    algorithm.update_algorithm_parameter("damping", 0.7)
    np.testing.assert_allclose(product(algorithm, batch, vector), plain + 0.7 * numpy(vector), rtol=1e-5, atol=1e-6)


# The conjugate gradient


def systems(size: int, seed: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(size, size, generator=generator, dtype=dtype)
    matrix = factor @ factor.T + 0.5 * torch.eye(size, dtype=dtype)
    return matrix, torch.randn(size, generator=generator, dtype=dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.float64, 1e-7)])
@given(st.integers(1, 15), st.integers(0, 2**32), st.integers(5, 60))
@settings(max_examples=examples(100), deadline=None)
def test_the_conjugate_gradient_solves_systems_and_more_iterations_keep_the_solution(
    dtype: torch.dtype, tolerance: float, size: int, seed: int, further: int
) -> None:
    matrix, target = systems(size, seed, dtype)
    solution = conjugate_gradient(lambda vector: matrix @ vector, target, size + further)
    torch.testing.assert_close(solution, torch.linalg.solve(matrix, target), rtol=tolerance, atol=tolerance)


# The step


def moved_by(algorithm: prl.TRPO, batch: Batch) -> tuple[NDArray[np.float64], prl.Result]:
    before = [numpy(parameter).copy() for parameter in algorithm.pi.parameters()]
    result = algorithm.update(batch)
    after = [numpy(parameter) for parameter in algorithm.pi.parameters()]
    return np.concatenate([(b - a).ravel() for a, b in zip(before, after, strict=True)]), result


@pytest.mark.parametrize("kind", SPACES)
def test_the_step_is_the_natural_gradient_scaled_to_the_trust_region(kind: str) -> None:
    algorithm = small_trpo(SPACES[kind], max_kl=1e-4, damping=0.1, cg_iterations=60)
    batch = rollout_batch(algorithm, 32)
    advantages = numpy(batch[ADV])[:, 0]
    advantages = (advantages - advantages.mean()) / advantages.std(ddof=1)
    actions = batch["Action"]
    gradient: Any = np.mean(
        [a * scores(algorithm, o, c) for a, o, c in zip(advantages, batch[OBS], actions, strict=True)], axis=0
    )
    matrix = fisher_matrix(algorithm, batch[OBS]) + 0.1 * np.eye(len(gradient))
    direction = np.linalg.solve(matrix, gradient)
    expected = np.sqrt(2e-4 / (direction @ matrix @ direction)) * direction
    move, result = moved_by(algorithm, batch)
    fraction = float(result.metrics["step_fraction"])
    assert fraction > 0.3
    np.testing.assert_allclose(move, fraction * expected, rtol=2e-2, atol=2e-6)


@given(st.sampled_from(sorted(SPACES)), st.sampled_from([1e-4, 0.01, 0.5]), st.integers(0, 2**32))
@settings(max_examples=examples(40), deadline=None)
def test_the_policy_stays_in_the_trust_region_and_every_step_improves_the_surrogate(
    kind: str, max_kl: float, seed: int
) -> None:
    algorithm = small_trpo(SPACES[kind], max_kl=max_kl, damping=0.01, normalize_advantages=False)
    batch = rollout_batch(algorithm, seed=seed)
    before = copy.deepcopy(algorithm.pi(algorithm.read(batch).now).detach())
    metrics = algorithm.update(batch).metrics
    rows = algorithm.read(batch)
    after = algorithm.pi(rows.now).detach()
    divergence = float(before.kl(after).mean())
    assert divergence <= max_kl
    assert divergence == pytest.approx(float(metrics["kl"]), rel=1e-3, abs=1e-8)
    gain = ((after.log_prob(rows.action) - before.log_prob(rows.action)).exp() * batch[ADV]).mean() - batch[ADV].mean()
    assert (metrics["step_fraction"] > 0) == (gain > 0)


def weights_of(network: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


def same(one: list[Tensor], two: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(
    "spoil", [lambda direction: -direction, lambda direction: direction * torch.nan], ids=["downwards", "nan"]
)
def test_weights_are_restored_bit_for_bit_if_no_step_is_better(
    algorithm: prl.TRPO, spoil: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        natural_gradient, "conjugate_gradient", lambda *arguments: spoil(conjugate_gradient(*arguments))
    )
    batch, before = rollout_batch(algorithm), weights_of(algorithm.pi)
    metrics = algorithm.update(batch).metrics
    assert same(weights_of(algorithm.pi), before)
    assert (metrics["step_fraction"], metrics["kl"]) == (0, 0)


def searched(algorithm: prl.TRPO, batch: Batch, before: Any, surrogate: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """The result of the algorithm's line search along a step."""
    mean, region = algorithm.read(batch).mean, region_of(algorithm)
    return line_search(algorithm._weights, lambda: algorithm.surrogate(batch), mean, before, surrogate, step, region)


def test_the_line_search_takes_the_largest_fraction_that_the_trust_region_allows(algorithm: prl.TRPO) -> None:
    batch, before = rollout_batch(algorithm), weights_of(algorithm.pi)
    algorithm.update_algorithm_parameter("normalize_advantages", False)
    policy, surrogate = algorithm.surrogate(batch)
    gradient = gradient_of(surrogate, algorithm._weights)
    curvature = gradient @ fisher_times(algorithm, batch)(gradient)
    step = 2 * (2 * 0.01 / curvature).sqrt() * gradient
    policy = copy.deepcopy(policy.detach())
    fraction, kl = searched(algorithm, batch, policy, surrogate.detach(), step)
    assert 0 < fraction < 1
    assert 0 < kl <= algorithm.max_kl

    def divergence_of(share: float) -> float:
        with torch.no_grad():
            for parameter, old, view in zip(
                algorithm.pi.parameters(), before, algorithm._weights.views_of(step), strict=True
            ):
                parameter.copy_(old + share * view)
            return float(policy.kl(algorithm.pi(algorithm.read(batch).now)).mean())

    assert divergence_of(float(fraction) / algorithm.backtrack_ratio) > algorithm.max_kl
    assert divergence_of(float(fraction)) == pytest.approx(float(kl), rel=1e-3)


def test_advantages_of_zero_leave_the_policy_unchanged(algorithm: prl.TRPO) -> None:
    batch, before = rollout_batch(algorithm), weights_of(algorithm.pi)
    batch[ADV] = torch.zeros_like(batch[ADV])
    algorithm.update(batch)
    assert same(weights_of(algorithm.pi), before)


def test_computing_gradients_separately_from_an_update_is_refused(algorithm: prl.TRPO) -> None:
    with pytest.raises(
        NotImplementedError, match=r"TRPO finds .* by a line search.*gradients cannot be computed separately"
    ):
        algorithm.compute_gradients(rollout_batch(algorithm))


# The value function


def test_the_value_function_is_fitted_to_the_returns_computed_before_the_step(algorithm: prl.TRPO) -> None:
    batch = rollout_batch(algorithm)
    before = copies(batch)
    values = weights_of(algorithm.value)
    error = algorithm.value(algorithm.read(batch).now) - batch[RET]
    gradients = torch.autograd.grad(0.5 * error.square().mean(), list(algorithm.value.parameters()))
    algorithm.update_algorithm_parameter("value_epochs", 1)
    loss = 0.5 * float(error.detach().square().mean())
    metrics = algorithm.update(batch).metrics
    for parameter, old, gradient in zip(algorithm.value.parameters(), values, gradients, strict=True):
        expected = numpy(old) + first_adam_step(numpy(gradient), algorithm.current(algorithm.lr_value))
        np.testing.assert_allclose(numpy(parameter), expected, rtol=1e-4, atol=1e-6)
    assert metrics["value_loss"] == pytest.approx(loss, rel=1e-5)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_the_fit_of_the_value_function_does_not_change_the_step_of_the_policy() -> None:
    one, many = small_trpo(value_epochs=1), small_trpo(value_epochs=50)
    results = [algorithm.update(rollout_batch(algorithm)) for algorithm in (one, many)]
    assert same(weights_of(one.pi), weights_of(many.pi))
    assert not same(weights_of(one.value), weights_of(many.value))
    assert results[1].metrics["value_loss"] < results[0].metrics["value_loss"]


def test_the_value_function_may_learn_from_mini_batches_after_the_step_of_the_policy() -> None:
    scheme = noise_scheme(value_mini_batches=4)
    scheme.collect(32)
    by_hand, rollout = copy.deepcopy((scheme.algorithm, scheme.storage))
    (metrics,) = scheme.update()

    rollout.before_gradients()
    (whole,) = rollout.generate_batches(1, None, 1)
    assert isinstance(by_hand, prl.TRPO)
    by_hand.update(whole)
    optimizer = torch.optim.Adam(by_hand.value.parameters(), lr=3e-3)
    batches = list(rollout.generate_batches(4, None, 3))
    for batch in batches:
        loss = 0.5 * (by_hand.value(by_hand.read(batch).now) - batch[RET]).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert [len(batch[RET]) for batch in batches] == [8] * 12
    torch.testing.assert_close(weights_of(scheme.algorithm.value), weights_of(by_hand.value), rtol=1e-5, atol=1e-7)
    assert float(metrics["value_loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
    assert same(weights_of(scheme.algorithm.pi), weights_of(by_hand.pi))


def test_a_body_shared_with_the_value_function_is_refused() -> None:
    with pytest.raises(ValueError, match="shared_body=False"):
        small_trpo(actor={"shared_body": True})


@pytest.mark.parametrize("extra", [{"noisy": True}, {"batch_norm": True}, {"dropout": 0.1}])
def test_actors_whose_outputs_differ_between_calls_are_refused(extra: Any) -> None:
    with pytest.raises(ValueError, match=rf"TRPO: the line search .* which {next(iter(extra))} changes at each call"):
        small_trpo(actor=extra)


# Runs


def noise_scheme(memory: str | None = None, seed: int = 0, value_mini_batches: int = 1) -> prl.Scheme:
    return prl.Scheme(
        prl.TRPO.create_factory(test_every=0, value_epochs=3, value_mini_batches=value_mini_batches),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory(Noise, 2),
        seed=seed,
    )


@pytest.mark.parametrize("memory", [None, "gru"])
def test_every_transition_is_used_once_even_if_batches_differ_in_size(
    memory: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = prl.Scheme(
        prl.TRPO.create_factory(num_mini_batch=3, value_epochs=1, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(4,), memory=memory, memory_size=3),
        prl.GAEBuffer.create_factory(size=7),
        prl.VecEnv.create_factory(Noise, 5),
    )
    seen: list[Tensor] = []
    update = scheme.algorithm.update
    monkeypatch.setattr(scheme.algorithm, "update", lambda batch: (seen.append(batch[OBS]), update(batch))[1])
    scheme.collect(35)
    stored = scheme.storage.get_all_buffer_data()[OBS]
    assert len(list(scheme.update())) == 3
    rows = torch.cat([obs.reshape(-1, 3) for obs in seen])
    assert len({len(obs.reshape(-1, 3)) for obs in seen}) == 2, "the batches are of two sizes"
    assert sorted(rows.tolist()) == sorted(stored.reshape(-1, 3).tolist())


@pytest.mark.parametrize(("memory", "value_mini_batches"), [("gru", 2), ("lstm", 1)])
def test_a_policy_with_a_memory_takes_steps_within_its_trust_region(memory: str, value_mini_batches: int) -> None:
    scheme = noise_scheme(memory, value_mini_batches=value_mini_batches)
    scheme.set_progress(0, 64)
    fractions = []
    while scheme.steps < 64:
        scheme.collect(64)
        (metrics,) = scheme.update()
        fractions.append(float(metrics["step_fraction"]))
        assert metrics["kl"] <= 0.01
    assert max(fractions) > 0


@pytest.mark.parametrize(
    "memory", [None, pytest.param("gru", marks=pytest.mark.long), pytest.param("lstm", marks=pytest.mark.long)]
)
def test_an_update_reads_no_value_back_from_the_device(memory: str | None) -> None:
    # Tensors of the meta device have no values that could be read.
    actor = {"memory": memory, "memory_size": 3}
    here, there = small_trpo(actor=actor), small_trpo(actor=actor, device="meta")
    batch = rollout_batch(here) if memory is None else rollout_of_sequences(here)
    result = there.update({key: field.to("meta") for key, field in batch.items()})
    assert all(isinstance(number, Tensor) and number.ndim == 0 for number in result.metrics.values())
