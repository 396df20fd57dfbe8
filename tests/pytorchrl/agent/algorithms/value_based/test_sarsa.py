"""SARSA bootstraps from the next action taken, or from one that its explorer chooses if no next action is stored."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import ACT, ACT2, DISCOUNT, DONE2, REW, TAKEN2, TRUNC2
from tests.support.by_hand import exploring
from tests.support.slow_learner import SEQUENCES, batch_of, off_policy_scheme
from tests.support.value_learning import NUM_ACTIONS, ByHand, batch_of_windows, check_scalar_update, linear_learner


def batch_with_next_actions(seed: int = 0, size: int = 12) -> dict[str, Any]:
    """No next action where an episode ended, nor in the last row, the newest step."""
    batch = batch_of_windows(seed, size)
    taken = 1 - torch.maximum(batch[DONE2], batch[TRUNC2])
    taken[-1] = 0
    following = np.random.default_rng(seed + 7).integers(NUM_ACTIONS, size=(size, 1))
    return batch | {TAKEN2: taken, ACT2: torch.from_numpy(following)}


def bootstrapped(by_hand: ByHand, row: int, action: int) -> float:
    return float(by_hand.reward[row] + by_hand.discount[row] * by_hand.target_next_q(row)[action])


@pytest.mark.parametrize("double", [True, False])
def test_an_update_equals_the_one_computed_by_hand(double: bool) -> None:
    algorithm, batch = linear_learner(prl.SARSA, epsilon=0.0, double=double), batch_with_next_actions()

    def target(by_hand: ByHand, row: int) -> float:
        if batch[TAKEN2][row] == 1:
            return bootstrapped(by_hand, row, int(batch[ACT2][row, 0]))
        chooser = by_hand.next_q(row) if double else by_hand.target_next_q(row)
        return bootstrapped(by_hand, row, int(np.argmax(chooser)))

    check_scalar_update(algorithm, batch, target)


@pytest.mark.parametrize("next_action", ["taken", "policy"])
@pytest.mark.parametrize("double", [True, False])
def test_chosen_next_actions_come_from_the_explorer(next_action: str, double: bool) -> None:
    algorithm = linear_learner(prl.SARSA, epsilon=0.5, double=double, next_action=next_action)
    batch = batch_with_next_actions(size=40)
    by_hand = ByHand(algorithm, batch)
    # The random numbers that the update will draw, in the same order.
    draws = exploring(algorithm, 40)
    draws.load_state_dict(algorithm.state_dict()["exploration"])
    explores, uniform = draws.random.random((40, 1))[:, 0] < 0.5, draws.uniform_actions()[:, 0]
    assert 5 < explores.sum() < 35

    def target(by_hand: ByHand, row: int) -> float:
        if next_action == "taken" and batch[TAKEN2][row] == 1:
            return bootstrapped(by_hand, row, int(batch[ACT2][row, 0]))
        chooser = by_hand.next_q(row) if double else by_hand.target_next_q(row)
        return bootstrapped(by_hand, row, int(uniform[row]) if explores[row] else int(np.argmax(chooser)))

    targets = algorithm.target_value(Rows(batch, algorithm.codec)).mean[:, 0]
    torch.testing.assert_close(targets, torch.tensor([target(by_hand, row) for row in by_hand.rows]))


def test_targets_do_not_use_the_random_actions_of_start_steps() -> None:
    algorithm = linear_learner(prl.SARSA, epsilon=0.0, double=False, next_action="policy", start_steps=1_000)
    batch = batch_with_next_actions(size=60)
    assert algorithm.steps == 0
    rows = Rows(batch, algorithm.codec)
    expected = rows.reward + rows.discount * algorithm.q_target(rows.next).best().mean
    torch.testing.assert_close(algorithm.target_value(Rows(batch, algorithm.codec)).mean, expected)


def test_the_explorer_of_next_actions_follows_its_schedule_and_can_be_replaced() -> None:
    algorithm = linear_learner(prl.SARSA, epsilon=prl.LinearSchedule(1.0, 0.0), next_action="policy", double=False)
    rows = Rows(batch_with_next_actions(size=300), algorithm.codec)
    values = algorithm.q_target(rows.next)

    def share_of_greedy() -> float:
        return float((algorithm.chosen_next(rows, values) == values.greedy()).float().mean())

    shares = []
    for steps in (0, 50, 100):
        algorithm.set_progress(steps, 100)
        shares.append(share_of_greedy())
    assert abs(shares[0] - 1 / 3) < 0.1
    assert abs(shares[1] - 2 / 3) < 0.1
    assert shares[2] == 1
    algorithm.update_algorithm_parameter("explorer", prl.Boltzmann(1e6))
    assert abs(share_of_greedy() - 1 / 3) < 0.1


@pytest.mark.parametrize(
    "sequences",
    ["burn-in and n steps", *(pytest.param(n, marks=pytest.mark.long) for n in SEQUENCES if "burn" not in n)],
)
def test_each_step_of_a_sequence_uses_its_own_next_action(sequences: str) -> None:
    scheme = off_policy_scheme(prl.SARSA, "gru", *SEQUENCES[sequences], epsilon=0.0)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.SARSA)
    rows = algorithm.read(batch)
    values, chosen = algorithm.q_target(rows.next).values, algorithm.q(rows.next).greedy()
    targets = algorithm.target_value(rows).mean.view(batch[REW].shape)
    assert 0 < batch[TAKEN2].mean() < 1
    for row, position in enumerate(np.ndindex(*batch[ACT].shape[:-1])):
        action = batch[ACT2][position] if batch[TAKEN2][position] else chosen[row]
        expected = batch[REW][position] + batch[DISCOUNT][position] * values[row, int(action)]
        torch.testing.assert_close(targets[position], expected)
    scheme.close()


class Forgetful(prl.ReplayBuffer):
    """A storage that does not know next actions."""

    knows_next_actions = False


def test_unsupported_storages_and_next_actions_are_refused() -> None:
    def scheme(storage: Any) -> prl.Scheme:
        envs = prl.VecEnv.create_factory("CartPole-v1")
        return prl.Scheme(prl.SARSA.create_factory(), prl.OffPolicyActor.create_factory(), storage, envs)

    with pytest.raises(prl.CompositionError, match="SARSA learns from next actions, which batches of Forget"):
        scheme(Forgetful.create_factory(size=10))
    with pytest.raises(prl.CompositionError, match="SARSA learns from replayed transitions, but GAEBuffer"):
        scheme(prl.GAEBuffer.create_factory(size=10))
    with pytest.raises(ValueError, match="SARSA: next_action must be one of"):
        prl.SARSA.create_factory(next_action="last")  # type: ignore[arg-type]
