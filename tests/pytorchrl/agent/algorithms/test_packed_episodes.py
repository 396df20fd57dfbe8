"""Packed and padded batches of the same episodes give the same losses, errors and gradients."""

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

import pytorchrl as prl
from pytorchrl.agent.actors.memory import MemoryKind
from pytorchrl.agent.algorithms.needs import Needs
from storages.transition import (
    BATCH_SIZES,
    ERRORS,
    INDICES,
    MASK,
    OBS,
    SORTED_INDICES,
    UNSORTED_INDICES,
    WEIGHTS,
)
from tests.support.by_hand import perturb
from tests.support.toys import Noise, continuous
from tests.support.training import train


class ContinuousNoise(Noise):
    """Episodes of very different lengths, with continuous actions."""

    action_space = continuous(size=2)  # type: ignore[assignment]


class Cloning(prl.BehaviourCloning):
    """Clones its own actions."""

    sources: ClassVar[Any] = {"main": Needs("any", sequences=True)}


# Random numbers of targets are drawn for each row, and padded and packed batches have different rows: the settings
# remove the effect of these random numbers.
ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "DQN": (prl.DQN, {}),
    "QRDQN": (prl.QRDQN, {"num_quantiles": 5}),
    "IQN": (prl.IQN, {"num_quantiles": 5}),
    "SAC": (prl.SAC, {"initial_alpha": 1e-7, "learn_alpha": False}),
    "TD3": (prl.TD3, {"policy_delay": 1, "target_noise": 0.0}),
    "behaviour cloning": (Cloning, {"entropy_coef": 0.01}),
}
EPISODES: dict[str, tuple[dict[str, Any], int]] = {
    "one step": ({"whole": True}, 1),
    "three steps": ({"whole": True}, 3),
    "three steps, not whole": ({"whole": False}, 3),
    "pieces": ({"longest": 4, "whole": False}, 1),
}


def scheme_of(name: str, memory: MemoryKind | None, episodes: prl.Episodes, n_step: int = 1) -> prl.Scheme:
    algorithm, hyper_parameters = ALGORITHMS[name]
    env = ContinuousNoise if name in ("SAC", "TD3") else Noise
    return prl.Scheme(
        algorithm.create_factory(start_steps=60, mini_batch_size=5, update_every=20, **hyper_parameters),
        prl.OffPolicyActor.create_factory(hidden_sizes=(6,), memory=memory, memory_size=4),
        prl.PERBuffer.create_factory(
            size=60, n_step=n_step, alpha=0.5, epsilon=0.1, default_error=1.0, sequences=episodes
        ),
        prl.VecEnv.create_factory(env, num_envs=2),
    )


def batch_with_weights(scheme: prl.Scheme) -> Any:
    """A batch with different importance weights, since errors have been fed back."""
    while scheme.steps < 100:
        scheme.collect(100)
    (first,) = scheme.storage.generate_batches(1, 20)
    scheme.storage.after_gradients(first, {ERRORS: first[OBS][..., :1].abs()})
    (batch,) = scheme.storage.generate_batches(1, 5)
    return batch


def padded_again(values: Tensor, packed: Any) -> Tensor:
    """Values (N, 1) of a packed batch, padded to (T, B, 1)."""
    sequence = PackedSequence(values, packed[BATCH_SIZES], packed[SORTED_INDICES], packed[UNSORTED_INDICES])
    padded: Tensor = pad_packed_sequence(sequence)[0]
    return padded


@pytest.mark.quick_share(0.4, long=0.7)
@pytest.mark.parametrize("memory", ["gru", "lstm"])
@pytest.mark.parametrize("episodes", EPISODES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_losses_errors_and_gradients_are_those_of_padded_episodes(name: str, episodes: str, memory: MemoryKind) -> None:
    settings, n_step = EPISODES[episodes]
    one, two = (scheme_of(name, memory, prl.Episodes(packed=p, **settings), n_step) for p in (False, True))
    for scheme in (one, two):
        for seed, target in enumerate(scheme.algorithm.training.targets.values()):
            perturb(target.network, seed, 0.1)
        if name == "SAC":
            with torch.no_grad():
                scheme.algorithm.pi.head.layer.bias[2:] = -100.0  # type: ignore[attr-defined]
    padded, packed = batch_with_weights(one), batch_with_weights(two)
    assert torch.equal(padded[INDICES], packed[INDICES])
    assert len(padded[WEIGHTS].unique()) > 1
    assert (padded[MASK] == 0).any()

    expected, of_padded = one.algorithm.compute_gradients(padded)
    gradients, of_packed = two.algorithm.compute_gradients(packed)
    assert gradients.keys() == expected.keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(gradients[key], gradient, atol=1e-5, rtol=1e-4, msg=lambda m, key=key: f"{key}: {m}")
    for key in of_padded.metrics.keys() - ({"entropy"} if name == "SAC" else set()):
        torch.testing.assert_close(of_packed.metrics[key], of_padded.metrics[key], atol=1e-5, rtol=1e-4)
    assert of_padded.errors is not None
    assert of_packed.errors is not None
    found = padded_again(of_packed.errors, packed)
    torch.testing.assert_close(found, of_padded.errors * padded[MASK], atol=1e-5, rtol=1e-4)
    one.close()
    two.close()


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize("memory", ["gru", "lstm"])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_algorithms_train_on_packed_episodes(name: str, memory: MemoryKind) -> None:
    scheme = scheme_of(name, memory, prl.Episodes(packed=True), n_step=3)
    train(scheme, 140)
    assert scheme.algorithm.updates == 4
    assert all(weight.isfinite().all() for weight in scheme.algorithm.get_weights().values())
    scheme.close()


def test_behaviour_cloning_without_a_memory_learns_from_packed_episodes() -> None:
    scheme = scheme_of("behaviour cloning", None, prl.Episodes(packed=True))
    train(scheme, 140)
    assert scheme.algorithm.updates == 4
    scheme.close()
