"""R2D2's updates with rescaled values equal those of a reference that goes through sequences step by step."""

import math
from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, INDICES, MASK, REW, WEIGHTS
from tests.support.by_hand import perturb
from tests.support.slow_learner import SEQUENCES, batch_of, next_features, off_policy_scheme, states_by_hand

EPS = 1e-3


def h(x: Any) -> Any:
    """The paper's formula."""
    return torch.sign(x) * ((x.abs() + 1).sqrt() - 1) + EPS * x


def inverse_of_h(y: Any) -> Any:
    """The paper's formula, in double precision."""
    y = y.double()
    root = ((1 + 4 * EPS * (y.abs() + 1 + EPS)).sqrt() - 1) / (2 * EPS)
    return (torch.sign(y) * (root**2 - 1)).float()


@pytest.mark.parametrize("double", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["lstm", pytest.param("gru", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "sequences",
    ["burn-in and n steps", *(pytest.param(name, marks=pytest.mark.long) for name in SEQUENCES if "burn" not in name)],
)
def test_an_update_equals_that_of_a_step_by_step_reference(sequences: str, kind: Any, double: bool) -> None:
    scheme = off_policy_scheme(prl.R2D2, kind, *SEQUENCES[sequences], double=double)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.R2D2)
    network, target_network = algorithm.q, algorithm.q_target
    perturb(target_network, 1, 0.3)
    errors, loss = torch.zeros_like(batch[MASK]), torch.zeros(())
    numbers = network.head.numbers, target_network.head.numbers
    for b in range(6):
        features, states = states_by_hand(network.body, batch, b, stored=True)
        _, target_states = states_by_hand(target_network.body, batch, b, stored=True)
        for t in range(len(features)):
            value = numbers[0](features[t])[0, batch[ACT][t, b, 0]]
            following = numbers[1](next_features(target_network.body, batch, b, t, target_states))[0]
            online = numbers[0](next_features(network.body, batch, b, t, states))[0]
            best = following[(online if double else following).argmax()]
            target = h(batch[REW][t, b, 0] + batch[DISCOUNT][t, b, 0] * inverse_of_h(best))
            error = value - target.detach()
            errors[t, b] = error.detach().abs()
            loss = loss + batch[MASK][t, b, 0] * batch[WEIGHTS][b, 0] * 0.5 * error**2
    loss = loss / batch[MASK].sum()
    expected = torch.autograd.grad(loss, list(network.parameters()))
    gradients, result = algorithm.compute_gradients(batch)
    torch.testing.assert_close(result.metrics["loss"], loss.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.info[ERRORS], errors, rtol=1e-4, atol=1e-5)
    for name, gradient in zip(dict(network.named_parameters()), expected, strict=True):
        torch.testing.assert_close(gradients[f"q.{name}"], gradient, rtol=1e-3, atol=1e-5)
    scheme.close()


def test_a_sequences_priority_mixes_its_largest_and_its_mean_error() -> None:
    scheme = off_policy_scheme(prl.R2D2, "lstm", prl.Sequences(4, burn_in=3, overlap=2, eta=0.9), n_step=3)
    batch, storage = batch_of(scheme), scheme.storage
    assert isinstance(storage, prl.PERBuffer)
    result = scheme.algorithm.update(batch)
    assert result.errors is not None
    storage.after_gradients(batch, result.info)
    assert storage.priorities is not None
    envs, stride = storage.num_envs, 2
    rows = [number - number // envs % stride * envs for number in batch[INDICES][:, 0].tolist()]
    # Of sequences that share a row, the last one counts.
    for row, b in {row: b for b, row in enumerate(rows)}.items():
        real = [abs(result.errors[t, b, 0].item()) for t in range(4) if batch[MASK][t, b, 0]]
        expected = 0.9 * max(real) + 0.1 * sum(real) / len(real)
        (found,) = storage.priorities.errors_of(row, row + 1)
        assert math.isclose(found, expected, rel_tol=1e-5)
    scheme.close()


def test_an_actor_without_a_memory_is_refused() -> None:
    with pytest.raises(ValueError, match='R2D2: OffPolicyActor has no memory; give it memory="lstm", or choose DQN'):
        prl.Scheme(
            prl.R2D2.create_factory(),
            prl.OffPolicyActor.create_factory(),
            prl.PERBuffer.create_factory(100),
            prl.VecEnv.create_factory("CartPole-v1"),
        )


def test_the_default_explorer_is_that_of_ape_x() -> None:
    scheme = off_policy_scheme(prl.R2D2, "lstm", prl.Sequences(4))
    assert scheme.algorithm.default_explorer() == prl.ApeXEpsilonGreedy(0.4, 7.0)  # type: ignore[attr-defined]
    scheme.close()


def test_the_papers_preset_has_the_papers_hyper_parameters() -> None:
    preset = prl.R2D2.paper(capacity=80_000, num_envs=8)
    algorithm = preset["algo_factory"].hyper_parameters
    expected = {
        "lr": 1e-4,
        "optimizer": prl.Adam(eps=1e-3),
        "gamma": 0.997,
        "start_steps": 50_000,
        "mini_batch_size": 64,
        "target_update_interval": 2_500,
        "polyak": 0.0,
        "double": True,
        "huber_threshold": None,
        "rescaling": 1e-3,
    }
    assert {name: algorithm[name] for name in expected} == expected
    storage = preset["storage_factory"].hyper_parameters
    assert (storage["size"], storage["n_step"], storage["alpha"], storage["beta"]) == (10_000, 5, 0.9, 0.6)
    assert storage["sequences"] == prl.Sequences(80, burn_in=40, overlap=40, eta=0.9)
    actor = preset["actor_factory"].hyper_parameters
    assert (actor["memory"], actor["memory_size"], actor["dueling"]) == ("lstm", 512, True)
