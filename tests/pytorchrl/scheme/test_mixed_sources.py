"""Schemes whose algorithm learns from several storages at once, in fixed shares of each batch."""

from pathlib import Path
from typing import Any

import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT2, REW, SOURCE_SIZES
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded
from tests.support.training import saved_and_loaded, train

HALVES = prl.MixedSource({"demonstrations": 0.5, "main": 0.5})
PRIORITIES = {"size": 100, "n_step": 3, "alpha": 0.6, "beta": 0.4, "epsilon": 0.01}
REPLAY = prl.ReplayBuffer.create_factory(size=100)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("data") / "episodes.npz")


def learning(data: Path, algorithm: Any = prl.DQN, memory: Any = None, **changes: Any) -> prl.Scheme:
    sequences = prl.Sequences(4) if memory else None
    factory = prl.PERBuffer.create_factory(**PRIORITIES, sequences=sequences)
    return prl.Scheme(
        algorithm.create_factory(start_steps=20, update_every=5, mini_batch_size=10, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4),
        factory,
        prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        **{"sources": {"demonstrations": prl.from_dataset(factory, data)}, "mixed": {"main": HALVES}} | changes,
    )


def errors_of(scheme: prl.Scheme) -> list[torch.Tensor]:
    found = [storage.priorities for storage in scheme.storages.values()]
    return [priorities.state_dict()["errors"] for priorities in found if priorities is not None]


@pytest.mark.parametrize(("algorithm", "memory"), [(prl.DQN, None), (prl.DQN, "gru"), (prl.SARSA, None)])
def test_a_resumed_run_with_demonstrations_equals_the_uninterrupted_run(
    data: Path, algorithm: Any, memory: Any
) -> None:
    whole, first, second = (learning(data, algorithm, memory) for _ in range(3))
    train(whole, 80)
    train(first, 40)
    state = saved_and_loaded(first.state_dict())
    second.load_state_dict(state)
    train(second, 80)
    assert_equal(second.state_dict(), whole.state_dict())
    # A checkpoint holds the checksum of the data, and the priorities of its transitions, not the data.
    assert "data" in state["sources"]["demonstrations"]
    assert "ring" not in state["sources"]["demonstrations"]
    assert whole.algorithm.updates > 0
    for scheme in (whole, first, second):
        scheme.close()


def test_each_storage_gives_half_of_a_batch_and_receives_its_priorities(data: Path) -> None:
    scheme = train(learning(data, prl.SARSA), 40)
    batch = next(scheme.algorithm.batches(scheme.sources["main"]))
    assert batch[SOURCE_SIZES].tolist() == [5, 5]
    assert batch[REW].shape == (10, 1)
    assert ACT2 in batch
    metrics = list(scheme.update())[-1]
    assert {"storage/demonstrations/mean_priority", "storage/main/row_age", "loss"} <= metrics.keys()
    assert all(len(torch.unique(errors)) > 2 for errors in errors_of(scheme))
    assert len(scheme.storage) == 40
    scheme.close()


def test_a_run_without_environments_mixes_data_sets(data: Path) -> None:
    factory = prl.from_dataset(REPLAY, data)
    scheme = prl.Scheme(
        prl.BehaviourCloning.create_factory(mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), normalize_observations=True),
        factory,
        sources={"other": factory},
        mixed={"main": prl.MixedSource({"main": 0.75, "other": 0.25})},
    )
    train(scheme, 3)
    counts = [value for name, value in scheme.actor.state_dict().items() if name.endswith(".count")]
    assert counts
    assert {int(count) for count in counts} == {120}
    scheme.close()


def test_a_run_of_several_data_sets_continues_with_them_in_their_order(data: Path, tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        sources = {"other": prl.from_dataset(REPLAY, other), "again": prl.from_dataset(REPLAY, data)}
        return prl.Scheme(
            prl.BehaviourCloning.create_factory(mini_batch_size=8, test_every=0),
            prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.from_dataset(REPLAY, data),
            sources=sources,
            mixed={"main": prl.MixedSource({"main": 0.5, "other": 0.25, "again": 0.25})},
        )

    other = recorded(tmp_path / "other.npz", seed=1)
    whole = train(scheme(), 6)
    learner = prl.Learner(scheme(), 3, tmp_path / "run")
    assert learner.run()
    assert learner.resume_command.endswith(f" --data {data} {other}")
    with pytest.raises(prl.CheckpointError, match="is not what the run learnt from"):
        prl.Learner.resume(tmp_path / "run", data=[other, data])
    with pytest.raises(prl.CompositionError, match="and 1 were given; name each of them, in this order, by --data"):
        prl.Learner.resume(tmp_path / "run", data=[data])
    learner = prl.Learner.resume(tmp_path / "run", data=[data, other], target_steps=6)
    assert learner.run()
    assert_equal(learner.scheme.state_dict(), whole.state_dict())
    learner.close()
    whole.close()


def test_a_run_with_storages_on_disk_resumes_from_its_folder_alone(data: Path, tmp_path: Path) -> None:
    on_disk = prl.PERBuffer.create_factory(**PRIORITIES, directory=tmp_path / "demonstrations")
    learning(data, sources={"demonstrations": prl.from_dataset(on_disk, data)}).close()
    learner = prl.Learner(learning(data, sources={"demonstrations": on_disk}), 40, tmp_path / "run")
    assert learner.run()
    trained, errors = learner.scheme.algorithm.state_dict(), errors_of(learner.scheme)
    learner.close()
    again = prl.Learner.resume(tmp_path / "run", target_steps=60)
    assert_equal(again.scheme.algorithm.state_dict(), trained)
    assert_equal(errors_of(again.scheme), errors)
    assert again.run()
    again.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixed": {}}, "DQN knows no source 'demonstrations'; it learns from 'main'$"),
        ({"mixed": {"expert": HALVES}}, "DQN knows no source 'expert' that could be mixed; it learns from 'main'"),
        ({"mixed": {"main": {"main": 1.0}}}, r"mixed\['main'\] must be a MixedSource, got"),
        ({"sources": {}}, "draws from a source 'demonstrations', but the sources are 'main'; give the scheme sources="),
        (
            {"mixed": {"main": prl.MixedSource({"demonstrations": 1.0})}},
            "the source 'main' is not used; give it a share in MixedSource",
        ),
        (
            {"sources": {"demonstrations": prl.GAEBuffer.create_factory(size=10)}},
            "DQN learns from replayed transitions, but GAEBuffer holds one rollout",
        ),
        (
            {"sources": {"demonstrations": prl.ReplayBuffer.create_factory(size=10, sequences=prl.Sequences(3))}},
            "ReplayBuffer makes batches of Sequences.* but OffPolicyActor has no memory",
        ),
    ],
)
def test_a_mix_that_an_algorithm_cannot_learn_from_is_refused(data: Path, changes: Any, message: str) -> None:
    with pytest.raises(prl.CompositionError, match=message):
        learning(data, **changes)


def test_mixing_rollouts_or_newest_steps_is_refused(data: Path) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1")
    with pytest.raises(prl.CompositionError, match="PPO learns from a rollout of its policy, which cannot be mixed"):
        prl.Scheme(
            prl.PPO.create_factory(),
            prl.OnPolicyActor.create_factory(),
            prl.GAEBuffer.create_factory(size=10),
            envs,
            sources={"demonstrations": REPLAY},
            mixed={"main": HALVES},
        )
    sequences = prl.ReplayBuffer.create_factory(size=10, sequences=prl.Sequences(3))
    with pytest.raises(prl.CompositionError, match="ACER learns from the newest steps of one storage, which cannot"):
        prl.Scheme(
            prl.ACER.create_factory(),
            prl.OffPolicyActor.create_factory(),
            sequences,
            envs,
            sources={"demonstrations": sequences},
            mixed={"main": HALVES},
        )
