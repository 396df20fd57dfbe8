"""Updates of action values from sequences equal those of a reference that goes through them step by step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, MASK, OBS2, REW, WEIGHTS, WINDOW
from tests.pytorchrl.agent.algorithms.value_based.test_iqn import Draws
from tests.support.by_hand import perturb
from tests.support.memories import LinearAfterGRU, WithTrace
from tests.support.slow_learner import (
    SEQUENCES,
    assert_gradients,
    batch_of,
    next_features,
    off_policy_scheme,
    states_by_hand,
)


class Step(NamedTuple):
    """A step of a sequence, and the features of both networks in it and in the observation n steps later."""

    action: Any
    reward: Tensor
    discount: Tensor
    now: Any
    of_target: Any
    following: Any
    of_target_following: Any


Rule = Callable[[Any, Step], tuple[Tensor, Tensor]]
"""From an algorithm and a step to the loss and the error of the step."""


def huber(error: Tensor) -> tuple[Tensor, Tensor]:
    return F.huber_loss(error, torch.zeros(())), error.abs()


def dqn(algorithm: Any, step: Step) -> tuple[Tensor, Tensor]:
    after = algorithm.q_target.head(step.of_target_following).values[0]
    online = algorithm.q.head(step.following).values[0]
    chosen = (online if algorithm.double else after).argmax()
    target = (step.reward + step.discount * after[chosen]).detach()
    return huber(algorithm.q.head(step.now).values[0, step.action] - target)


def by_quantiles(quantiles: Tensor, fractions: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    error = target.detach()[None] - quantiles[:, None]
    of_pairs = torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5)
    loss = ((fractions[:, None] - (error < 0).float()).abs() * of_pairs).mean(1).sum()
    return loss, loss


def qrdqn(algorithm: Any, step: Step) -> tuple[Tensor, Tensor]:
    after = algorithm.q_target.head(step.of_target_following).quantiles[0]
    online = algorithm.q.head(step.following).quantiles[0]
    chosen = (online if algorithm.double else after).mean(1).argmax()
    quantiles = algorithm.q.head(step.now).quantiles[0, step.action]
    return by_quantiles(quantiles, torch.tensor([1 / 6, 3 / 6, 5 / 6]), step.reward + step.discount * after[chosen])


def iqn(algorithm: Any, step: Step) -> tuple[Tensor, Tensor]:
    draw = Draws(algorithm)
    to_act, of_target, fractions = (torch.from_numpy(draw(count)).float() for count in (4, 2, 3))
    after = algorithm.q_target.head(step.of_target_following)
    following = after.at(of_target).quantiles[0, after.at(to_act).quantiles[0].mean(1).argmax()]
    quantiles = algorithm.q.head(step.now).at(fractions).quantiles[0, step.action]
    return by_quantiles(quantiles, fractions, step.reward + step.discount * following)


def naf(algorithm: Any, step: Step) -> tuple[Tensor, Tensor]:
    value, peak, log_factor = algorithm.q_target.head.numbers(step.of_target_following)[0]
    after = value - 0.5 * (log_factor.exp() * (peak.clamp(-1, 1) - peak)) ** 2
    target = (step.reward + step.discount * after).detach()
    value, peak, log_factor = algorithm.q.head.numbers(step.now)[0]
    # Pendulum's actions lie within [-2, 2].
    error = value - 0.5 * (log_factor.exp() * (step.action / 2 - peak)) ** 2 - target
    return 0.5 * error**2, error.abs()


def with_target(target_of: Callable[[Tensor, Tensor, Step], Tensor]) -> Rule:
    """The rule of a target that depends on values of the target network in this step and in the next."""

    def rule(algorithm: Any, step: Step) -> tuple[Tensor, Tensor]:
        now, following = (
            algorithm.q_target.head(each).values[0] for each in (step.of_target, step.of_target_following)
        )
        target = target_of(now, following, step)
        # Gradients pass through the target if the network is its own target.
        target = target if algorithm.q is algorithm.q_target else target.detach()
        return huber(algorithm.q.head(step.now).values[0, step.action] - target)

    return rule


def pal(now: Tensor, following: Tensor, step: Step) -> Tensor:
    advantage = now[step.action] - now.max()
    if step.discount != 0:
        advantage = advantage.maximum(following[step.action] - following.max())
    return step.reward + step.discount * following.max() + 0.9 * advantage


def dpp(now: Tensor, following: Tensor, step: Step) -> Tensor:
    mean_now, mean_next = ((torch.softmax(values, 0) * values).sum() for values in (now, following))
    return now[step.action] + step.reward + step.discount * mean_next - mean_now


def residual(now: Tensor, following: Tensor, step: Step) -> Tensor:
    return step.reward + step.discount * following.max()


def munchausen(now: Tensor, following: Tensor, step: Step) -> Tensor:
    bonus = 0.1 * torch.log_softmax(now / 0.1, 0)[step.action]
    log_policy = torch.log_softmax(following / 0.1, 0)
    soft = (log_policy.exp() * (following - 0.1 * log_policy)).sum()
    return step.reward + 0.9 * bonus.clamp(-1, 0) + step.discount * soft


SIZES = {"num_quantiles": 3, "num_target_quantiles": 2, "num_action_quantiles": 4, "num_cosines": 3}
SEVERAL = (LinearAfterGRU, "lstm", WithTrace)
"""A memory of several layers, two of them the user's."""
PLAIN, BURN_IN, ACROSS, EPISODES, PIECES = SEQUENCES
CASES: dict[str, tuple[Any, Rule, dict[str, Any], list[tuple[str, Any]]]] = {
    "DQN": (prl.DQN, dqn, {"double": False}, [(BURN_IN, "lstm"), (EPISODES, "gru"), (PLAIN, SEVERAL)]),
    "double DQN": (prl.DQN, dqn, {}, [(PLAIN, "gru"), (ACROSS, SEVERAL), (PIECES, "lstm"), (EPISODES, "lstm")]),
    "QRDQN": (prl.QRDQN, qrdqn, {"double": False, "num_quantiles": 3}, [(BURN_IN, "lstm"), (ACROSS, "gru")]),
    "double QRDQN": (prl.QRDQN, qrdqn, {"num_quantiles": 3}, [(PLAIN, "gru"), (EPISODES, "lstm"), (PIECES, "gru")]),
    "IQN": (prl.IQN, iqn, SIZES, [(BURN_IN, "gru"), (ACROSS, "lstm"), (EPISODES, "gru")]),
    "NAF": (prl.NAF, naf, {}, [(BURN_IN, "gru"), (PLAIN, "lstm"), (EPISODES, "gru")]),
    "PAL": (prl.PAL, with_target(pal), {}, [(BURN_IN, "gru"), (EPISODES, "lstm")]),
    "DPP": (prl.DPP, with_target(dpp), {}, [(BURN_IN, "gru"), (PIECES, "gru")]),
    "ResidualDQN": (prl.ResidualDQN, with_target(residual), {}, [(BURN_IN, "gru"), (ACROSS, "lstm")]),
    "MunchausenDQN": (
        prl.MunchausenDQN,
        with_target(munchausen),
        {"temperature": 0.1},
        [(BURN_IN, "lstm"), (PLAIN, "gru"), (PIECES, "lstm")],
    ),
}


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    ("name", "sequences", "memory"), [(name, *each) for name, case in CASES.items() for each in case[-1]]
)
def test_an_update_equals_that_of_a_step_by_step_reference(name: str, sequences: str, memory: Any) -> None:
    cls, rule, settings, _ = CASES[name]
    scheme = off_policy_scheme(cls, memory, *SEQUENCES[sequences], **settings)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    network, target = algorithm.q, algorithm.q_target
    if network is not target:
        perturb(target, 1, 0.1)
    errors, loss = torch.zeros_like(batch[MASK]), torch.zeros(())
    for b in range(6):
        features, states = states_by_hand(network.body, batch, b, stored=True)
        of_target, target_states = states_by_hand(target.body, batch, b, stored=True)
        for t in range(len(features)):
            following = next_features(network.body, batch, b, t, states)
            if network is target:
                # Gradients pass through the next observation and not through the steps before it.
                state = states[t + int(batch[WINDOW][t, b]) - 1]
                after, _ = target.body(batch[OBS2][t, b : b + 1], state, torch.zeros(1, 1))
            else:
                after = next_features(target.body, batch, b, t, target_states)
            given = (batch[key][t, b, 0] for key in (ACT, REW, DISCOUNT))
            row, error = rule(algorithm, Step(*given, features[t], of_target[t], following, after))
            errors[t, b] = error.detach()
            loss = loss + batch[MASK][t, b, 0] * batch[WEIGHTS][b, 0] * row.squeeze()
    assert_gradients(algorithm, batch, {"q": network}, {"loss": loss / batch[MASK].sum()}, errors)
    scheme.close()
