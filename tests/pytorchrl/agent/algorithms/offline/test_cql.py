"""CQL's losses and gradients equal those of slow numpy loops over rows and drawn actions."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import DISCOUNT, INDICES, OBS, OBS2, REW, RTG, WEIGHTS
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded
from tests.support.soft_critics import ByHand, assert_gradients, drawn, made, n_step_batch
from tests.support.training import train

ROWS, SIZE = 5, 2


class NumpyCQL(ByHand):
    """Adds the gaps, estimated from uniform actions and the policy's actions for present and next observations."""

    def __init__(self, algorithm: prl.CQL, batch: dict[str, torch.Tensor]) -> None:
        self.algorithm, self.multiplier = algorithm, 1.0
        several = algorithm.num_samples, ROWS

        def normal(*rows: int) -> Any:
            return lambda generator: torch.empty(*rows, SIZE).normal_(generator=generator)

        def uniform(generator: torch.Generator) -> torch.Tensor:
            return torch.empty(ROWS, algorithm.num_samples, SIZE).uniform_(-1, 1, generator=generator)

        # Random numbers in the order in which the algorithm draws them.
        draws = [normal(ROWS), uniform, normal(*several), normal(*several), normal(ROWS)]
        drawn_numbers = drawn(algorithm.generator, draws)
        super().__init__(algorithm, batch)
        self.noise = drawn_numbers[4]
        self.proposals = self.make_proposals(*drawn_numbers[1:4])

    def make_proposals(self, uniform: Any, now: Any, following: Any) -> list[list[tuple[Any, float]]]:
        """For each row, actions and the log densities of the distributions that they were drawn from."""
        proposals: list[list[tuple[Any, float]]] = []
        for row in range(ROWS):
            here = [(action, SIZE * np.log(0.5)) for action in uniform[row]]
            for key, noise in ((OBS, now), (OBS2, following)):
                for number in range(self.algorithm.num_samples):
                    drawn_for = noise[number, None, row]
                    action, log_density = self.act(self.batch[key][None, row], drawn_for)
                    here.append((action[0], log_density[0, 0]))
            proposals.append(here)
        return proposals

    def make_target(self) -> Any:
        if self.algorithm.backup_entropy:
            return super().make_target()
        action, _ = self.act(self.batch[OBS2], self.noise2)
        value = self.of_target(self.values(self.target_critics, self.batch[OBS2], action))
        return self.batch[REW] + self.batch[DISCOUNT] * value

    def value_in_gap(self, value: float, number: int, row: int) -> float:
        """The value with which a proposal enters the gap."""
        return value

    def gaps(self) -> list[float]:
        gaps = []
        for critic in self.critics:
            total = 0.0
            for row in range(ROWS):
                obs = self.batch[OBS][None, row]
                powers = 0.0
                for number, (action, log_density) in enumerate(self.proposals[row]):
                    value = self.values([critic], obs, action[None])[0][0, 0]
                    powers += np.exp(self.value_in_gap(value, number, row) - log_density)
                of_data = self.values([critic], obs, self.taken[None, row])[0][0, 0]
                total += self.batch[WEIGHTS][row, 0] * (np.log(powers) - of_data)
            gaps.append(total / ROWS)
        return gaps

    def critic_loss(self) -> float:
        threshold = self.algorithm.lagrange_threshold or 0.0
        penalty = sum(self.multiplier * self.algorithm.conservative_weight * (gap - threshold) for gap in self.gaps())
        return super().critic_loss() + 0.5 * float(penalty)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_samples": 3, "conservative_weight": 0.7, "backup_entropy": True},
        {"num_samples": 2, "num_critics": 1, "lagrange_threshold": 2.0},
    ],
    ids=["defaults", "other hyper-parameters", "Lagrange multiplier"],
)
def test_losses_errors_and_gradients_equal_those_of_numpy_loops(settings: dict[str, Any]) -> None:
    algorithm = made(prl.CQL, initial_alpha=0.3, **settings)
    by_threshold = algorithm.lagrange_threshold is not None
    if by_threshold:
        with torch.no_grad():
            algorithm.training.variables["log_multiplier"].fill_(np.log(1.7))
    batch = n_step_batch()
    by_hand = NumpyCQL(algorithm, batch)
    by_hand.multiplier = 1.7 if by_threshold else 1.0
    gaps = by_hand.gaps()
    state = algorithm.generator.get_state()
    gradients = assert_gradients(algorithm, batch, by_hand)
    algorithm.generator.set_state(state)
    metrics = algorithm.compute_gradients(batch)[1].metrics
    np.testing.assert_allclose(metrics["conservative_gap"], np.mean(gaps), rtol=1e-4)
    assert ("log_multiplier.value" in gradients) == by_threshold
    if by_threshold:
        # The multiplier rises where gaps are above the threshold.
        rise = 1.7 * algorithm.conservative_weight * (np.mean(gaps) - 2.0)
        np.testing.assert_allclose(gradients["log_multiplier.value"], [-rise], rtol=1e-3)


class NumpyCalQL(NumpyCQL):
    """Actions of the policy enter the gap with at least the return-to-go of the data."""

    def value_in_gap(self, value: float, number: int, row: int) -> float:
        if number < self.algorithm.num_samples:
            return value
        return max(value, self.batch[RTG][row, 0])


def test_a_calibrated_gap_and_its_gradients_equal_those_of_numpy_loops() -> None:
    algorithm = made(prl.CalQL, initial_alpha=0.3, num_samples=4)
    # Above some values of proposals, and below others.
    batch = n_step_batch() | {RTG: torch.tensor([[-5.0], [5.0], [0.1], [-0.2], [0.6]])}
    by_hand = NumpyCalQL(algorithm, batch)
    assert not np.allclose(by_hand.gaps(), NumpyCQL(algorithm, batch).gaps())
    assert_gradients(algorithm, batch, by_hand)


def test_a_gap_is_not_calibrated_where_the_return_to_go_is_not_known() -> None:
    calibrated, plain = (made(cls, initial_alpha=0.3, num_samples=4) for cls in (prl.CalQL, prl.CQL))
    plain.set_weights(calibrated.get_weights())
    unknown = n_step_batch() | {RTG: torch.full((5, 1), torch.nan)}
    gradients, result = calibrated.compute_gradients(unknown)
    expected, plain_result = plain.compute_gradients(n_step_batch())
    assert result.metrics["conservative_gap"] == plain_result.metrics["conservative_gap"]
    assert_equal(dict(gradients), dict(expected))


def test_calql_learns_from_data_and_then_from_environments_with_their_returns(tmp_path: Path) -> None:
    data, storage = recorded(tmp_path / "data.npz", "Pendulum-v1"), prl.ReplayBuffer.create_factory(size=100)
    algorithm = prl.CalQL.create_factory(mini_batch_size=8, num_samples=2, test_every=0, start_steps=0, gamma=0.5)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(8,))
    envs = prl.VecEnv.create_factory("Pendulum-v1", env_kwargs={"max_episode_steps": 20})
    offline = train(prl.Scheme(algorithm, actor, prl.from_dataset(storage, data), test_envs_factory=envs, seed=1), 3)
    assert offline.algorithm.updates == 3
    online = prl.Scheme(
        algorithm,
        actor,
        storage,
        envs,
        sources={"data": prl.from_dataset(storage, data)},
        mixed={"main": prl.MixedSource({"data": 0.5, "main": 0.5})},
        seed=1,
    )
    online.algorithm.set_weights(offline.algorithm.get_weights())
    train(online, 30)
    assert online.algorithm.updates == 30
    for name, ended in (("data", 60), ("main", 20)):
        fields = online.storages[name].get_all_buffer_data()
        rewards = fields[REW][:, 0, 0].tolist()
        (batch,) = online.storages[name].generate_batches(1, 200)
        for number, value in zip(batch[INDICES][:, 0].tolist(), batch[RTG][:, 0].tolist(), strict=True):
            # Episodes have 20 steps.
            rest = rewards[number : number - number % 20 + 20]
            expected = sum(0.5**i * reward for i, reward in enumerate(rest)) if number < ended else math.nan
            assert value == pytest.approx(expected, rel=1e-5, nan_ok=True)
