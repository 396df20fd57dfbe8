"""MPO's updates from sequences equal those of a reference that goes through each sequence step by step."""

import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, REW, WEIGHTS
from tests.support.by_hand import perturb
from tests.support.slow_learner import SEQUENCES, batch_of, next_features, off_policy_scheme, states_by_hand


@pytest.mark.parametrize(
    "sequences",
    ["burn-in and n steps", *(pytest.param(name, marks=pytest.mark.long) for name in SEQUENCES if "burn" not in name)],
)
def test_an_update_equals_that_of_a_step_by_step_reference(sequences: str) -> None:
    scheme = off_policy_scheme(prl.MPODiscrete, "gru", *SEQUENCES[sequences], num_critics=1, initial_eta=0.6)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.MPODiscrete)
    policy, critic = algorithm.pi, algorithm.critics[0]
    slow_policy, slow_critic = algorithm.target_pi, algorithm.target_critics[0]
    for number, network in enumerate((policy, slow_policy, slow_critic)):
        perturb(network, number, 0.3)
    errors, critic_loss, policy_loss = torch.zeros_like(batch[MASK]), torch.zeros(()), torch.zeros(())
    for b in range(6):
        # Recurrent states are stored for the acting policy; those of the critics begin with zeros.
        seen, _ = states_by_hand(policy.body, batch, b, stored=True)
        seen_before, policy_states = states_by_hand(slow_policy.body, batch, b, stored=True)
        of_critic, _ = states_by_hand(critic.body, batch, b, stored=False)
        of_slow_critic, critic_states = states_by_hand(slow_critic.body, batch, b, stored=False)
        for t in range(len(seen)):
            values = slow_critic.head(next_features(slow_critic.body, batch, b, t, critic_states)).values[0]
            log_probs = slow_policy.head(next_features(slow_policy.body, batch, b, t, policy_states)).log_probs[0]
            target = (batch[REW][t, b] + batch[DISCOUNT][t, b] * (log_probs.exp() * values).sum()).detach()
            error = critic.head(of_critic[t]).values[0, batch[ACT][t, b, 0]] - target
            errors[t, b] = error.detach().abs()
            critic_loss = critic_loss + (batch[MASK][t, b] * batch[WEIGHTS][b] * error**2)[0] / 2

            before = slow_policy.head(seen_before[t]).log_probs[0].detach()
            now = policy.head(seen[t]).log_probs[0]
            scores = before.exp() * (slow_critic.head(of_slow_critic[t]).values[0].detach() / 0.6).exp()
            divergence = (before.exp() * (before - now)).sum()
            likelihood = (scores / scores.sum() * now).sum()
            policy_loss = policy_loss + batch[MASK][t, b, 0] * (divergence - likelihood)
    critic_loss, policy_loss = (loss / batch[MASK].sum() for loss in (critic_loss, policy_loss))
    gradients, result = algorithm.compute_gradients(batch)
    torch.testing.assert_close(result.metrics["critic_loss"], critic_loss.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.metrics["policy_loss"], policy_loss.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.info[ERRORS], errors, rtol=1e-4, atol=1e-5)
    for name, network, loss in (("critics.networks.0", critic, critic_loss), ("policy", policy, policy_loss)):
        expected = torch.autograd.grad(loss, list(network.parameters()))
        for key, gradient in zip(dict(network.named_parameters()), expected, strict=True):
            torch.testing.assert_close(gradients[f"{name}.{key}"], gradient, rtol=1e-3, atol=1e-5)
    scheme.close()
