"""DroQ's losses and gradients equal those of a slow numpy version that drops the same features."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import pytorchrl as prl
from pytorchrl.agent.actors.layers.mlp import Dropout
from tests.support.by_hand import exploring, layer_of, linear, numpy
from tests.support.soft_critics import ByHand, assert_gradients, drawn, made, n_step_batch

UNITS, DROPOUT = 4, 0.4


class NumpyDroQ(ByHand):
    """Critics of one hidden layer, followed by dropout and layer normalisation."""

    def prepare(self, algorithm: Any) -> None:
        number = len(algorithm.critics)
        (order,) = drawn(algorithm.subset_generator, [lambda g: torch.randperm(number, generator=g)])
        # Masks of the targets, of the values of the actions taken, and of the values of the policy's actions.
        kept = [lambda g: torch.empty(5, UNITS).bernoulli_(1 - DROPOUT, generator=g)] * (3 * number)
        self._masks = [mask / (1 - DROPOUT) for mask in drawn(algorithm.actor.generator, kept)]
        # The policy has one hidden layer without normalisation.
        self._hidden_of_policy = [numpy(part) for part in algorithm.pi.body.hidden.layers[0].parameters()]
        targets = [algorithm.target_critics[int(position)] for position in order]
        self.target_critics = [layer_of(critic.head) for critic in targets]
        every = [*targets, *algorithm.critics, *algorithm.critics]
        self._hidden = [
            (
                [numpy(part) for part in critic.joint.layers[0].parameters()],
                [numpy(part) for part in critic.joint.norms[0].parameters()],
            )
            for critic in every
        ]

    def policy_output(self, obs: Any) -> Any:
        return linear(self.policy, np.maximum(linear(self._hidden_of_policy, obs), 0))

    def values(self, critics: Sequence[Any], obs: Any, action: Any) -> list[Any]:
        number = len(self.critics)
        is_target = critics is self.target_critics
        is_policy = not is_target and action is not self.taken
        begin = 0 if is_target else 2 * number if is_policy else number
        values = []
        for position, critic in enumerate(critics, begin):
            layer, (scale, shift) = self._hidden[position]
            features = linear(layer, np.hstack([obs, action])) * self._masks[position]
            centred = features - features.mean(1, keepdims=True)
            features = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + shift
            values.append(linear(critic, np.maximum(features, 0)))
        return values

    def of_policy(self, values: list[Any]) -> Any:
        return np.mean(values, axis=0)


def droq(**hyper_parameters: Any) -> Any:
    return made(prl.DroQ, {"hidden_sizes": (UNITS,)}, policy_delay=1, **hyper_parameters)


def test_gradients_equal_those_of_a_numpy_version() -> None:
    algorithm = droq(dropout=DROPOUT, initial_alpha=0.3)
    assert_gradients(algorithm, n_step_batch(), NumpyDroQ(algorithm, n_step_batch()))


def test_only_critics_and_their_targets_have_dropout_and_layer_normalisation() -> None:
    algorithm = droq(dropout=0.1)

    def kinds(network: nn.Module) -> set[type[nn.Module]]:
        return {type(module) for module in network.modules()} & {Dropout, nn.LayerNorm}

    assert kinds(algorithm.critics) == kinds(algorithm.target_critics) == {Dropout, nn.LayerNorm}
    assert not kinds(algorithm.pi)
    assert kinds(droq(dropout=0.0).critics) == {nn.LayerNorm}


def test_acting_draws_no_dropout_masks() -> None:
    algorithm = droq(dropout=0.5, start_steps=0)
    before = algorithm.actor.generator.get_state()
    algorithm.acting_step(torch.randn(4, 3), None, torch.zeros(4, 1), exploring(algorithm, 4))
    assert torch.equal(algorithm.actor.generator.get_state(), before)
