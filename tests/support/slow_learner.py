"""A reference for learning from sequences: it processes each sequence of a batch step by step."""

from typing import Any

import torch

import pytorchrl as prl
from pytorchrl.agent.actors.stacked_memory import MemoryChoice
from storages.transition import BURN_IN, DONE, ERRORS, LEAD_OUT, MASK, OBS, OBS2, RHS, WINDOW

SEQUENCES: dict[str, tuple[prl.Sequences | prl.Episodes, int]] = {
    "plain": (prl.Sequences(4), 1),
    "burn-in and n steps": (prl.Sequences(4, burn_in=3), 3),
    "across episodes": (prl.Sequences(6, burn_in=2, across_episodes=True), 2),
    "episodes": (prl.Episodes(whole=False), 3),
    "pieces of episodes": (prl.Episodes(longest=7, whole=False), 3),
}
"""Kinds of sequences, and the number of rewards that they sum up."""


def off_policy_scheme(
    algorithm: Any,
    kind: MemoryChoice,
    sequences: prl.Sequences | prl.Episodes,
    n_step: int = 1,
    **hyper_parameters: Any,
) -> prl.Scheme:
    """A small composition of an off-policy algorithm and an actor with a memory."""
    env = "CartPole-v1" if algorithm.actions == "discrete" else "Pendulum-v1"
    return prl.Scheme(
        algo_factory=algorithm.create_factory(start_steps=30, mini_batch_size=6, **hyper_parameters),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(5,), memory=kind, memory_size=4),
        storage_factory=prl.PERBuffer.create_factory(
            size=100, n_step=n_step, alpha=0.5, epsilon=0.1, default_error=1.0, sequences=sequences
        ),
        train_envs_factory=prl.VecEnv.create_factory(env, num_envs=2),
    )


def batch_of(scheme: prl.Scheme) -> Any:
    """A batch of six sequences from a storage of 120 collected transitions."""
    while scheme.steps < 120:
        scheme.collect(120)
    return next(iter(scheme.storage.generate_batches(1, 6)))


def states_by_hand(body: Any, batch: Any, b: int, stored: bool) -> tuple[Any, list[Any]]:
    """The features of each step of one sequence, and the memory after each step, including the lead-out steps."""
    with torch.no_grad():
        state = batch[RHS][b : b + 1] if stored else body.initial_state(1)
        if BURN_IN in batch:
            early = batch[BURN_IN]
            state = early[RHS][b : b + 1] if stored else body.initial_state(1)
            for t in range(len(early[DONE])):
                if early[MASK][t, b] == 1:
                    _, state = body(early[OBS][t, b : b + 1], state, early[DONE][t, b : b + 1])
    features, states = [], []
    for t in range(len(batch[DONE])):
        feature, state = body(batch[OBS][t, b : b + 1], state, batch[DONE][t, b : b + 1])
        features.append(feature)
        states.append(state.detach())
    if LEAD_OUT in batch:
        late = batch[LEAD_OUT]
        with torch.no_grad():
            for t in range(len(late[DONE])):
                _, state = body(late[OBS][t, b : b + 1], state, late[DONE][t, b : b + 1])
                states.append(state)
    return features, states


def next_features(body: Any, batch: Any, b: int, t: int, states: list[Any]) -> Any:
    """(1, size): the features of the observation n steps after a step."""
    state = states[t + int(batch[WINDOW][t, b]) - 1]
    with torch.no_grad():
        feature, _ = body(batch[OBS2][t, b : b + 1], state, torch.zeros(1, 1))
    return feature


def valued(critic: Any, features: Any, action: Any) -> Any:
    """(1, 1): the value of a critic for the features of a step and an action."""
    return critic.head(critic.joint(torch.cat([features, action], dim=1))).mean


def assert_gradients(
    algorithm: Any, batch: Any, networks: dict[str, Any], losses: dict[str, torch.Tensor], errors: Any = None
) -> None:
    """Assert that the losses of networks, in their order, their gradients and the errors are the algorithm's."""
    expected = {
        f"{group}.{name}": gradient
        for (group, network), loss in zip(networks.items(), losses.values(), strict=True)
        for (name, _), gradient in zip(
            network.named_parameters(),
            torch.autograd.grad(loss, list(network.parameters()), retain_graph=True),
            strict=True,
        )
    }
    gradients, result = algorithm.compute_gradients(batch)
    for name, loss in losses.items():
        torch.testing.assert_close(result.metrics[name], loss.detach(), rtol=1e-4, atol=1e-4)
    if errors is not None:
        torch.testing.assert_close(result.info[ERRORS], errors, rtol=1e-4, atol=1e-4)
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-3, atol=5e-5)
