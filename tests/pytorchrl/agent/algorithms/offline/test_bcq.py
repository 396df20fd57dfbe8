"""BCQ's losses, target and choice of actions equal those computed by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, OBS, OBS2, WEIGHTS
from tests.support import proposing
from tests.support.by_hand import copies, exploring, layer_of, linear, numpy, perturb, replayed
from tests.support.data_sets import recorded
from tests.support.proposing import LATENT, ROWS, STORED, check_gradients, linear_learner
from tests.support.training import train


class ByHand(proposing.ByHand):
    """Adds the perturbation network."""

    def __init__(self, algorithm: prl.BCQ) -> None:
        super().__init__(algorithm)
        self.perturbation = layer_of(algorithm.perturbation.head)
        self.target_perturbation = layer_of(algorithm.target_perturbation.head)

    def perturbed(self, layer: Any, obs: Any, action: Any) -> Any:
        moved = action + self.algorithm.phi * np.tanh(linear(layer, np.hstack([obs, action])))
        return moved.clip(-1, 1)

    def next_actions(self, batch: Any, number: int) -> Any:
        several = np.repeat(numpy(batch[OBS2]), number, axis=0)
        return self.perturbed(self.target_perturbation, several, np.tanh(self.decoded(several))).reshape(-1, number, 2)


def linear_bcq(**hyper_parameters: Any) -> prl.BCQ:
    made: prl.BCQ = linear_learner(prl.BCQ, **hyper_parameters)
    return made


@pytest.mark.parametrize(("share", "kl_weight"), [(0.75, 0.5), (1.0, 0.1), (0.0, 0.0)])
def test_losses_and_gradients_equal_those_computed_by_hand(share: float, kl_weight: float) -> None:
    algorithm = linear_bcq(minimum_weight=share, num_target_actions=10, phi=0.1, kl_weight=kl_weight)
    batch = replayed(STORED)
    before = copies(batch)
    hand, obs = ByHand(algorithm), numpy(batch[OBS])
    weight = numpy(batch[WEIGHTS])[:, 0] / ROWS
    # Random numbers in the order in which the algorithm draws them.
    noise = hand.noise(ROWS, LATENT)
    target = hand.target(batch, hand.next_actions(batch, 10))
    proposed = np.tanh(hand.decoded(obs))

    def vae_loss() -> Any:
        return hand.vae_loss(obs, noise)

    def critic_loss() -> Any:
        return hand.critic_loss(obs, target, weight)

    def policy_loss() -> Any:
        action = hand.perturbed(hand.perturbation, obs, proposed)
        return -linear(hand.critics[0], np.hstack([obs, action])).mean()

    gradients, result = algorithm.compute_gradients(batch)
    for name, loss in (("vae_loss", vae_loss), ("critic_loss", critic_loss), ("policy_loss", policy_loss)):
        np.testing.assert_allclose(result.metrics[name], loss(), rtol=1e-4, err_msg=name)
    assert result.errors is not None
    errors = np.mean(np.abs(hand.critic_errors(obs, target)), axis=0)
    np.testing.assert_allclose(numpy(result.errors)[:, 0], errors, rtol=1e-4)
    layers: dict[str, tuple[Any, Any]] = {
        "vae.0": (hand.encoder, vae_loss),
        "vae.1": (hand.decoder, vae_loss),
        "perturbation": (hand.perturbation, policy_loss),
        "critics.networks.0": (hand.critics[0], critic_loss),
        "critics.networks.1": (hand.critics[1], critic_loss),
    }
    check_gradients(gradients, layers)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_it_takes_the_proposed_action_with_the_highest_value_of_the_first_critic() -> None:
    algorithm = linear_bcq(num_actions=20, phi=0.1)
    hand = ByHand(algorithm)
    # The second critic does not affect the choice.
    perturb(algorithm.critics[1], 9)
    exploration = exploring(algorithm, 5, deterministic=True)
    hand.generator.set_state(exploration.generator.get_state())
    obs = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    step = algorithm.acting_step(obs, None, torch.zeros(5, 1), exploration)
    several = np.repeat(numpy(obs), 20, axis=0)
    action = hand.perturbed(hand.perturbation, several, np.tanh(hand.decoded(several)))
    values = linear(hand.critics[0], np.hstack([several, action])).reshape(5, 20)
    best = action.reshape(5, 20, 2)[np.arange(5), values.argmax(1)]
    np.testing.assert_allclose(numpy(step.env_action), best * [2, 2.5] + [0, 2.5], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(step.action, step.env_action)


def test_an_action_is_perturbed_by_at_most_phi_and_stays_within_bounds() -> None:
    algorithm = linear_bcq(phi=0.07)
    perturb(algorithm.perturbation, 5, 100.0)
    obs = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    action = torch.empty(200, 2).uniform_(-1, 1, generator=torch.Generator().manual_seed(1))
    moved = algorithm._perturbed(algorithm.perturbation, algorithm.actor.view(obs), action)
    assert moved.abs().max() <= 1
    distance = (moved - action).abs()
    assert distance.max() <= 0.07 + 1e-6
    torch.testing.assert_close(distance[moved.abs() < 1].max(), torch.tensor(0.07))


@pytest.mark.long
def test_an_autoencoder_proposes_actions_like_those_of_the_data(tmp_path: Path) -> None:
    scheme = bcq_scheme(recorded(tmp_path / "data.npz", "Pendulum-v1", steps=200), hidden_sizes=(32,))
    train(scheme, 300)
    held = scheme.storage.get_all_buffer_data()
    obs = held[OBS][:, 0]
    algorithm = scheme.algorithm
    with torch.no_grad():
        view, generator = algorithm.actor.view(obs), torch.Generator().manual_seed(0)
        proposed = torch.tanh(algorithm.vae.sample_unsquashed(view, len(obs), algorithm.latent_clip, generator))
    # The actions of the data are determined by the observations.
    assert (algorithm.codec.to_env(proposed) - held[ACT][:, 0]).abs().mean() < 0.3


def bcq_scheme(data: Path, seed: int = 0, **actor: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.BCQ.create_factory(mini_batch_size=16, num_actions=8, num_test_episodes=1, test_every=8),
        prl.OffPolicyActor.create_factory(**({"hidden_sizes": (8,)} | actor)),
        prl.from_dataset(prl.PERBuffer.create_factory(size=200, alpha=0.6, n_step=2), data),
        test_envs_factory=prl.VecEnv.create_factory("Pendulum-v1", env_kwargs={"max_episode_steps": 10}),
        seed=seed,
    )
