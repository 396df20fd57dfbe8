"""Updates of CrossQ equal those of sb3-contrib, given the same weights, batches and noise, up to rounding."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors.layers.mlp import BatchRenorm
from pytorchrl.agent.actors.network import Network
from tests.benchmarks import test_updates_beside_stable_baselines3 as others

ROWS, UPDATES = 512, 6
SETTINGS: dict[str, Any] = {"lr_pi": 1e-3, "lr_q": 1e-3, "lr_alpha": 1e-3, "gamma": 0.99}


def parameters_of(network: Network) -> list[Tensor]:
    """Weights and biases of the linear layers, the head last, then those of the normalisations."""
    layers = [*linear_layers(network.body if network.joint is None else network.joint), *linear_layers(network.head)]
    norms = [module for module in network.modules() if isinstance(module, BatchRenorm)]
    return [parameter for module in (*layers, *norms) for parameter in (module.weight, module.bias)]


def linear_layers(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def norms_of_peer(network: nn.Module) -> list[Tensor]:
    norms: list[Any] = [module for module in network.modules() if hasattr(module, "ra_mean")]
    return [parameter for norm in norms for parameter in (norm.scale, norm.bias)]


def pairs(algorithm: Any, peer: Any) -> list[tuple[Tensor, Tensor]]:
    actor = peer.actor
    of_policy = [each for layer in linear_layers(actor.latent_pi) for each in (layer.weight, layer.bias)]
    # The layers of mean and standard deviation are one layer in ours.
    of_policy += [torch.cat([getattr(actor.mu, kind), getattr(actor.log_std, kind)]) for kind in ("weight", "bias")]
    found = list(zip(parameters_of(algorithm.pi), of_policy + norms_of_peer(actor), strict=True))
    for mine, theirs in zip(algorithm.critics, peer.critic.q_networks, strict=True):
        layers = [each for layer in linear_layers(theirs) for each in (layer.weight, layer.bias)]
        found += zip(parameters_of(mine), layers + norms_of_peer(theirs), strict=True)
    return found


def test_updates_equal_those_of_sb3_contrib(monkeypatch: pytest.MonkeyPatch) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    monkeypatch.setattr(others, "ROWS", ROWS)
    peer = contrib.CrossQ(
        "MlpPolicy", others.Still(), learning_rate=1e-3, policy_kwargs={"net_arch": [16, 16]}, seed=1, device="cpu"
    )
    peer._setup_learn(1)
    # The peer adds it to the derivative of the tanh, ours is exact.
    peer.actor.action_dist.epsilon = 0.0
    envs: Any = SimpleNamespace(
        observation_space=others.Still.observation_space, action_space=others.Still.action_space
    )
    algorithm: Any = prl.CrossQ.create_factory(**SETTINGS)("cpu", others.ACTOR("cpu", envs), envs)
    with torch.no_grad():
        # Actions are near the middle of their range, where float32 has the logarithm of the derivative exactly.
        for layer in (peer.actor.mu, peer.actor.log_std):
            layer.weight.mul_(0.2)
        peer.actor.log_std.bias.fill_(-1.5)
        for mine, other in pairs(algorithm, peer):
            mine.copy_(other)
    begin = [mine.detach().clone() for mine, _ in pairs(algorithm, peer)]
    noise, generator, var = others.Noise(monkeypatch), np.random.default_rng(0), torch.Tensor.var
    for _ in range(UPDATES):
        batch = others.batch_of(generator)
        of_next, of_now = (
            torch.from_numpy(generator.normal(size=(ROWS, others.ACTION)).astype(np.float32)) for _ in "12"
        )
        noise.give(of_next, of_now)
        with monkeypatch.context() as biased:
            # The peer normalises by the unbiased variance; ours, the authors and torch do by the biased one.
            biased.setattr(torch.Tensor, "var", lambda values, dim: var(values, dim, correction=0))
            others.update_peer(peer, batch)
        noise.give(of_next, of_now)
        algorithm.update(batch)
    for (mine, other), first in zip(pairs(algorithm, peer), begin, strict=True):
        assert (mine - first).abs().max() > 1e-3
        torch.testing.assert_close(mine, other, rtol=0, atol=2e-4)
    torch.testing.assert_close(algorithm.log_alpha.detach(), peer.log_ent_coef.detach(), rtol=0, atol=1e-5)
