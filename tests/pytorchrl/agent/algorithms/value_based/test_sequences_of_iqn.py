"""Updates of IQN and Munchausen-DQN from sequences equal those of a reference that goes through them step by step."""

import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, REW, WEIGHTS
from tests.pytorchrl.agent.algorithms.value_based.test_iqn import Draws
from tests.support.by_hand import perturb
from tests.support.slow_learner import SEQUENCES, batch_of, next_features, off_policy_scheme, states_by_hand

QUICK = "burn-in and n steps"
SIZES = {"num_quantiles": 3, "num_target_quantiles": 2, "num_action_quantiles": 4, "num_cosines": 3}
every_kind_of_sequences = pytest.mark.parametrize(
    "sequences", [name if name == QUICK else pytest.param(name, marks=pytest.mark.long) for name in SEQUENCES]
)


@every_kind_of_sequences
def test_iqns_update_equals_that_of_a_step_by_step_reference(sequences: str) -> None:
    scheme = off_policy_scheme(prl.IQN, "gru", *SEQUENCES[sequences], **SIZES)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.IQN)
    network, target_network = algorithm.q, algorithm.q_target
    perturb(target_network, 1, 0.1)
    draw = Draws(algorithm)
    to_act, of_target, fractions = (torch.from_numpy(draw(count)).float() for count in (4, 2, 3))
    errors, loss = torch.zeros_like(batch[MASK]), torch.zeros(())
    for b in range(6):
        features, _ = states_by_hand(network.body, batch, b, stored=True)
        _, target_states = states_by_hand(target_network.body, batch, b, stored=True)
        for t in range(len(features)):
            quantiles = network.head(features[t]).at(fractions).quantiles[0, batch[ACT][t, b, 0]]
            after = target_network.head(next_features(target_network.body, batch, b, t, target_states))
            chosen = after.at(to_act).quantiles[0].mean(1).argmax()
            following = after.at(of_target).quantiles[0, chosen]
            target = (batch[REW][t, b] + batch[DISCOUNT][t, b] * following).detach()
            error = target[None] - quantiles[:, None]
            huber = torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5)
            row = ((fractions[:, None] - (error < 0).float()).abs() * huber).mean(1).sum()
            errors[t, b] = row.detach()
            loss = loss + batch[MASK][t, b, 0] * batch[WEIGHTS][b, 0] * row
    loss = loss / batch[MASK].sum()
    expected = torch.autograd.grad(loss, list(network.parameters()))
    gradients, result = algorithm.compute_gradients(batch)
    torch.testing.assert_close(result.metrics["loss"], loss.detach())
    torch.testing.assert_close(result.info[ERRORS], errors, atol=1e-5, rtol=1e-4)
    for name, gradient in zip(dict(network.named_parameters()), expected, strict=True):
        torch.testing.assert_close(gradients[f"q.{name}"], gradient, atol=1e-5, rtol=1e-4)
    scheme.close()


@every_kind_of_sequences
def test_munchausen_dqns_errors_equal_those_of_a_step_by_step_reference(sequences: str) -> None:
    scheme = off_policy_scheme(prl.MunchausenDQN, "lstm", *SEQUENCES[sequences], temperature=0.1)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.MunchausenDQN)
    network, target_network = algorithm.q, algorithm.q_target
    perturb(target_network, 1, 0.1)
    errors = torch.zeros_like(batch[MASK])
    for b in range(6):
        features, _ = states_by_hand(network.body, batch, b, stored=True)
        seen, target_states = states_by_hand(target_network.body, batch, b, stored=True)
        for t in range(len(features)):
            action = batch[ACT][t, b, 0]
            after = target_network.head(next_features(target_network.body, batch, b, t, target_states)).values[0]
            bonus = 0.1 * torch.log_softmax(target_network.head(seen[t]).values[0] / 0.1, 0)[action]
            log_policy = torch.log_softmax(after / 0.1, 0)
            soft = (log_policy.exp() * (after - 0.1 * log_policy)).sum()
            target = batch[REW][t, b] + 0.9 * bonus.clamp(-1, 0) + batch[DISCOUNT][t, b] * soft
            errors[t, b] = (network.head(features[t]).values[0, action] - target).abs().detach()
    _, result = algorithm.compute_gradients(batch)
    torch.testing.assert_close(result.info[ERRORS], errors, atol=1e-4, rtol=1e-4)
    scheme.close()
