"""Categorical DQN's update equals the one computed by hand, by algorithm 1 of the paper."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, OBS, OBS2, REW, WEIGHTS
from tests.support.value_learning import (
    NUM_ACTIONS,
    ByHand,
    Floats,
    batch_of_windows,
    check_update,
    linear_learner,
)

ATOMS, LOW, HIGH = 5, -2.0, 2.0
SUPPORT = [LOW + i * (HIGH - LOW) / (ATOMS - 1) for i in range(ATOMS)]


def learner(**hyper_parameters: Any) -> Any:
    given = {"num_atoms": ATOMS, "v_min": LOW, "v_max": HIGH} | hyper_parameters
    return linear_learner(prl.CategoricalDQN, **given)


def batch_with_exact_atoms(seed: int = 0) -> dict[str, Any]:
    """A batch in which some returns lie exactly on inner and outermost atoms, and some beyond the support."""
    batch = batch_of_windows(seed, size=16)
    exact = [(1.0, 0.0), (-2.0, 0.0), (2.0, 0.0), (0.0, 1.0), (1.0, 1.0), (7.0, 0.5), (-9.0, 0.0)]
    for row, (reward, discount) in enumerate(exact):
        batch[REW][row], batch[DISCOUNT][row] = reward, discount
    return batch


def probabilities(logits: Floats) -> Floats:
    """(actions, atoms)."""
    exponents = np.exp(logits.reshape(NUM_ACTIONS, ATOMS))
    return np.asarray(exponents / exponents.sum(1, keepdims=True))


def projected(reward: float, discount: float, mass: Floats) -> list[float]:
    """Each atom's probability goes to its neighbours in proportion to their nearness, all of it where it hits one."""
    found, spacing = [0.0] * ATOMS, (HIGH - LOW) / (ATOMS - 1)
    for atom, probability in zip(SUPPORT, mass, strict=True):
        value = min(max(reward + discount * atom, LOW), HIGH)
        for i, other in enumerate(SUPPORT):
            found[i] += probability * max(0.0, 1 - abs(value - other) / spacing)
    return found


def targets(by_hand: ByHand, double: bool) -> list[list[float]]:
    found = []
    for row in by_hand.rows:
        mass = probabilities(by_hand.target_next_q(row))
        chooser = probabilities(by_hand.next_q(row)) if double else mass
        chosen = int((chooser * SUPPORT).sum(1).argmax())
        found.append(projected(by_hand.reward[row], by_hand.discount[row], mass[chosen]))
    return found


@pytest.mark.parametrize("double", [False, True])
def test_an_update_equals_the_one_computed_by_hand(double: bool) -> None:
    algorithm, batch = learner(double=double), batch_with_exact_atoms()
    by_hand = ByHand(algorithm, batch)
    wanted = targets(by_hand, double)
    assert not np.allclose(wanted, targets(by_hand, not double)), "targets with and without double differ in this batch"
    np.testing.assert_allclose(np.sum(wanted, axis=1), 1)

    def cross_entropy(row: int) -> float:
        found = probabilities(by_hand.q(row))[by_hand.action[row]]
        return -sum(target * math.log(mass) for target, mass in zip(wanted[row], found, strict=True))

    # Priorities follow the cross-entropy.
    check_update(algorithm, batch, by_hand, cross_entropy, np.array([cross_entropy(row) for row in by_hand.rows]))


def test_probabilities_converge_to_the_distribution_of_rewards() -> None:
    algorithm = learner(lr=0.1, double=False)
    batch = batch_of_windows(size=120)
    for key in (OBS, OBS2, DISCOUNT):
        batch[key].zero_()
    batch[WEIGHTS].fill_(1.0)
    # A quarter of the rewards lies half-way between two atoms.
    batch[REW] = torch.tensor([-1.0, 1.0, 1.0, 1.5]).repeat(30)[:, None]
    batch[ACT] = torch.arange(NUM_ACTIONS).repeat_interleave(40)[:, None]
    for _ in range(150):
        algorithm.update(batch)
    found = torch.softmax(algorithm.q(algorithm.actor.view(batch[OBS][:1])).logits[0], 1)
    expected = torch.tensor([0.0, 0.25, 0.0, 0.625, 0.125]).expand(3, -1)
    torch.testing.assert_close(found.detach(), expected, atol=0.02, rtol=0)


def test_an_empty_support_and_a_single_atom_are_refused() -> None:
    with pytest.raises(ValueError, match=r"CategoricalDQN: v_min must be less than v_max=1\.0, got 1\.0"):
        prl.CategoricalDQN.create_factory(v_min=1.0, v_max=1.0)
    with pytest.raises(ValueError, match="CategoricalDQN: num_atoms must be at least 2, got 1"):
        prl.CategoricalDQN.create_factory(num_atoms=1)
