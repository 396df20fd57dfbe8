"""DiscreteBCQ's losses and the actions that it considers equal those computed by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from storages.transition import OBS
from tests.support import value_learning
from tests.support.by_hand import copies, envs_with, exploring, layer_of, linear, numeric_gradient, numpy, perturb
from tests.support.chains import GAMMA, STATES, Chain, observation
from tests.support.training import train
from tests.support.value_learning import NUM_ACTIONS, batch_of_windows, huber, linear_learner


class ByHand(value_learning.ByHand):
    """Adds the imitation network."""

    def __init__(self, algorithm: Any, batch: dict[str, Any]) -> None:
        super().__init__(algorithm, batch)
        self.imitation = layer_of(algorithm.imitation.head)
        self.threshold, self.penalty = algorithm.threshold, algorithm.logit_penalty

    def likely(self, obs: Any) -> list[int]:
        """Actions whose probability relative to the largest reaches the threshold."""
        scores = np.exp(linear(self.imitation, obs))
        return [action for action in range(NUM_ACTIONS) if scores[action] / scores.max() >= self.threshold]

    def chosen(self, values: Any, obs: Any) -> int:
        """The likely action with the highest value."""
        return max(self.likely(obs), key=lambda action: float(values[action]))

    def target_of(self, row: int, double: bool) -> float:
        """The target, with the next action chosen by the online or by the target network."""
        following = self.next_q(row) if double else self.target_next_q(row)
        chosen = self.chosen(following, self.obs2[row])
        return float(self.reward[row] + self.discount[row] * self.target_next_q(row)[chosen])

    def imitation_losses(self, row: int) -> tuple[float, float]:
        """Negative log probability of the action, and the mean square of the logits."""
        scores = linear(self.imitation, self.obs[row])
        return float(np.log(np.exp(scores).sum()) - scores[self.action[row]]), float(np.mean(scores**2))


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_losses_and_gradients_equal_those_computed_by_hand(threshold: float, double: bool) -> None:
    algorithm = linear_learner(prl.DiscreteBCQ, threshold=threshold, double=double, logit_penalty=0.2)
    perturb(algorithm.imitation, 7)
    batch = batch_of_windows()
    before = copies(batch)
    hand = ByHand(algorithm, batch)
    targets = [hand.target_of(row, double) for row in hand.rows]

    def error(row: int) -> float:
        return float(hand.q(row)[hand.action[row]] - targets[row])

    def loss() -> float:
        rows = []
        for row in hand.rows:
            surprisal, squares = hand.imitation_losses(row)
            rows.append(hand.weight[row] * (huber(error(row)) + surprisal + 0.2 * squares))
        return float(np.mean(rows))

    gradients, result = algorithm.compute_gradients(batch)
    assert result.errors is not None
    of_values = np.mean([hand.weight[row] * huber(error(row)) for row in hand.rows])
    np.testing.assert_allclose(result.metrics["loss"], of_values, rtol=1e-4)
    cloned = np.mean([hand.weight[row] * hand.imitation_losses(row)[0] for row in hand.rows])
    np.testing.assert_allclose(result.metrics["imitation_loss"], cloned, rtol=1e-4)
    errors = [abs(error(row)) for row in hand.rows]
    np.testing.assert_allclose(numpy(result.errors)[:, 0], errors, rtol=1e-4, atol=1e-5)
    for prefix, layer in (("q.0.head.numbers.layer", hand.online), ("q.1.head.layer", hand.imitation)):
        for kind, parameter in zip(("weight", "bias"), layer, strict=True):
            by_hand = numeric_gradient(loss, parameter)
            np.testing.assert_allclose(numpy(gradients[f"{prefix}.{kind}"]), by_hand, rtol=2e-3, atol=1e-4)
    assert all(torch.equal(batch[key], before[key]) for key in before)


def test_it_takes_the_best_of_the_actions_that_are_likely_enough() -> None:
    algorithm = linear_learner(prl.DiscreteBCQ, threshold=0.5)
    perturb(algorithm.imitation, 7)
    batch = batch_of_windows(size=40)
    hand = ByHand(algorithm, batch)
    step = algorithm.acting_step(batch[OBS], None, torch.zeros(40, 1), exploring(algorithm, 40, deterministic=True))
    expected = [hand.chosen(hand.q(row), hand.obs[row]) for row in hand.rows]
    assert step.env_action[:, 0].tolist() == expected
    assert expected != [int(hand.q(row).argmax()) for row in hand.rows]
    assert expected != [int(linear(hand.imitation, hand.obs[row]).argmax()) for row in hand.rows]


def test_both_networks_may_share_a_body() -> None:
    envs = envs_with(spaces.Discrete(NUM_ACTIONS))
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(5,), shared_body=True)("cpu", envs)
    algorithm = prl.DiscreteBCQ.create_factory()("cpu", actor, envs)
    assert algorithm.q.body is algorithm.imitation.body
    before = {name: weight.detach().clone() for name, weight in algorithm.q.body.named_parameters()}
    algorithm.update(batch_of_windows())
    assert all(not torch.equal(weight, before[name]) for name, weight in algorithm.q.body.named_parameters())


def data_of_chain(path: Path, taken: Any) -> Path:
    """Episodes of a chain; ``taken`` maps observations and random numbers in [0, 1) to actions."""
    random = np.random.default_rng(0)
    envs = prl.VecEnv.create_factory(Chain, num_envs=4)
    collect_demonstrations(lambda seen: taken(seen, random.random(len(seen)))[:, None], envs, path=path, steps=4_000)
    return path


def learner_of(data: Path, **hyper_parameters: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.DiscreteBCQ.create_factory(gamma=GAMMA, lr=3e-3, polyak=0.95, test_every=0, **hyper_parameters),
        prl.OffPolicyActor.create_factory(hidden_sizes=(32,)),
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=4_000), data),
        test_envs_factory=prl.VecEnv.create_factory(Chain),
        seed=1,
    )


@pytest.mark.long
def test_it_never_takes_an_action_that_is_rare_in_the_data(tmp_path: Path) -> None:
    # The second action, which the middle and the end need, is taken once in twenty steps.
    data = data_of_chain(tmp_path / "data.npz", lambda seen, drawn: (drawn < 0.05).astype(np.int64))
    chosen = {}
    for threshold in (0.0, 0.3):
        scheme = train(learner_of(data, threshold=threshold), 500)
        obs = torch.from_numpy(np.stack([observation(state, "fully") for state in STATES]))
        exploration = exploring(scheme.algorithm, len(obs), deterministic=True)
        done = torch.zeros(len(obs), 1)
        chosen[threshold] = scheme.algorithm.acting_step(obs, None, done, exploration).env_action
    assert not chosen[0.3].any()
    assert chosen[0.0].any()
