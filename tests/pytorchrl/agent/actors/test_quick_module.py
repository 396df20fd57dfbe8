"""Modules that bypass the call overhead of nn.Module still have the features of torch modules."""

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.bodies import Body
from pytorchrl.agent.actors.layers.quick_module import QuickModule


def body() -> Body:
    return Body(gym.spaces.Box(-1, 1, (3,), np.float32), (4,), "tanh", "orthogonal")


def test_hooks_run() -> None:
    module, seen = body(), []

    def double(hooked: nn.Module, arguments: Any, output: Tensor) -> Tensor:
        seen.append(output)
        return 2 * output

    plain = module(torch.ones(1, 3))
    handle = module.hidden.register_forward_hook(double)
    assert torch.equal(module(torch.ones(1, 3)), 2 * plain)
    handle.remove()
    assert torch.equal(module(torch.ones(1, 3)), plain)
    assert len(seen) == 1


def test_a_submodule_can_be_replaced_and_removed() -> None:
    module = body()
    module.features = nn.Identity()  # type: ignore[assignment]
    assert isinstance(module.features, nn.Identity)
    assert [name for name, _ in module.named_children()] == ["features", "hidden"]
    del module.features
    with pytest.raises(AttributeError):
        module.features  # noqa: B018


def test_a_copy_has_parameters_of_its_own_and_uses_them() -> None:
    module = body()
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert not other(torch.ones(1, 3)).any()
    assert module(torch.ones(1, 3)).all()


def test_parameters_can_be_given_at_the_call() -> None:
    module = body()
    zeros = {name: torch.zeros_like(parameter) for name, parameter in module.named_parameters()}
    assert not torch.func.functional_call(module, zeros, (torch.ones(1, 3),)).any()


def test_a_module_without_submodules_can_be_called() -> None:
    class Double(QuickModule):
        def forward(self, features: Tensor) -> Tensor:
            return 2 * features

    assert Double()(torch.ones(1)).item() == 2
