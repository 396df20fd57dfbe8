"""MBPO learns from transitions that equal slow numpy loops over rows and steps of the model."""

from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from storages.transition import ACT, DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import copies, layer_of, linear, numpy
from tests.support.comparison import assert_equal
from tests.support.soft_critics import drawn, made, n_step_batch

ROWS, SIZE, GAMMA = 5, 3, 0.9


def imagined_by_hand(algorithm: Any, batch: dict[str, torch.Tensor], longest: int) -> dict[str, Any]:
    """Fields of the model's transitions; networks have one layer, and each of two has every other part of the rows."""
    real = {key: numpy(value) for key, value in batch.items()}
    normal = lambda size: lambda g: torch.empty(ROWS, size).normal_(generator=g)  # noqa: E731
    of_steps = [normal(2), normal(SIZE + 1)] * longest
    draws = [lambda g: torch.rand(ROWS, 1, generator=g), lambda g: torch.randint(longest, (ROWS, 1), generator=g)]
    uniform, before, *noise = drawn(algorithm.generator, [*draws, *of_steps])
    policy = layer_of(algorithm.pi.head)
    heads = [network.head for network in algorithm.model.networks]
    made_: dict[str, Any] = {key: [] for key in (OBS, ACT, REW, OBS2, DISCOUNT)}
    for row in range(ROWS):
        is_real = uniform[row, 0] < algorithm.real_share
        left = 0 if is_real else int(before[row, 0])
        obs = real[OBS][row]
        for step in range(longest):
            of_policy, of_model = noise[2 * step : 2 * step + 2]
            mean, log_std = np.split(linear(policy, obs), 2)
            action = np.tanh(mean + np.exp(np.clip(log_std, -20, 2)) * of_policy[row])
            head = heads[0] if row < 3 else heads[1]
            numbers = linear(layer_of(head), np.concatenate([obs, action]))
            low, high = numpy(head.bounds)
            log_std = high - np.logaddexp(0, high - numbers[SIZE + 1 : -1])
            log_std = low + np.logaddexp(0, log_std - low)
            change = numbers[: SIZE + 1] + np.exp(log_std) * of_model[row]
            goes_on = numbers[-1] > 0
            if step < longest - 1:
                if not goes_on:
                    left = 0
                if step < left:
                    obs = obs + change[:-1]
                continue
            fields = {
                OBS: obs,
                ACT: 2 * action - 1,
                REW: change[-1:],
                OBS2: obs + change[:-1],
                DISCOUNT: [GAMMA * goes_on],
            }
            for key, value in fields.items():
                made_[key].append(real[key][row] if is_real else value)
    return {key: np.array(value) for key, value in made_.items()}


@pytest.mark.parametrize("real_share", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("longest", [1, 2, 4])
def test_transitions_equal_those_of_numpy_loops(longest: int, real_share: float) -> None:
    algorithm = made(prl.MBPO, ensemble_size=2, rollout_length=longest, real_share=real_share, gamma=GAMMA)
    batch = n_step_batch()
    before, expected = copies(batch), imagined_by_hand(algorithm, batch, longest)
    rows = algorithm.imagined(algorithm.read(batch))
    for key, value in expected.items():
        np.testing.assert_allclose(numpy(rows[key]), value, rtol=1e-4, atol=1e-5, err_msg=key)
    assert_equal(batch, before)


def test_with_real_transitions_alone_critics_and_policy_learn_as_those_of_sac() -> None:
    mbpo, sac = made(prl.MBPO, real_share=1.0), made(prl.SAC)
    weights = {name: value for name, value in mbpo.state_dict()["actor"].items() if "model" not in name}
    sac.actor.load_state_dict(weights)
    sac.target_critics.load_state_dict(mbpo.target_critics.state_dict())
    batch = n_step_batch()
    # Importance weights are of the model's loss alone.
    plain = {key: value for key, value in batch.items() if key != WEIGHTS}
    imagined = mbpo.imagined(mbpo.read(batch))
    for algorithm in (mbpo, sac):
        algorithm.seed(4)
    ours = prl.SAC.losses(mbpo, imagined)
    theirs = sac.losses(sac.read(plain))
    torch.testing.assert_close(ours.metrics["critic_loss"], theirs.metrics["critic_loss"])


def test_policies_learn_in_the_observations_of_real_transitions_unchanged() -> None:
    algorithm, batch = made(prl.MBPO, rollout_length=4, real_share=0.5), n_step_batch()
    obs, are_real = algorithm._beginnings(algorithm.read(batch))
    unchanged = (obs == batch[OBS]).all(1)
    assert 0 < are_real.sum() < ROWS
    assert unchanged[are_real[:, 0]].all()
    assert not unchanged.all()


def test_steps_begin_in_the_storages_observations_where_every_predicted_episode_ends() -> None:
    algorithm, batch = made(prl.MBPO, rollout_length=5, real_share=0.0), n_step_batch()
    with torch.no_grad():
        for network in algorithm.model.networks:
            network.head.layer.bias[-1] = -100
    rows = algorithm.imagined(algorithm.read(batch))
    assert torch.equal(rows[OBS], batch[OBS])
    assert not rows[DISCOUNT].any()


def test_the_model_learns_from_the_batch_and_its_errors_are_those_of_the_batch() -> None:
    mbpo, pets = (
        made(prl.MBPO, ensemble_size=2),
        made(prl.PETS, ensemble_size=2, planner=prl.planners.RandomShooting(2, 3)),
    )
    of_model = {name: value for name, value in mbpo.state_dict()["actor"].items() if "model" in name}
    pets.actor.load_state_dict(of_model)
    batch = n_step_batch()
    losses = mbpo.losses(mbpo.read(batch))
    expected = pets.losses(pets.read(batch))
    assert losses.errors is not None
    assert expected.errors is not None
    torch.testing.assert_close(losses.errors, expected.errors)
    before = copies(dict(mbpo.model.networks.state_dict()))
    result = mbpo.update(batch)
    assert result.info[ERRORS].shape == batch[REW].shape
    assert any(not torch.equal(value, before[name]) for name, value in mbpo.model.networks.state_dict().items())


def test_a_schedule_lengthens_rollouts() -> None:
    algorithm = made(prl.MBPO, rollout_length=prl.LinearSchedule(1, 9), real_share=0.0)
    rows = algorithm.read(n_step_batch())
    with torch.no_grad():
        for network in algorithm.model.networks:
            network.head.layer.bias[-1] = 100
    assert torch.equal(algorithm.imagined(rows)[OBS], rows[OBS])
    algorithm.set_progress(100, 100)
    assert not torch.equal(algorithm.imagined(rows)[OBS], rows[OBS])


def test_values_out_of_range_are_refused() -> None:
    for name, value in {"rollout_length": 0, "real_share": 1.5, "ensemble_size": 0, "lr_model": -1}.items():
        with pytest.raises(ValueError, match=f"MBPO: {name} must"):
            prl.MBPO.create_factory(**{name: value})
    with pytest.raises(ValueError, match="ensemble_size"):
        made(prl.MBPO).update_algorithm_parameter("ensemble_size", 3)
