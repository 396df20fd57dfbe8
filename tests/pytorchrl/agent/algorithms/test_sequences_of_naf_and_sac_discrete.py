"""Updates of NAF and discrete SAC from sequences equal those of a reference that goes through them step by step."""

from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, REW, WEIGHTS
from tests.support.by_hand import perturb
from tests.support.slow_learner import SEQUENCES, batch_of, next_features, off_policy_scheme, states_by_hand

KINDS = pytest.mark.parametrize(
    "sequences",
    ["burn-in and n steps", *(pytest.param(name, marks=pytest.mark.long) for name in SEQUENCES if "burn" not in name)],
)


def check(network: Any, name: str, algorithm: Any, batch: Any, loss: Any, errors: Any) -> dict[str, Any]:
    """The gradients in a network of a loss, and the errors, are the algorithm's; returns its metrics."""
    expected = torch.autograd.grad(loss, list(network.parameters()))
    gradients, result = algorithm.compute_gradients(batch)
    torch.testing.assert_close(result.info[ERRORS], errors, rtol=1e-4, atol=1e-5)
    for key, gradient in zip(dict(network.named_parameters()), expected, strict=True):
        torch.testing.assert_close(gradients[f"{name}.{key}"], gradient, rtol=1e-3, atol=1e-5)
    metrics: dict[str, Any] = result.metrics
    return metrics


@KINDS
def test_nafs_update_equals_that_of_a_step_by_step_reference(sequences: str) -> None:
    scheme = off_policy_scheme(prl.NAF, "gru", *SEQUENCES[sequences])
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.NAF)
    network, target_network = algorithm.q, algorithm.q_target
    perturb(target_network, 1, 0.5)
    errors, loss = torch.zeros_like(batch[MASK]), torch.zeros(())
    for b in range(6):
        features, _ = states_by_hand(network.body, batch, b, stored=True)
        _, states = states_by_hand(target_network.body, batch, b, stored=True)
        for t in range(len(features)):
            value, peak, log_factor = target_network.head.numbers(
                next_features(target_network.body, batch, b, t, states)
            )[0]
            after = value - 0.5 * (log_factor.exp() * (peak.clamp(-1, 1) - peak)) ** 2
            target = (batch[REW][t, b] + batch[DISCOUNT][t, b] * after).detach()
            value, peak, log_factor = network.head.numbers(features[t])[0]
            action = batch[ACT][t, b] / 2  # Pendulum's actions lie within [-2, 2]
            error = value - 0.5 * (log_factor.exp() * (action - peak)) ** 2 - target
            errors[t, b] = error.detach().abs()
            loss = loss + (batch[MASK][t, b] * batch[WEIGHTS][b] * error**2)[0] / 2
    loss = loss / batch[MASK].sum()
    metrics = check(network, "q", algorithm, batch, loss, errors)
    torch.testing.assert_close(metrics["loss"], loss.detach())
    scheme.close()


@KINDS
def test_discrete_sacs_update_equals_that_of_a_step_by_step_reference(sequences: str) -> None:
    scheme = off_policy_scheme(prl.SACDiscrete, "lstm", *SEQUENCES[sequences], num_critics=1, initial_alpha=0.3)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.SACDiscrete)
    policy, critic, target_critic = algorithm.pi, algorithm.critics[0], algorithm.target_critics[0]
    for network in (policy, target_critic):
        perturb(network, 1, 0.1)
    alpha = algorithm.alpha
    errors, critic_loss, policy_loss = torch.zeros_like(batch[MASK]), torch.zeros(()), torch.zeros(())
    for b in range(6):
        # Recurrent states are stored for the acting policy; those of the critics begin with zeros.
        seen, policy_states = states_by_hand(policy.body, batch, b, stored=True)
        of_critic, _ = states_by_hand(critic.body, batch, b, stored=False)
        _, target_states = states_by_hand(target_critic.body, batch, b, stored=False)
        for t in range(len(seen)):
            values = target_critic.head(next_features(target_critic.body, batch, b, t, target_states)).values[0]
            log_probs = policy.head(next_features(policy.body, batch, b, t, policy_states)).log_probs[0]
            after = (log_probs.exp() * (values - alpha * log_probs)).sum()
            target = (batch[REW][t, b] + batch[DISCOUNT][t, b] * after).detach()
            values = critic.head(of_critic[t]).values[0]
            error = values[batch[ACT][t, b, 0]] - target
            errors[t, b] = error.detach().abs()
            critic_loss = critic_loss + (batch[MASK][t, b] * batch[WEIGHTS][b] * error**2)[0] / 2
            log_probs = policy.head(seen[t]).log_probs[0]
            soft = (log_probs.exp() * (values.detach() - alpha * log_probs)).sum()
            policy_loss = policy_loss - batch[MASK][t, b, 0] * soft
    critic_loss, policy_loss = (loss / batch[MASK].sum() for loss in (critic_loss, policy_loss))
    metrics = check(critic, "critics.networks.0", algorithm, batch, critic_loss, errors)
    torch.testing.assert_close(metrics["critic_loss"], critic_loss.detach(), rtol=1e-4, atol=1e-5)
    metrics = check(policy, "policy", algorithm, batch, policy_loss, errors)
    torch.testing.assert_close(metrics["policy_loss"], policy_loss.detach(), rtol=1e-4, atol=1e-5)
    scheme.close()
