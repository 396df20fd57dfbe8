"""Soft maxima that are computed block by block, and their gradients, equal those of autograd."""

from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors import batched_passes as of_critic
from pytorchrl.agent.actors.batched_passes import soft_maximum_of_critic
from pytorchrl.agent.ops import soft_maximum
from tests.support.by_hand import envs_with
from tests.support.soft_critics import SPACE

ROWS, NUMBER = 11, 6


def critic_of(**actor: Any) -> Any:
    torch.manual_seed(0)
    envs = envs_with(SPACE)
    body = prl.OffPolicyActor.create_factory(**({"hidden_sizes": (7, 5)} | actor))("cpu", envs)
    algorithm = prl.CQL.create_factory()("cpu", body, envs)
    return algorithm.actor, algorithm.critics[0]


def computed(actor: Any, critic: Any) -> list[torch.Tensor]:
    """The soft maximum, times 3, and the gradients of all parameters."""
    random = torch.Generator().manual_seed(1)
    view = actor.view(torch.randn(ROWS, 3, generator=random))
    action = torch.empty(ROWS, NUMBER, 2).uniform_(-1, 1, generator=random)
    log_density, weight = torch.randn(ROWS, NUMBER, generator=random), torch.rand(ROWS, 1, generator=random)
    loss = 3 * soft_maximum_of_critic(critic, view, action, log_density, weight)
    learnt = [parameter for parameter in critic.parameters() if parameter.requires_grad]
    return [loss.detach(), *torch.autograd.grad(loss, learnt)]


@pytest.mark.parametrize("hidden_sizes", [(), (7,), (7, 5), (4, 6, 5), (40, 24)])
@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("rows_of_a_block", [1, 4 * NUMBER, 10_000])
def test_results_of_blocks_equal_those_of_autograd(
    hidden_sizes: tuple[int, ...], rows_of_a_block: int, activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor, critic = critic_of(hidden_sizes=hidden_sizes, activation=activation)
    monkeypatch.setattr(soft_maximum, "_ROWS_OF_A_BLOCK", rows_of_a_block)
    by_blocks = computed(actor, critic)
    monkeypatch.setattr(of_critic, "weighted_soft_maximum_of_mlp", lambda *given: None)
    for ours, autograds in zip(by_blocks, computed(actor, critic), strict=True):
        torch.testing.assert_close(ours, autograds, rtol=1e-4, atol=1e-6)
