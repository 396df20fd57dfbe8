"""EDAC's losses and gradients equal those of slow numpy loops over pairs of critics."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from storages.transition import ACT, ERRORS, OBS, WEIGHTS
from tests.support.by_hand import envs_with, numpy, replayed
from tests.support.soft_critics import ACTIONS, ByHand, assert_gradients, made, n_step_batch


class NumpyEDAC(ByHand):
    """The gradients of linear critics with respect to actions are their action weights, in every row."""

    def __init__(self, algorithm: prl.EDAC, batch: dict[str, torch.Tensor]) -> None:
        self.eta = algorithm.eta
        super().__init__(algorithm, batch)

    def similarity(self) -> float:
        total = 0.0
        for row in range(len(self.taken)):
            for one in range(len(self.critics)):
                for other in range(len(self.critics)):
                    if one != other:
                        first, second = self.critics[one][0][0, 3:], self.critics[other][0][0, 3:]
                        cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
                        total += self.batch[WEIGHTS][row, 0] * cosine
        return total / len(self.taken) / (len(self.critics) - 1)

    def critic_loss(self) -> float:
        return super().critic_loss() + 0.5 * self.eta * self.similarity()


def similarity(algorithm: prl.EDAC, rows: Any) -> torch.Tensor:
    """The similarity of the critics at the actions taken."""
    actions = [rows.action.clone().requires_grad_() for _ in algorithm.critics]
    values = [critic(rows.now, action) for critic, action in zip(algorithm.critics, actions, strict=True)]
    return algorithm.similarity(values, actions)


@pytest.mark.parametrize(("num_critics", "eta"), [(2, 1.0), (4, 3.0)])
def test_losses_errors_and_gradients_equal_those_of_numpy_loops(num_critics: int, eta: float) -> None:
    algorithm = made(prl.EDAC, num_critics=num_critics, eta=eta, initial_alpha=0.3)
    batch = n_step_batch()
    by_hand = NumpyEDAC(algorithm, batch)
    assert_gradients(algorithm, batch, by_hand)
    metrics = algorithm.compute_gradients(batch)[1].metrics
    np.testing.assert_allclose(metrics["similarity"], by_hand.similarity() / num_critics, rtol=1e-4)


def test_similarities_of_critics_with_hidden_layers_are_those_of_numeric_gradients() -> None:
    algorithm = made(prl.EDAC, actor={"hidden_sizes": (7,)}, num_critics=3)
    batch = replayed(ACTIONS)
    rows = algorithm.read(batch)
    found = numpy(similarity(algorithm, rows))
    step, action = 1e-3, rows.action.double()
    critics = [critic.double() for critic in algorithm.critics]
    view = algorithm.actor.view(batch[OBS].double())
    for row in range(len(action)):
        directions = []
        for critic in critics:
            gradient = []
            for number in range(2):
                moved = torch.zeros_like(action)
                moved[row, number] = step
                with torch.no_grad():
                    above, below = (critic(view, action + sign * moved).mean[row, 0] for sign in (1, -1))
                gradient.append((above - below).item() / (2 * step))
            directions.append(np.array(gradient) / np.linalg.norm(gradient))
        pairs = sum(directions[i] @ directions[j] for i in range(3) for j in range(3) if i != j)
        np.testing.assert_allclose(found[row, 0], pairs / 2, rtol=1e-3, atol=1e-4)


def test_without_eta_it_equals_sac_with_as_many_critics() -> None:
    sac, edac = made(prl.SAC, num_critics=5, lr_q=3e-4), made(prl.EDAC, num_critics=5, eta=0.0)
    edac.load_state_dict(sac.state_dict())
    ours, theirs = edac.update(n_step_batch()).info, sac.update(n_step_batch()).info
    assert torch.equal(ours[ERRORS], theirs[ERRORS])
    assert torch.equal(ours["critic_loss"], theirs["critic_loss"])
    for name, weight in sac.get_weights().items():
        assert torch.equal(weight, edac.get_weights()[name])


def test_diversifying_a_single_critic_is_refused() -> None:
    with pytest.raises(ValueError, match=r"EDAC: eta=1.0 diversifies the critics' gradients.*num_critics=1"):
        prl.EDAC.create_factory(num_critics=1)
    prl.EDAC.create_factory(num_critics=1, eta=0.0)


def test_the_batch_gets_no_gradient() -> None:
    # With these bounds, networks see the actions of the batch as they are.
    envs = envs_with(spaces.Box(-1.0, 1.0, (2,), np.float32))
    algorithm = prl.EDAC.create_factory(num_critics=2)("cpu", prl.OffPolicyActor.create_factory()("cpu", envs), envs)
    batch = n_step_batch()
    algorithm.update(batch)
    assert not batch[ACT].requires_grad
    assert batch[ACT].grad is None
