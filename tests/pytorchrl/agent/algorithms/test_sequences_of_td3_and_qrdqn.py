"""Updates of TD3 and QR-DQN from sequences equal those of a reference that goes through them step by step."""

import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors.memory import MemoryKind
from storages.transition import ACT, DISCOUNT, ERRORS, MASK, REW, WEIGHTS
from tests.support.by_hand import perturb
from tests.support.slow_learner import SEQUENCES, batch_of, next_features, off_policy_scheme, states_by_hand, valued


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize(("sequences", "kind"), zip(SEQUENCES, ["lstm", "gru", "lstm", "gru", "lstm"], strict=True))
def test_td3s_update_equals_that_of_a_step_by_step_reference(sequences: str, kind: MemoryKind) -> None:
    scheme = off_policy_scheme(prl.TD3, kind, *SEQUENCES[sequences], policy_delay=1)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.TD3)
    for network in (algorithm.target_pi, algorithm.target_critics):
        perturb(network, 1, 0.1)
    shape, targets_of = batch[REW].shape, algorithm.target_critics
    algorithm.seed(3)
    noise = torch.empty(shape).normal_(0, algorithm.target_noise, generator=algorithm.generator)
    noise = noise.clamp(-algorithm.target_noise_clip, algorithm.target_noise_clip)
    critic_loss, policy_loss, errors = torch.zeros(()), torch.zeros(()), torch.zeros(shape)
    for b in range(6):
        # Recurrent states are stored for the acting policy; those of the critics begin with zeros.
        seen, _ = states_by_hand(algorithm.pi.body, batch, b, stored=True)
        _, policy_states = states_by_hand(algorithm.target_pi.body, batch, b, stored=True)
        target_states = [states_by_hand(critic.body, batch, b, stored=False)[1] for critic in targets_of]
        of_critics = [states_by_hand(critic.body, batch, b, stored=False)[0] for critic in algorithm.critics]
        for t in range(shape[0]):
            after = next_features(algorithm.target_pi.body, batch, b, t, policy_states)
            action = (algorithm.target_pi.head(after) + noise[t, b]).clamp(-1, 1)
            values = [
                valued(critic, next_features(critic.body, batch, b, t, states), action)
                for critic, states in zip(targets_of, target_states, strict=True)
            ]
            target = (batch[REW][t, b] + batch[DISCOUNT][t, b] * torch.cat(values).min()).detach()
            stored = algorithm.codec.from_storage(batch[ACT][t, b : b + 1])
            for critic, features in zip(algorithm.critics, of_critics, strict=True):
                error = valued(critic, features[t], stored)[0] - target
                errors[t, b] += error.detach().abs() / 2
                critic_loss = critic_loss + 0.5 * (batch[MASK][t, b] * batch[WEIGHTS][b] * error**2)[0]
            done = algorithm.pi.head(seen[t])
            value = valued(algorithm.critics[0], of_critics[0][t].detach(), done)
            policy_loss = policy_loss - (batch[MASK][t, b] * value[0])[0]
    critic_loss, policy_loss = (loss / batch[MASK].sum() for loss in (critic_loss, policy_loss))
    of_policy = torch.autograd.grad(policy_loss, list(algorithm.pi.parameters()), retain_graph=True)
    of_critic = torch.autograd.grad(critic_loss, list(algorithm.critics.parameters()))

    algorithm.seed(3)
    gradients, result = algorithm.compute_gradients(batch)
    torch.testing.assert_close(result.metrics["critic_loss"], critic_loss.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result.metrics["policy_loss"], policy_loss.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result.info[ERRORS], errors, rtol=1e-4, atol=1e-4)
    for name, gradient in zip(dict(algorithm.critics.named_parameters()), of_critic, strict=True):
        torch.testing.assert_close(gradients[f"critics.{name}"], gradient, rtol=1e-3, atol=1e-4)
    for name, gradient in zip(dict(algorithm.pi.named_parameters()), of_policy, strict=True):
        torch.testing.assert_close(gradients[f"policy.{name}"], gradient, rtol=1e-3, atol=1e-4)
    scheme.close()


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize(
    ("sequences", "kind", "double"),
    zip(SEQUENCES, ["gru", "lstm", "gru", "lstm", "gru"], [True, False, False, True, True], strict=True),
)
def test_qrdqns_update_equals_that_of_a_step_by_step_reference(sequences: str, kind: MemoryKind, double: bool) -> None:
    scheme = off_policy_scheme(prl.QRDQN, kind, *SEQUENCES[sequences], double=double, num_quantiles=3)
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.QRDQN)
    network, target_network = algorithm.q, algorithm.q_target
    perturb(target_network, 1, 0.1)
    fractions = torch.tensor([1 / 6, 3 / 6, 5 / 6])
    errors, loss = torch.zeros_like(batch[MASK]), torch.zeros(())
    for b in range(6):
        features, states = states_by_hand(network.body, batch, b, stored=True)
        _, target_states = states_by_hand(target_network.body, batch, b, stored=True)
        for t in range(len(features)):
            quantiles = network.head(features[t]).quantiles[0, batch[ACT][t, b, 0]]
            after = target_network.head(next_features(target_network.body, batch, b, t, target_states)).quantiles[0]
            online = network.head(next_features(network.body, batch, b, t, states)).quantiles[0]
            chosen = (online if double else after).mean(1).argmax()
            target = (batch[REW][t, b] + batch[DISCOUNT][t, b] * after[chosen]).detach()
            error = target[None] - quantiles[:, None]
            huber = torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5)
            row = ((fractions[:, None] - (error < 0).float()).abs() * huber).mean(1).sum()
            errors[t, b] = row.detach()
            loss = loss + batch[MASK][t, b, 0] * batch[WEIGHTS][b, 0] * row
    loss = loss / batch[MASK].sum()
    expected = torch.autograd.grad(loss, list(network.parameters()))
    gradients, result = algorithm.compute_gradients(batch)
    torch.testing.assert_close(result.metrics["loss"], loss.detach())
    torch.testing.assert_close(result.info[ERRORS], errors)
    for name, gradient in zip(dict(network.named_parameters()), expected, strict=True):
        torch.testing.assert_close(gradients[f"q.{name}"], gradient, atol=1e-5, rtol=1e-4)
    scheme.close()
