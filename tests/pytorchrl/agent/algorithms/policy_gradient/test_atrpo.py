"""TRPO with an AverageRewardBuffer is ATRPO: Zhang and Ross, arXiv 2106.07329."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import pytorchrl as prl
from storages.transition import ADV, OBS, OBS2, RET, REW
from tests.support.by_hand import numpy
from tests.support.training import train

LAMBDA = 0.9


class TwoLoops(gym.Env[Any, Any]):
    """An endless task: two loops of five steps begin where the first action is taken, and later actions do nothing.

    The first loop pays 1 when it begins, the second 2 when it ends. By average rewards the second is better, 2 / 5
    beside 1 / 5; with a discount of 0.8 the first, as 2 * 0.8**4 < 1.
    """

    observation_space = gym.spaces.Discrete(9)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.state = 0
        return self.state, {}

    def step(self, action: Any) -> Any:
        paid = {0: float(action == 0), 8: 2.0}.get(self.state, 0.0)
        self.state = (1, 5)[action] if self.state == 0 else 0 if self.state in (4, 8) else self.state + 1
        return self.state, paid, False, False, {}


def two_loops(storage: Any, seed: int = 0, steps: int = 50, **hyper_parameters: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.TRPO.create_factory(gamma=0.8, test_every=0, **hyper_parameters),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
        storage.create_factory(size=steps, gae_lambda=LAMBDA),
        prl.VecEnv.create_factory(TwoLoops, num_envs=4),
        seed=seed,
    )


def by_the_paper(scheme: prl.Scheme) -> tuple[NDArray[Any], NDArray[Any]]:
    """The advantages and targets of values of a rollout, (T, E), as in algorithm 2, with lambda as in GAE."""
    data = scheme.storage.get_all_buffer_data()

    def values(key: str) -> NDArray[Any]:
        obs = data[key]
        found = scheme.actor.value(obs.flatten(0, 1), None, torch.zeros(len(obs.flatten(0, 1)), 1))
        return numpy(found).reshape(obs.shape[:2])

    reward = numpy(data[REW])[..., 0]
    errors = reward - reward.mean() + values(OBS2) - values(OBS)
    advantages = np.zeros_like(errors)
    for t in range(len(errors)):
        advantages[t] = sum(LAMBDA ** (later - t) * errors[later] for later in range(t, len(errors)))
    return advantages, advantages + values(OBS)


def test_advantages_and_targets_of_values_are_those_of_the_paper() -> None:
    scheme = train(two_loops(prl.AverageRewardBuffer, steps=12), 48)
    scheme.collect(96)
    scheme.storage.before_gradients()
    advantages, targets = by_the_paper(scheme)
    data = scheme.storage.get_all_buffer_data()
    np.testing.assert_allclose(numpy(data[ADV])[..., 0], advantages, atol=1e-5)
    np.testing.assert_allclose(numpy(data[RET])[..., 0], targets, atol=1e-5)
    scheme.close()


def test_an_update_is_a_step_of_trpo_on_these_advantages_and_a_fit_to_these_targets() -> None:
    scheme, other = (two_loops(cls, steps=12, value_epochs=3) for cls in (prl.AverageRewardBuffer, prl.GAEBuffer))
    for each in (scheme, other):
        each.collect(48)
    (metrics,) = scheme.update()
    assert metrics["step_fraction"] > 0
    other.storage.before_gradients()
    for name, value in zip((ADV, RET), by_the_paper(other), strict=True):
        other.storage.insert_single_tensor_slice(name, torch.from_numpy(value).float()[..., None])
    for batch in other.algorithm.batches(other.storage):
        other.algorithm.update(batch)
    ours, theirs = (each.algorithm.get_weights() for each in (scheme, other))
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], atol=1e-5, rtol=1e-4)
    for each in (scheme, other):
        each.close()


@pytest.mark.long
@pytest.mark.parametrize(("storage", "best"), [(prl.AverageRewardBuffer, 1), (prl.GAEBuffer, 0)])
def test_a_larger_average_reward_is_learnt_where_discounting_prefers_a_smaller_one(storage: Any, best: int) -> None:
    scheme = train(two_loops(storage), 4_000)
    with torch.inference_mode():
        policy = scheme.actor.networks["policy"](scheme.actor.view(torch.zeros(1, 1, dtype=torch.int64)))
    assert policy.parameters[0].softmax(1)[0, best] > 0.9
    scheme.close()
