"""Actors with memory train with every storage that makes sequences; other compositions are refused."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.comparison import assert_equal

SEQUENCES = prl.Sequences(6, burn_in=2)
NO_MEMORY = 'but OffPolicyActor has no memory .*; give it memory="gru", or the storage sequences=None'
STORAGES = {
    "replay": prl.ReplayBuffer.create_factory(size=150, sequences=SEQUENCES),
    "n steps": prl.NStepReplayBuffer.create_factory(size=150, n_step=3, sequences=SEQUENCES),
    "priorities": prl.PERBuffer.create_factory(size=150, n_step=2, alpha=0.6, epsilon=0.01, sequences=SEQUENCES),
    "recency": prl.EREBuffer.create_factory(
        size=150, alpha=0.6, epsilon=0.01, eta=0.99, cmin=50, sequences=prl.Sequences(6, overlap=3)
    ),
    "episodes": prl.NStepReplayBuffer.create_factory(size=150, n_step=3, sequences=prl.Episodes()),
    "random pieces": prl.PERBuffer.create_factory(
        size=150, n_step=2, alpha=0.6, epsilon=0.01, sequences=prl.Episodes(max_steps=6)
    ),
    "packed episodes": prl.NStepReplayBuffer.create_factory(size=150, n_step=3, sequences=prl.Episodes(packed=True)),
    "pieces by priority": prl.PERBuffer.create_factory(
        size=150, n_step=2, alpha=0.6, epsilon=0.01, sequences=prl.Episodes(longest=15, whole=False)
    ),
}


def scheme_of(algorithm: Any, memory: Any, storage: Any, seed: int = 0) -> prl.Scheme:
    env = "Pendulum-v1" if algorithm is prl.SAC else "CartPole-v1"
    if algorithm is prl.PPO:
        return prl.Scheme(
            prl.PPO.create_factory(num_epochs=2, num_mini_batch=2),
            prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
            storage,
            prl.VecEnv.create_factory(env, num_envs=2),
            seed=seed,
        )
    return prl.Scheme(
        algorithm.create_factory(start_steps=40, mini_batch_size=8, update_every=8),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=8),
        storage,
        prl.VecEnv.create_factory(env, num_envs=2),
        seed=seed,
    )


@pytest.mark.quick_share(0.2, long=0.5)
@pytest.mark.parametrize(
    "memory", ["gru", *(pytest.param(each, marks=pytest.mark.long) for each in ("lstm", ("lstm", "gru")))]
)
@pytest.mark.parametrize("algorithm", [prl.DQN, pytest.param(prl.SAC, marks=pytest.mark.long), prl.PPO])
@pytest.mark.parametrize("storage", STORAGES)
def test_a_resumed_run_has_the_saved_state_and_reaches_its_target(
    algorithm: Any, memory: Any, storage: str, tmp_path: Path
) -> None:
    factory: Any = STORAGES[storage]
    if algorithm is prl.PPO:
        if storage != "replay":
            pytest.skip("PPO learns on-policy")
        factory = prl.GAEBuffer.create_factory(size=16, sequence_length=8)
    learner = prl.Learner(scheme_of(algorithm, memory, factory), target_steps=120, log_dir=tmp_path / "run")
    learner.run()
    resumed = prl.Learner.resume(tmp_path / "run", target_steps=160)
    assert_equal(learner.scheme.state_dict(), resumed.scheme.state_dict())
    resumed.run()
    assert resumed.scheme.steps >= 160


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
        scheme_of(prl.DQN, memory, prl.ReplayBuffer.create_factory(size=50, sequences=sequences))


def test_sequences_that_do_not_divide_a_rollout_are_refused_when_the_factory_is_created() -> None:
    with pytest.raises(ValueError, match="GAEBuffer: sequence_length must divide size=16, got 5"):
        prl.GAEBuffer.create_factory(size=16, sequence_length=5)


def test_more_batches_than_sequences_are_refused() -> None:
    scheme = scheme_of(prl.PPO, "gru", prl.GAEBuffer.create_factory(size=16))
    scheme.collect(10**6)
    scheme.storage.before_gradients()
    with pytest.raises(
        ValueError,
        match="16 steps of 2 environments do not divide into 4 batches of sequences of 16 steps; "
        "choose another sequence_length, or fewer batches",
    ):
        scheme.storage.generate_batches(4, None)
    scheme.close()
