"""Algorithms that propose actions similar to the data, with networks of one layer, and their update in numpy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

import pytorchrl as prl
from storages.transition import DISCOUNT, OBS2, REW
from tests.support.by_hand import envs_with, layer_of, linear, numeric_gradient, numpy, perturb

BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))
STORED = np.array([[0.3, 4.0], [-1.9, 0.1], [2.0, 5.0], [0.0, 2.0], [1.0, 1.0], [-0.5, 3.0]], np.float32)
SCALED = np.stack([STORED[:, 0] / 2, STORED[:, 1] / 2.5 - 1], axis=1).astype(np.float64)
"""The same actions within [-1, 1]."""
ROWS, LATENT = 6, 4


def linear_learner(cls: Any, actor: Mapping[str, Any] | None = None, **hyper_parameters: Any) -> Any:
    """An algorithm whose networks and target networks are different single layers, unless the actor has others."""
    envs = envs_with(BOX)
    body = prl.OffPolicyActor.create_factory(**{"hidden_sizes": (), **(actor or {})})("cpu", envs)
    algorithm = cls.create_factory(**hyper_parameters)("cpu", body, envs)
    targets = [target.network for target in algorithm.training.targets.values()]
    for number, network in enumerate((body, *reversed(targets))):
        perturb(network, number, 0.5)
    return algorithm


class ByHand:
    """The networks that these algorithms share, and the random numbers of the next update."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm
        self.encoder, self.decoder = (layer_of(part.head) for part in (algorithm.vae.encoder, algorithm.vae.decoder))
        self.critics = [layer_of(critic.head) for critic in algorithm.critics]
        self.target_critics = [layer_of(critic.head) for critic in algorithm.target_critics]
        self.generator = torch.Generator()
        self.generator.set_state(algorithm.generator.get_state())

    def noise(self, *shape: int) -> NDArray[np.float64]:
        """The next random numbers."""
        return numpy(torch.empty(shape).normal_(generator=self.generator))

    def unsquashed(self, obs: Any, latent: Any) -> Any:
        """The output of the decoder for latent numbers."""
        return linear(self.decoder, np.hstack([obs, latent]))

    def decoded(self, obs: Any) -> Any:
        """Actions before the tanh, for latent numbers within their bounds."""
        clip = self.algorithm.latent_clip
        return self.unsquashed(obs, self.noise(len(obs), LATENT).clip(-clip, clip))

    def vae_loss(self, obs: Any, noise: Any) -> float:
        """The squared errors of the likelihood and the divergence from normals, number by number."""
        encoded = linear(self.encoder, np.hstack([obs, SCALED]))
        total = 0.0
        for row in range(ROWS):
            mean, log_std = encoded[row, :LATENT], encoded[row, LATENT:].clip(-20, 2)
            latent = mean + np.exp(log_std) * noise[row]
            action = np.tanh(self.unsquashed(obs[row : row + 1], latent[None])[0])
            squares = [(action[part] - SCALED[row, part]) ** 2 for part in range(2)]
            divergences = [0.5 * (m**2 + np.exp(2 * s) - 1 - 2 * s) for m, s in zip(mean, log_std, strict=True)]
            total += np.mean(squares) + self.algorithm.kl_weight * np.mean(divergences)
        return total / ROWS

    def target(self, batch: Any, actions: Any) -> Any:
        """(N): targets of next actions (N, number, A), by the best mixture of smallest and largest target critic."""
        share, best = self.algorithm.minimum_weight, np.zeros(ROWS)
        for row, following in enumerate(numpy(batch[OBS2])):
            values = []
            for action in actions[row]:
                of_critics = [linear(critic, np.concatenate([following, action]))[0] for critic in self.target_critics]
                values.append(share * min(of_critics) + (1 - share) * max(of_critics))
            best[row] = max(values)
        return numpy(batch[REW])[:, 0] + numpy(batch[DISCOUNT])[:, 0] * best

    def critic_errors(self, obs: Any, target: Any) -> list[Any]:
        """Errors (N) of each critic."""
        return [linear(critic, np.hstack([obs, SCALED]))[:, 0] - target for critic in self.critics]

    def critic_loss(self, obs: Any, target: Any, weight: Any) -> float:
        """The loss of all critics: half the squares, as in TD3 and SAC."""
        return float(sum((weight * 0.5 * error**2).sum() for error in self.critic_errors(obs, target)))


def check_gradients(gradients: Any, layers: dict[str, tuple[Any, Any]]) -> None:
    """Assert that gradients are those of the loss of each layer, and that there are no others."""
    assert {name.partition(".head")[0] for name in gradients if ".head" in name} == set(layers)
    for name, (layer, loss) in layers.items():
        for parameter, kind in zip(layer, ("weight", "bias"), strict=True):
            found = numpy(gradients[f"{name}.head.layer.{kind}"])
            by_hand = numeric_gradient(loss, parameter)
            np.testing.assert_allclose(found, by_hand, rtol=2e-3, atol=1e-5, err_msg=name)
