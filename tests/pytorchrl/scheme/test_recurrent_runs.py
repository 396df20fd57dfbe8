"""Actors with memory need sequences, and sequences actors with memory; rollouts are divided into whole sequences."""

from typing import Any

import pytest

import pytorchrl as prl

SEQUENCES = prl.Sequences(6, burn_in=2)
NO_MEMORY = 'but OffPolicyActor has no memory .*; give it memory="gru", or the storage sequences=None'
ENVS = prl.VecEnv.create_factory("CartPole-v1", num_envs=2)


@pytest.mark.parametrize(
    ("memory", "sequences", "message"),
    [
        (
            "gru",
            None,
            r"OffPolicyActor has a memory \(gru\), .*, but ReplayBuffer .*; give it sequences=Sequences\(length=",
        ),
        (None, SEQUENCES, rf"ReplayBuffer makes batches of Sequences\(length=6.*, {NO_MEMORY}"),
        (None, prl.Episodes(), rf"ReplayBuffer makes batches of Episodes\(.*, {NO_MEMORY}"),
    ],
)
def test_memory_without_sequences_and_sequences_without_memory_are_refused(
    memory: Any, sequences: Any, message: str
) -> None:
    with pytest.raises(prl.CompositionError, match=message):
        prl.Scheme(
            prl.DQN.create_factory(),
            prl.OffPolicyActor.create_factory(memory=memory),
            prl.ReplayBuffer.create_factory(size=50, sequences=sequences),
            ENVS,
        )


def test_sequences_that_do_not_divide_a_rollout_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="GAEBuffer: sequence_length must divide size=16, got 5"):
        prl.GAEBuffer.create_factory(size=16, sequence_length=5)


def test_more_batches_than_sequences_are_refused() -> None:
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=8)
    scheme = prl.Scheme(prl.PPO.create_factory(num_mini_batch=2), actor, prl.GAEBuffer.create_factory(size=16), ENVS)
    scheme.collect(10**6)
    scheme.storage.before_gradients()
    with pytest.raises(
        ValueError,
        match="16 steps of 2 environments do not divide into 4 batches of sequences of 16 steps; "
        "choose another sequence_length, or fewer batches",
    ):
        scheme.storage.generate_batches(4, None)
    scheme.close()
