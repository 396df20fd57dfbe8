"""Synchronous collectors in separate processes: runs with equal seeds are equal, and resume exactly."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

import pytorchrl as prl
from storages.transition import DONE, OBS, OBS2
from tests.support.comparison import assert_equal
from tests.support.training import copied_at, saved_and_loaded, train

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def dqn(num_collectors: int | None, seed: int = 0, num_envs: int = 2, envs: Any = None, **changes: Any) -> Any:
    """A scheme of DQN; in one process if no number of collectors is given."""
    parts: dict[str, Any] = {
        "algo_factory": prl.DQN.create_factory(
            start_steps=24, update_every=8, mini_batch_size=8, test_every=0, num_test_episodes=2
        ),
        "actor_factory": prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        "storage_factory": prl.PERBuffer.create_factory(size=100, n_step=3, alpha=0.6, beta=0.4, epsilon=0.01),
        "train_envs_factory": envs or prl.VecEnv.create_factory("CartPole-v1", num_envs),
        "seed": seed,
    }
    if num_collectors is None:
        return prl.Scheme(**parts, **changes)
    return prl.RayScheme(**parts, num_collectors=num_collectors, **changes)


def ppo(
    num_collectors: int | None, seed: int = 0, normalize_observations: bool = False, envs: Any = None, **changes: Any
) -> Any:
    parts: dict[str, Any] = {
        "algo_factory": prl.PPO.create_factory(
            lr=prl.LinearSchedule(1e-3, 0.0), num_epochs=2, num_mini_batch=2, test_every=0
        ),
        "actor_factory": prl.OnPolicyActor.create_factory(
            hidden_sizes=(8,), normalize_observations=normalize_observations
        ),
        "storage_factory": prl.GAEBuffer.create_factory(size=16),
        "train_envs_factory": envs or prl.VecEnv.create_factory("CartPole-v1", num_envs=2),
        "seed": seed,
    }
    if num_collectors is None:
        return prl.Scheme(**parts, **changes)
    return prl.RayScheme(**parts, num_collectors=num_collectors, **changes)


def state_after(scheme: Any, steps: int) -> dict[str, Any]:
    """The state of a run, without the parts that collectors and one process save in different forms."""
    state = saved_and_loaded(train(scheme, steps).state_dict())
    scheme.close()
    return {name: state[name] for name in ("algorithm", "storage")}


@pytest.mark.parametrize("compose", [dqn, ppo])
def test_one_collector_trains_exactly_like_one_process(compose: Any) -> None:
    assert_equal(state_after(compose(1), 192), state_after(compose(None), 192))


def test_steps_that_environments_skip_after_an_episode_are_not_counted() -> None:
    def vector(num_envs: int) -> Any:
        return gym.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point")

    envs = prl.VecEnv.create_factory(vector, num_envs=2)
    one, other = (ppo(number, envs=envs, normalize_observations=True) for number in (1, None))
    for scheme in (one, other):
        scheme.set_progress(0, 1_000)
        for _ in range(6):
            assert scheme.collect(1_000)[1] == 1
            list(scheme.update())
    assert 150 < one.steps < 6 * 16 * 2, "some steps began episodes"
    assert one.steps == other.steps
    assert_equal(one.algorithm.get_weights().keys(), other.algorithm.get_weights().keys())
    for name, weights in one.algorithm.get_weights().items():
        # Statistics of observations are updated with many at once, which rounds differently.
        torch.testing.assert_close(weights, other.algorithm.get_weights()[name], msg=name)
    one.close()
    other.close()


def test_steps_that_environments_skip_after_an_episode_are_not_replayed() -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    one, other = (
        state_after(dqn(number, envs=envs, **slices), 192) for number, slices in ((1, {"slice_steps": 1}), (None, {}))
    )
    assert_equal(one, other)


def test_two_runs_with_the_same_seed_are_equal() -> None:
    first, second = (state_after(dqn(2, num_envs=2, seed=3), 200) for _ in range(2))
    assert_equal(first, second)


def test_environments_of_collectors_are_stored_side_by_side_and_episodes_span_slices() -> None:
    scheme = dqn(3, num_envs=1, slice_steps=4)
    for _ in range(5):
        scheme.collect(scheme.steps + 1)
    data = scheme.storage.get_all_buffer_data()
    scheme.close()
    assert data[OBS].shape == (20, 3, 4)
    goes_on = data[DONE][1:, :, 0] == 0
    assert goes_on[3::4].any(), "episodes are longer than slices"
    assert torch.equal(data[OBS][1:][goes_on], data[OBS2][:-1][goes_on])
    assert len({tuple(row) for row in data[OBS][0].tolist()}) == 3, "the environments have different episodes"


@pytest.mark.parametrize("compose", [dqn, ppo])
def test_a_resumed_run_equals_the_uninterrupted_run(compose: Any, tmp_path: Path) -> None:
    whole = prl.Learner(compose(2, slice_steps=2), target_steps=320, log_dir=tmp_path / "whole")
    folder = copied_at(whole, 150, tmp_path / "halves")
    state = saved_and_loaded(whole.scheme.state_dict())
    whole.close()
    learner = prl.Learner.resume(folder)
    assert isinstance(learner.scheme, prl.RayScheme)
    assert 150 <= learner.scheme.steps < 320
    assert learner.run()
    assert_equal(saved_and_loaded(learner.scheme.state_dict()), state)
    learner.close()


def test_statistics_of_observations_count_each_step_of_all_collectors_once() -> None:
    scheme = train(ppo(2, normalize_observations=True), 256)
    counted = scheme.actor.normalization
    seen = int(next(counted.buffers()).item())
    scheme.close()
    assert seen == 256
