"""Single transitions of a run's storage, described as they are in its last checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from pytorchrl.experiments.inspection.saved_storage import SavedStorage
from pytorchrl.experiments.inspection.transitions import StoredTransitions, TransitionDescription, describe_transition
from tests.support.compositions import dqn_scheme, ppo_scheme, sac_scheme
from tests.support.toys import Counter

COUNTER = prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"length": 5})
PER = prl.PERBuffer.create_factory(size=18, alpha=0.5, beta=0.4, epsilon=0.25)


def trained(folder: Path, scheme: prl.Scheme, steps: int = 200) -> prl.Scheme:
    learner = prl.Learner(scheme, steps, folder)
    learner.run()
    learner.close()
    return scheme


def test_a_transition_is_described_by_its_index_in_batches(tmp_path: Path) -> None:
    # Of 100 steps in episodes of 5, the newest 18 are kept: 3 steps of one episode and 3 whole episodes, in each copy.
    scheme = trained(tmp_path, dqn_scheme(envs=COUNTER, storage=PER))
    batch = next(iter(scheme.storage.generate_batches(1, 8)))
    for number, row in enumerate(batch["Indices"][:, 0].tolist()):
        described = describe_transition(tmp_path, row)
        step, environment = divmod(row, 2)
        assert described.row == row
        assert described.environment == environment
        assert described.age_steps == 99 - step
        assert (described.step_in_episode, described.episode_length) == ((None, 3) if step < 85 else (step % 5, 5))
        assert described.episode == 2 * (step // 5 - 16) + environment
        assert described.episode_return == (12.0 if step < 85 else 15.0)
        assert described.reward == step % 5 + 1
        assert (described.terminated, described.truncated) == (step % 5 == 4, False)
        assert described.observation.tolist() == [step % 5] * 2
        assert described.next_observation.tolist() == [step % 5 + 1] * 2
        assert described.action.tolist() == batch["Action"][number].tolist()
        assert described.draws is None


def test_priority_and_weight_are_those_of_sampling(tmp_path: Path) -> None:
    scheme = trained(tmp_path, dqn_scheme(envs=COUNTER, storage=PER))
    batch = next(iter(scheme.storage.generate_batches(1, 32)))
    priorities = scheme.storage.priorities
    assert priorities is not None
    rows = batch["Indices"][:, 0].numpy()
    described = [describe_transition(tmp_path, int(row)) for row in rows[:6]]
    np.testing.assert_allclose([one.weight for one in described], batch["Weights"][:6, 0], rtol=1e-5)
    np.testing.assert_allclose([one.priority for one in described], priorities.of(rows[:6]), rtol=1e-6)


def test_the_most_surprising_transitions_learnt_from_have_the_largest_errors(tmp_path: Path) -> None:
    scheme = trained(tmp_path, dqn_scheme(envs=COUNTER, storage=PER))
    priorities = scheme.storage.priorities
    assert priorities is not None
    errors = priorities.errors(scheme.storage.ring.oldest).ravel()
    # Both environments are equal, so that some errors occur twice.
    known = np.unique(errors[errors != np.float32(priorities.initial_error)])
    assert 4 < len(known) < len(errors)
    found = prl.most_surprising(tmp_path, count=4)
    assert [errors[one.row - 82 * 2] for one in found] == sorted(known.tolist(), reverse=True)[:4]
    assert len(prl.most_surprising(tmp_path, count=1_000)) == len(known)


def test_transitions_can_be_ordered_by_reward(tmp_path: Path) -> None:
    trained(tmp_path, dqn_scheme(envs=COUNTER, size=18))
    transitions = StoredTransitions(SavedStorage.read(tmp_path))
    # Among equal rewards, the newest come first.
    assert transitions.ranked("highest reward", 3).tolist() == [199, 198, 189]
    assert transitions.ranked("lowest reward", 2).tolist() == [191, 190]
    with pytest.raises(ValueError, match="ReplayBuffer has no priorities; a PERBuffer with alpha above 0"):
        transitions.ranked("highest priority", 3)
    with pytest.raises(ValueError, match=r"can be ordered by highest priority, .* got 'beauty'"):
        transitions.ranked("beauty", 3)  # type: ignore[arg-type]


def test_without_priorities_no_transition_is_surprising_and_all_weights_are_equal(tmp_path: Path) -> None:
    trained(tmp_path, dqn_scheme(envs=COUNTER, size=18))
    assert prl.most_surprising(tmp_path) == []
    described = describe_transition(tmp_path, 170)
    assert (described.priority, described.weight) == (None, 1.0)


def test_a_row_that_is_not_stored_is_refused_with_the_range_of_stored_rows(tmp_path: Path) -> None:
    trained(tmp_path, dqn_scheme(envs=COUNTER, size=18))
    for row in (163, 200, -1):
        with pytest.raises(ValueError, match=rf"row {row} is not stored; those from 164 to 199 are"):
            describe_transition(tmp_path, row)


def test_the_transitions_around_one_are_those_of_its_episode(tmp_path: Path) -> None:
    trained(tmp_path, dqn_scheme(envs=COUNTER, size=18))
    transitions = StoredTransitions(SavedStorage.read(tmp_path))
    # Steps 90 to 94 are an episode; row 185 is step 92 of the second environment.
    assert transitions.around(185, 1).tolist() == [183, 185, 187]
    assert transitions.around(185, 9).tolist() == transitions.episode_of(185).tolist() == [181, 183, 185, 187, 189]


SEQUENCES = prl.PERBuffer.create_factory(size=90, alpha=0.5, epsilon=0.25, sequences=prl.Sequences(4, overlap=1))
EPISODES = prl.PERBuffer.create_factory(size=90, alpha=0.5, epsilon=0.25, sequences=prl.Episodes())


def recurrent(storage: Any) -> prl.Scheme:
    return prl.Scheme(
        algo_factory=prl.DQN.create_factory(start_steps=40, mini_batch_size=8, update_every=8, test_every=0),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,), memory="gru", memory_size=4),
        storage_factory=storage,
        train_envs_factory=COUNTER,
        seed=0,
    )


STORAGES: dict[str, Any] = {
    "n steps": lambda folder: sac_scheme(storage=prl.NStepReplayBuffer.create_factory(size=90, n_step=3)),
    "priorities by rank, and uniform ones": lambda folder: dqn_scheme(
        storage=prl.PERBuffer.create_factory(size=90, n_step=3, alpha=0.5, prioritization="rank", uniform_share=0.2)
    ),
    "recency": lambda folder: sac_scheme(
        storage=prl.EREBuffer.create_factory(size=90, alpha=0.6, epsilon=0.1, eta=0.99, cmin=20)
    ),
    "hindsight": lambda folder: dqn_scheme(
        envs=prl.VecEnv.create_factory("pytorchrl/BitFlipping-v0", num_envs=2),
        storage=prl.HERBuffer.create_factory(size=90, alpha=0.6, epsilon=0.1),
    ),
    "sequences": lambda folder: recurrent(SEQUENCES),
    "episodes": lambda folder: recurrent(EPISODES),
    "a directory": lambda folder: dqn_scheme(
        storage=prl.PERBuffer.create_factory(size=90, alpha=0.5, directory=folder / "run" / "replay")
    ),
    "stacked frames": lambda folder: dqn_scheme(
        envs=prl.VecEnv.create_factory(
            Counter, num_envs=2, env_kwargs={"length": 5}, wrappers=[("FrameStackObservation", {"stack_size": 4})]
        ),
        storage=PER,
    ),
    "dict observations": lambda folder: dqn_scheme(
        envs=prl.VecEnv.create_factory(Counter, num_envs=2, env_kwargs={"kind": "dict", "length": 5}), storage=PER
    ),
    "a rollout": lambda folder: ppo_scheme(),
}


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("make", STORAGES.values(), ids=STORAGES)
def test_described_transitions_equal_those_in_every_kind_of_storage(make: Any, tmp_path: Path) -> None:
    # Not a multiple of the length of a rollout, after which the storage is empty.
    scheme = trained(tmp_path / "run", make(tmp_path), steps=206)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    ring = scheme.storage.ring
    rows = np.arange(ring.start, ring.end)[[0, len(scheme.storage) // 2, -1]]
    held = ring.gather(rows)
    for place, row in enumerate(rows):
        described = describe_transition(tmp_path / "run", int(row))
        assert isinstance(described, TransitionDescription)
        assert described.reward == held["Reward"][place, 0]
        assert described.age_steps == ring.steps - 1 - row // ring.envs
        for mine, its in (
            (described.observation, held["Observation"]),
            (described.next_observation, held["NextObservation"]),
        ):
            for name in mine if isinstance(mine, dict) else [...]:
                np.testing.assert_array_equal(mine[name], its[name][place] if name is not ... else its[place])
    priorities = scheme.storage.priorities
    surprising = prl.most_surprising(tmp_path / "run", count=5)
    assert (priorities is None) == (surprising == [])
    if priorities is not None:
        np.testing.assert_allclose(
            [one.priority for one in surprising], priorities.of(np.array([one.row for one in surprising])), rtol=1e-5
        )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "in a directory"])
def test_draws_are_reported_if_the_storage_counts_them(on_disk: bool, tmp_path: Path) -> None:
    given = {"directory": tmp_path / "run" / "replay"} if on_disk else {}
    storage = prl.PERBuffer.create_factory(size=18, alpha=0.5, beta=0.4, epsilon=0.25, count_draws=True, **given)
    learner = prl.Learner(dqn_scheme(envs=COUNTER, storage=storage), 200, tmp_path / "run")
    drawn: list[tuple[int, float]] = []
    learning: Any = learner.scheme.storage
    after_gradients = learning.after_gradients

    def record_draws(batch: Any, info: Any) -> Any:
        drawn.extend(zip(batch["Indices"][:, 0].tolist(), batch["Weights"][:, 0].tolist(), strict=True))
        return after_gradients(batch, info)

    learning.after_gradients = record_draws
    learner.run()
    learner.close()
    found = StoredTransitions(SavedStorage.read(tmp_path / "run"))
    for one in found.describe(range(164, 200)):
        weights = [weight for row, weight in drawn if row == one.row]
        assert one.draws == len(weights)
        assert one.mean_weight == (pytest.approx(np.mean(weights)) if weights else None)
    most = found.ranked("most drawn", 2)
    assert found.describe(most)[0].draws == max(one.draws or 0 for one in found.describe(range(164, 200)))
    # Transitions that were not drawn are not surprising, even if their priorities are large.
    assert all(one.draws for one in prl.most_surprising(tmp_path / "run", 100))


def test_transitions_cannot_be_ordered_by_draws_that_are_not_counted(tmp_path: Path) -> None:
    trained(tmp_path, dqn_scheme(envs=COUNTER, size=18))
    with pytest.raises(ValueError, match="has not counted draws; make it with count_draws=True"):
        StoredTransitions(SavedStorage.read(tmp_path)).ranked("most drawn", 3)
