"""Training from storages that draw rows by rank or in passes."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl


def trained(storage: prl.Factory[Any], folder: Path) -> prl.Scheme:
    scheme = prl.Scheme(
        algo_factory=prl.DQN.create_factory(start_steps=20, mini_batch_size=8, test_every=0),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=storage,
        train_envs_factory=prl.VecEnv.create_factory("CartPole-v1"),
        seed=0,
    )
    assert prl.Learner(scheme, target_steps=60, log_dir=folder).run()
    return scheme


@pytest.mark.long
def test_dqn_trains_with_priorities_by_rank(tmp_path: Path) -> None:
    storage = prl.PERBuffer.create_factory(size=100, n_step=3, alpha=0.7, prioritization="rank", uniform_share=0.1)
    scheme = trained(storage, tmp_path)
    priorities = scheme.storage.priorities
    assert priorities is not None
    assert priorities.mean > 0


def test_each_pass_of_a_training_draws_every_transition_once(tmp_path: Path) -> None:
    storage: Any = trained(
        prl.ReplayBuffer.create_factory(size=100, draws="passes", count_draws=True), tmp_path
    ).storage
    counts = storage.draw_counts["counts"]
    # The transitions of the first pass took part in all passes, of which the last one is incomplete.
    assert counts[:20].min() > 1
    assert counts[:20].max() - counts[:20].min() <= 1
    # Later ones take part from the second pass on.
    assert counts[20:30].min() > 0
