"""Learning from sequences: updates equal those of a reference that goes through every sequence step by step."""

from typing import Any

import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors.memory import MemoryKind
from pytorchrl.agent.actors.unrolling import Unrolling
from pytorchrl.scheme import Scheme
from storages.transition import (
    ACT,
    BURN_IN,
    DISCOUNT,
    DONE,
    LOGP,
    MASK,
    OBS,
    OBS2,
    REW,
    RHS,
    VAL,
    WEIGHTS,
)
from tests.support.by_hand import perturb
from tests.support.comparison import assert_equal
from tests.support.memories import LinearAfterGRU, WithTrace
from tests.support.slow_learner import (
    SEQUENCES,
    assert_gradients,
    batch_of,
    next_features,
    off_policy_scheme,
    states_by_hand,
    valued,
)

SEVERAL = (LinearAfterGRU, "lstm", WithTrace)
"""A memory of several layers, two of them the user's."""


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize(
    ("sequences", "kind"), list(zip(SEQUENCES, ["gru", "lstm", "several", "gru", "lstm"], strict=True))
)
def test_sacs_critic_update_equals_that_of_a_step_by_step_reference(sequences: str, kind: Any) -> None:
    kind = SEVERAL if kind == "several" else kind
    scheme = off_policy_scheme(prl.SAC, kind, *SEQUENCES[sequences])
    batch, algorithm = batch_of(scheme), scheme.algorithm
    assert isinstance(algorithm, prl.SAC)
    alpha, shape = algorithm.log_alpha.detach().exp(), batch[REW].shape
    # The actions of the targets are random: the same numbers, in the same order, are drawn here.
    algorithm.seed(3)
    next_policy = torch.zeros(*shape[:2], 4)
    for b in range(6):
        _, states = states_by_hand(algorithm.pi.body, batch, b, stored=True)
        for t in range(shape[0]):
            next_policy[t, b] = next_features(algorithm.pi.body, batch, b, t, states)[0]
    with torch.no_grad():
        policy: Any = algorithm.pi.head(next_policy.flatten(0, 1))
        action, log_prob = policy.sample_with_log_prob(algorithm.generator)
    actions, log_probs = action.view(*shape[:2], -1), log_prob.view(shape)
    loss = torch.zeros(())
    errors = torch.zeros(shape)
    for b in range(6):
        of_targets = [states_by_hand(c.body, batch, b, stored=False)[1] for c in algorithm.target_critics]
        of_critics = [states_by_hand(c.body, batch, b, stored=False)[0] for c in algorithm.critics]
        for t in range(shape[0]):
            values = [
                valued(critic, next_features(critic.body, batch, b, t, states), actions[t, b : b + 1])
                for critic, states in zip(algorithm.target_critics, of_targets, strict=True)
            ]
            soft = torch.cat(values).min().detach() - alpha * log_probs[t, b]
            target = batch[REW][t, b] + batch[DISCOUNT][t, b] * soft
            stored = algorithm.codec.from_storage(batch[ACT][t, b : b + 1])
            for critic, features in zip(algorithm.critics, of_critics, strict=True):
                error = valued(critic, features[t], stored)[0] - target
                errors[t, b] += error.detach().abs() / 2
                loss = loss + 0.5 * (batch[MASK][t, b] * batch[WEIGHTS][b] * error**2)[0]
    loss = loss / batch[MASK].sum()
    algorithm.seed(3)
    assert_gradients(algorithm, batch, {"critics": algorithm.critics}, {"critic_loss": loss}, errors)
    scheme.close()


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize(
    ("sequences", "kind"), list(zip(SEQUENCES, ["lstm", "gru", "lstm", "gru", "lstm"], strict=True))
)
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
    algorithm.seed(3)
    networks = {"critics": algorithm.critics, "policy": algorithm.pi}
    losses = {"critic_loss": critic_loss, "policy_loss": policy_loss}
    assert_gradients(algorithm, batch, networks, losses, errors)
    scheme.close()


@pytest.mark.parametrize(
    "sequences",
    ["burn-in and n steps", *(pytest.param(name, marks=pytest.mark.long) for name in SEQUENCES if "burn" not in name)],
)
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
    networks = {"critics.networks.0": critic, "policy": policy}
    losses = {"critic_loss": critic_loss, "policy_loss": policy_loss}
    assert_gradients(algorithm, batch, networks, losses, errors)
    scheme.close()


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_a_burn_in_at_the_oldest_step_begins_with_the_state_stored_there(kind: MemoryKind) -> None:
    scheme = off_policy_scheme(prl.SAC, kind, prl.Sequences(4, burn_in=6))
    # An episode has 200 steps: the oldest of the 100 that are stored for each environment begins none.
    while scheme.steps < 260:
        scheme.collect(260)
    batch = next(iter(scheme.storage.generate_batches(1, 200)))
    real = batch[BURN_IN][MASK].sum(0)
    assert (real == 0).any()
    assert ((real > 0) & (real < 6)).any()
    body = scheme.algorithm.pi.body
    features, _ = Unrolling(batch).of(body)
    # The weights are those that acted, so that the burn-in leads to the state that is stored with the step after it.
    expected, _ = Unrolling({key: value for key, value in batch.items() if key != BURN_IN}).of(body)
    torch.testing.assert_close(features, expected)
    scheme.close()


@pytest.mark.parametrize("algorithm", [prl.DQN, prl.SAC])
def test_masked_steps_do_not_affect_gradients(algorithm: Any) -> None:
    scheme = off_policy_scheme(algorithm, "gru", prl.Sequences(40))
    batch = batch_of(scheme)
    if algorithm is prl.SAC:
        batch[MASK][30:] = 0  # Pendulum's episodes are longer than this
    padding = batch[MASK] == 0
    assert padding.any()
    scheme.algorithm.seed(0)
    gradients, _ = scheme.algorithm.compute_gradients(batch)
    changed = dict(batch)
    changed[REW] = torch.where(padding, 1e3, batch[REW])
    changed[OBS2] = torch.where(padding, batch[OBS2] + 7, batch[OBS2])
    scheme.algorithm.seed(0)
    same, _ = scheme.algorithm.compute_gradients(changed)
    assert_equal(gradients, same)
    scheme.close()


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize(
    ("kind", "sequence_length", "shared_body"),
    [("gru", None, False), ("gru", 8, True), ("lstm", 8, False), ("several", None, True), ("several", 8, False)],
)
def test_ppo_recomputes_stored_log_probabilities_and_values_from_sequences(
    kind: Any, sequence_length: int | None, shared_body: bool
) -> None:
    kind = SEVERAL if kind == "several" else kind
    scheme = Scheme(
        algo_factory=prl.PPO.create_factory(num_epochs=1, num_mini_batch=2),
        actor_factory=prl.OnPolicyActor.create_factory(
            hidden_sizes=(5,), memory=kind, memory_size=4, shared_body=shared_body
        ),
        storage_factory=prl.GAEBuffer.create_factory(size=64, sequence_length=sequence_length),
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
    )
    actor, storage = scheme.actor, scheme.storage
    for _ in range(2):
        scheme.collect(10**6)
        storage.before_gradients()
        seen = 0
        for batch in storage.generate_batches(2, None):
            assert batch[DONE].any(), "sequences contain the ends of episodes"
            log_prob, value = actor.evaluate_actions(batch[OBS], batch[RHS], batch[DONE], batch[ACT])
            torch.testing.assert_close(log_prob, batch[LOGP])
            torch.testing.assert_close(value, batch[VAL], atol=1e-5, rtol=1e-4)
            seen += batch[REW].numel()
            _, result = scheme.algorithm.compute_gradients(batch)
            assert result.metrics["kl"].abs() < 1e-6
        assert seen == 128
        storage.reset()
    scheme.close()
