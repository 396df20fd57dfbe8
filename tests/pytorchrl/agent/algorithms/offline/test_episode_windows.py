"""Windows of episodes and returns-to-go equal those of loops; windows never mix episodes."""

from typing import Any

import numpy as np
import torch

from pytorchrl.agent.algorithms.offline.trajectories import draw_windows
from storages.transition import ACT, MASK, OBS, REW, WEIGHTS

LENGTHS = (5, 1, 3, 8)
STEPS, EPISODES = max(LENGTHS), len(LENGTHS)


def batch(nested: bool = False) -> dict[str, Any]:
    """Each observation holds its episode and step; padding is 99 everywhere, so that its use would be noticed."""
    random = np.random.default_rng(0)
    fields = {
        OBS: np.full((STEPS, EPISODES, 2), 99.0),
        ACT: np.full((STEPS, EPISODES, 1), 99),
        REW: np.full((STEPS, EPISODES, 1), 99.0),
        MASK: np.zeros((STEPS, EPISODES, 1)),
        WEIGHTS: random.uniform(0.5, 1.0, (EPISODES, 1)),
    }
    for episode, length in enumerate(LENGTHS):
        for step in range(length):
            fields[OBS][step, episode] = episode, step
            fields[ACT][step, episode] = 10 * episode + step
            fields[REW][step, episode] = random.normal()
            fields[MASK][step, episode] = 1
    tensors: dict[str, Any] = {
        name: torch.from_numpy(field).to(torch.int64 if name == ACT else torch.float32)
        for name, field in fields.items()
    }
    if nested:
        tensors[OBS] = {"both": tensors[OBS], "step": tensors[OBS][..., 1:]}
    return tensors


def test_windows_are_consecutive_steps_of_one_episode_with_returns_to_go() -> None:
    given, length, each = batch(), 4, 3
    before = {name: field.clone() for name, field in given.items()}
    windows = draw_windows(given, length, each, torch.Generator().manual_seed(0))
    number = EPISODES * each
    obs, action = windows.obs.view(number, length, 2), windows.action.view(number, length)
    total = 0.0
    for row in range(number):
        first = int(windows.first[row, 0])
        episode = row % EPISODES
        assert 0 <= first < LENGTHS[episode]
        for step in range(length):
            here = min(first + step, LENGTHS[episode] - 1)
            assert obs[row, step].tolist() == [episode, here]
            assert action[row, step] == 10 * episode + here
            return_to_go = sum(float(given[REW][later, episode, 0]) for later in range(here, LENGTHS[episode]))
            np.testing.assert_allclose(windows.returns[row, step, 0], return_to_go, rtol=1e-4, atol=1e-5)
            is_real = first + step < LENGTHS[episode]
            assert (windows.weight[row, step, 0] > 0) == is_real
            total += LENGTHS[episode] * is_real
    for row in range(number):
        episode = row % EPISODES
        expected = LENGTHS[episode] / total * float(given[WEIGHTS][episode, 0])
        real = windows.weight[row][windows.weight[row] > 0]
        np.testing.assert_allclose(real, expected, rtol=1e-5)
    of_episodes = [sum(float(given[REW][step, e, 0]) for step in range(LENGTHS[e])) for e in range(EPISODES)]
    np.testing.assert_allclose(windows.episode_returns[:, 0], of_episodes, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(given[name], before[name]) for name in given)


def test_values_per_episode_are_means_over_the_real_steps_of_its_windows() -> None:
    windows = draw_windows(batch(), 4, 3, torch.Generator().manual_seed(0))
    values = torch.randn(windows.weight.shape, generator=torch.Generator().manual_seed(1))
    found = windows.per_episode(values)
    for episode in range(EPISODES):
        of_windows = [
            float(values[row, step, 0])
            for row in range(episode, len(values), EPISODES)
            for step in range(4)
            if windows.weight[row, step, 0] > 0
        ]
        np.testing.assert_allclose(found[episode, 0], np.mean(of_windows), rtol=1e-5, atol=1e-6)


def test_windows_begin_at_every_step_of_the_data_with_equal_weight() -> None:
    given = batch()
    given.pop(WEIGHTS)
    windows = draw_windows(given, 1, 4_000, torch.Generator().manual_seed(0))
    for episode, length in enumerate(LENGTHS):
        of_episode = slice(episode, None, EPISODES)
        for step in range(length):
            counted = windows.weight[of_episode][windows.first[of_episode] == step].sum().item()
            np.testing.assert_allclose(counted, 1 / sum(LENGTHS), rtol=0.15)


def test_observations_may_be_dicts() -> None:
    windows = draw_windows(batch(nested=True), 4, 2, torch.Generator().manual_seed(0))
    torch.testing.assert_close(windows.obs["both"][:, 1:], windows.obs["step"])
