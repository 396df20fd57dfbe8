"""Explorers choose actions by their formulas."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import Categorical, DiagonalGaussian, SquashedGaussian
from pytorchrl.agent.explorers import best_action
from tests.support.exploring import Bounded, Countable, Counted, Peaks, Values, acted, exploration_of

VALUES = Values(torch.tensor([[0.0, 2.0, 1.0], [3.0, 0.5, 0.0]]))
ACTIONS = torch.tensor([[0.5, -0.9], [0.0, 0.3]])


def assert_frequencies(actions: Any, expected: Any) -> None:
    """Assert that (N, E, 1) actions have the probabilities (E, n), by a chi-square test."""
    n = len(expected[0])
    for env, probabilities in enumerate(np.asarray(expected, np.float64)):
        counts = np.bincount(np.asarray(actions)[:, env, 0], minlength=n)
        likely = probabilities > 0
        assert counts[~likely].sum() == 0
        expected_counts = probabilities[likely] * len(actions)
        chi_square = ((counts[likely] - expected_counts) ** 2 / expected_counts).sum()
        # The 0.9999 quantile of chi-square with 2 degrees of freedom.
        assert chi_square < 18.4


def test_the_best_action_is_greedy_or_the_mode_or_the_action_itself() -> None:
    torch.testing.assert_close(best_action(VALUES), torch.tensor([[1], [0]]))
    torch.testing.assert_close(best_action(Peaks(ACTIONS)), ACTIONS)
    torch.testing.assert_close(best_action(Categorical(VALUES.values)), torch.tensor([[1], [0]]))
    torch.testing.assert_close(best_action(DiagonalGaussian(ACTIONS, torch.zeros(2))), ACTIONS)
    assert best_action(ACTIONS) is ACTIONS
    with pytest.raises(TypeError, match="a dict has no greedy action"):
        best_action({"action": ACTIONS})


@pytest.mark.parametrize("output", [VALUES, ACTIONS, Categorical(VALUES.values), Peaks(ACTIONS)])
def test_greedy_draws_no_random_numbers(output: Any) -> None:
    exploration = exploration_of(Countable(3), 2)
    before = exploration.state_dict()
    torch.testing.assert_close(acted(prl.Greedy(), output, exploration)[0], best_action(output))
    assert exploration.random.bit_generator.state == before["random"]
    assert torch.equal(exploration.generator.get_state(), before["generator"])


def test_each_environment_explores_with_its_ape_x_probability() -> None:
    explorer, exploration = prl.ApeXEpsilonGreedy(0.4, alpha=3.0), exploration_of(Countable(3), 4)
    probabilities = [0.4 ** (1 + i / 3 * 3.0) for i in range(4)]
    np.testing.assert_allclose(explorer.probability(exploration)[:, 0], probabilities)
    values = Values(torch.tensor([[0.0, 2.0, 1.0]]).expand(4, 3))
    actions = acted(explorer, values, exploration, times=5000)
    assert_frequencies(actions, [[p / 3, 1 - p + p / 3, p / 3] for p in probabilities])


def test_ape_x_defaults_are_those_of_the_paper_and_one_environment_uses_epsilon() -> None:
    explorer = prl.ApeXEpsilonGreedy()
    assert explorer.probability(exploration_of(Countable(3), 1)).tolist() == [[0.4]]
    last = explorer.probability(exploration_of(Countable(3), 256))[-1, 0]
    assert last == pytest.approx(0.4**8)
    fading = prl.ApeXEpsilonGreedy(prl.LinearSchedule(1.0, 0.0), alpha=1.0)
    exploration = exploration_of(Countable(3), 2)
    exploration.steps, exploration.target_steps = 50, 100
    assert fading.probability(exploration).tolist() == [[0.5], [0.25]]
    with pytest.raises(ValueError, match="ApeXEpsilonGreedy: alpha must be at least 0, got -1"):
        prl.ApeXEpsilonGreedy(alpha=-1.0)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.6, 1.0])
def test_epsilon_greedy_explores_with_probability_epsilon_in_each_environment(epsilon: float) -> None:
    actions = acted(prl.EpsilonGreedy(epsilon), VALUES, exploration_of(Countable(3), 2), times=5000)
    assert actions.dtype == torch.int64
    greedy = np.array([[0, 1, 0], [1, 0, 0]])
    assert_frequencies(actions, (1 - epsilon) * greedy + epsilon / 3)
    if epsilon == 0.6:
        explored = (actions != best_action(VALUES)).squeeze(2).numpy()
        together = np.mean(explored[:, 0] & explored[:, 1])
        assert together == pytest.approx(0.4**2, abs=0.02)


def test_epsilon_greedy_computes_values_only_if_an_environment_needs_them() -> None:
    always, never = Counted(VALUES), Counted(VALUES)
    acted(prl.EpsilonGreedy(1.0), never, exploration_of(Countable(3), 2), times=20)
    acted(prl.EpsilonGreedy(0.0), always, exploration_of(Countable(3), 2), times=20)
    assert (never.times, always.times) == (0, 20)
    sometimes = Counted(VALUES)
    acted(prl.EpsilonGreedy(0.9), sometimes, exploration_of(Countable(3), 2), times=1000)
    assert sometimes.times == pytest.approx(1000 * (1 - 0.9**2), abs=50)


def test_epsilon_follows_its_schedule() -> None:
    explorer, exploration = prl.EpsilonGreedy(prl.LinearSchedule(1.0, 0.0)), exploration_of(Countable(3), 2)
    exploration.target_steps = 40_000
    explored = (acted(explorer, VALUES, exploration, times=20_000) != best_action(VALUES)).float().mean((1, 2))
    # Two of three random actions differ from the greedy one.
    for part, middle in zip(explored.chunk(4), (0.875, 0.625, 0.375, 0.125), strict=True):
        assert part.mean().item() == pytest.approx(middle * 2 / 3, abs=0.025)


def test_epsilon_greedy_works_with_values_that_only_have_a_greedy_action() -> None:
    actions = acted(prl.EpsilonGreedy(0.25), Peaks(ACTIONS), exploration_of(Bounded(2), 2), times=4000)
    greedy = (actions == ACTIONS).all(2)
    assert greedy.float().mean().item() == pytest.approx(0.75, abs=0.02)
    assert actions[~greedy].std().item() == pytest.approx(1 / math.sqrt(3), abs=0.03)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_boltzmann_samples_from_the_softmax_of_values(temperature: float) -> None:
    actions = acted(prl.Boltzmann(temperature), VALUES, exploration_of(Countable(3), 2), times=5000)
    weights = np.exp(VALUES.values.numpy().astype(np.float64) / temperature)
    assert_frequencies(actions, weights / weights.sum(1, keepdims=True))


@pytest.mark.parametrize("temperature", [0.0, 1e-30])
def test_boltzmann_at_a_temperature_near_zero_is_greedy(temperature: float) -> None:
    values = Values(torch.tensor([[1e30, -1e30, 0.0], [-1e-3, 1e-3, 0.0]]))
    actions = acted(prl.Boltzmann(temperature), values, exploration_of(Countable(3), 2), times=200)
    assert (actions == values.greedy()).all()


@pytest.mark.parametrize(
    ("codec", "distribution"),
    [
        (Countable(3), Categorical(torch.tensor([[0.0, 1.0, -1.0]]).repeat(500, 1))),
        (Bounded(2), SquashedGaussian(torch.full((500, 2), 9.0), torch.zeros((500, 2)))),
        (Bounded(2), DiagonalGaussian(torch.zeros((500, 2)), torch.ones((500, 2)))),
    ],
    ids=["categorical", "squashed gaussian at its bound", "gaussian"],
)
def test_log_probabilities_of_sampled_actions_match_the_distribution(codec: Any, distribution: Any) -> None:
    with torch.inference_mode():
        action, log_prob = prl.Sample().act_with_log_prob(distribution, exploration_of(codec, 500))
        assert action.shape[0] == 500
        assert action.unique().numel() > 1
        torch.testing.assert_close(log_prob, distribution.log_prob(action))


def test_explorers_without_log_probabilities_take_them_from_the_distribution() -> None:
    distribution = Categorical(torch.tensor([[0.0, 1.0, -1.0]]))
    action, log_prob = prl.Greedy().act_with_log_prob(distribution, exploration_of(Countable(3), 1))
    assert action.item() == 1
    torch.testing.assert_close(log_prob, distribution.log_prob(action))


class NeverFirst(prl.Sample):
    def act(self, output: Any, exploration: Any) -> torch.Tensor:
        return super().act(output, exploration).clamp(min=1)


def test_a_subclass_of_sample_acts_by_its_own_method_with_log_probabilities_too() -> None:
    distribution = Categorical(torch.tensor([[5.0, 1.0, -1.0]]).repeat(50, 1))
    with torch.inference_mode():
        action, log_prob = NeverFirst().act_with_log_prob(distribution, exploration_of(Countable(3), 50))
        assert action.min() == 1
        torch.testing.assert_close(log_prob, distribution.log_prob(action))


def test_sample_draws_from_the_distribution() -> None:
    actions = acted(prl.Sample(), Categorical(VALUES.values), exploration_of(Countable(3), 2), times=5000)
    assert_frequencies(actions, VALUES.values.softmax(1))
    squashed = SquashedGaussian(ACTIONS, torch.full((2, 2), -1.0))
    torch.testing.assert_close(
        acted(prl.Sample(), squashed, exploration_of(Bounded(2), 2, seed=3))[0],
        squashed.sample(exploration_of(Bounded(2), 2, seed=3).generator),
    )


@pytest.mark.parametrize("output", [ACTIONS, DiagonalGaussian(ACTIONS, torch.zeros(2)), Peaks(ACTIONS)])
@pytest.mark.parametrize("clip", [None, 0.15])
def test_gaussian_noise_and_the_resulting_action_are_clipped(output: Any, clip: float | None) -> None:
    exploration, again = exploration_of(Bounded(2), 2), exploration_of(Bounded(2), 2)
    actions = acted(prl.GaussianNoise(0.3, clip), output, exploration, times=1000).numpy()
    normal = torch.stack([torch.empty(2, 2).normal_(generator=again.generator) for _ in range(1000)]).numpy()
    noise = 0.3 * normal if clip is None else np.clip(0.3 * normal, -clip, clip)
    np.testing.assert_allclose(actions, np.clip(ACTIONS.numpy() + noise, -1, 1), rtol=1e-5, atol=1e-6)
    assert (actions == -1).any() or clip is not None


def test_sigma_follows_its_schedule() -> None:
    explorer, exploration = prl.GaussianNoise(prl.LinearSchedule(0.4, 0.0)), exploration_of(Bounded(2), 2)
    exploration.target_steps = 2000
    noise = acted(explorer, torch.zeros(2, 2), exploration, times=1001)
    assert noise[-1].abs().max() == 0
    assert noise[:100].std().item() > 3 * noise[-150:-50].std().item()


def test_ornstein_uhlenbeck_noise_follows_its_recurrence() -> None:
    explorer = prl.OrnsteinUhlenbeck(prl.LinearSchedule(0.5, 0.1), theta=0.4, dt=0.25)
    exploration, again = exploration_of(Bounded(2), 2), exploration_of(Bounded(2), 2)
    exploration.target_steps = 100
    x = np.zeros((2, 2))
    for steps in range(0, 120, 2):
        exploration.steps = steps
        action = explorer.act(lambda: ACTIONS, exploration).numpy()
        sigma = max(0.1, 0.5 - 0.4 * steps / 100)
        drawn = torch.empty(2, 2).normal_(generator=again.generator).numpy()
        x = x - 0.4 * x * 0.25 + sigma * math.sqrt(0.25) * drawn
        np.testing.assert_allclose(action, np.clip(ACTIONS.numpy() + x, -1, 1), atol=1e-5)


def test_ornstein_uhlenbeck_noise_has_its_stationary_deviation_and_autocorrelation() -> None:
    explorer = prl.OrnsteinUhlenbeck(0.2, theta=0.5, dt=0.2)
    noise = acted(explorer, torch.zeros(50, 2), exploration_of(Bounded(2), 50), times=2000)[200:].numpy()
    assert noise.std() == pytest.approx(0.2 * math.sqrt(0.2) / math.sqrt(1 - 0.9**2), rel=0.03)
    assert np.mean(noise[1:] * noise[:-1]) / noise.var() == pytest.approx(0.9, abs=0.01)


def test_ornstein_uhlenbeck_noise_restarts_where_an_episode_begins() -> None:
    explorer, exploration = prl.OrnsteinUhlenbeck(0.05), exploration_of(Bounded(2), 3)
    exploration.state["OrnsteinUhlenbeck"] = torch.full((3, 2), 0.9)
    exploration.starts = torch.tensor([[0.0], [1.0], [0.0]])
    noise = explorer.act(lambda: torch.zeros(3, 2), exploration)
    assert (noise[[0, 2]] > 0.8).all()
    assert (noise[1].abs() < 0.1).all()
    exploration.starts = torch.zeros(3, 1)
    after = explorer.act(lambda: torch.zeros(3, 2), exploration)
    torch.testing.assert_close(after, noise, atol=0.05, rtol=0)


def test_uniform_until_acts_at_random_for_the_given_number_of_transitions() -> None:
    explorer, output = prl.UniformUntil(4000, then=prl.Greedy()), Counted(VALUES)
    exploration = exploration_of(Countable(3), 2)
    actions = acted(explorer, output, exploration, times=2500)
    assert_frequencies(actions[:2000], np.full((2, 3), 1 / 3))
    assert (actions[2000:] == best_action(VALUES)).all()
    assert output.times == 500


def test_uniform_until_may_begin_with_an_explorer_instead() -> None:
    explorer = prl.UniformUntil(40, then=prl.EpsilonGreedy(1.0), first=prl.Greedy())
    actions = acted(explorer, Counted(VALUES), exploration_of(Countable(3), 2), times=400)
    assert (actions[:20] == best_action(VALUES)).all()
    assert_frequencies(actions[20:], np.full((2, 3), 1 / 3))


DISTRIBUTION = Categorical(VALUES.values)
MISFITS = [
    (prl.EpsilonGreedy(0.0), DISTRIBUTION, "EpsilonGreedy needs action values, the network gives Categorical; "
     "explore with Sample"),
    (prl.EpsilonGreedy(0.0), ACTIONS, "EpsilonGreedy needs action values, the network gives a tensor of torch.float32; "
     "explore with GaussianNoise or OrnsteinUhlenbeck"),
    (prl.Boltzmann(1.0), DISTRIBUTION, "Boltzmann needs values of discrete actions, the network gives Categorical"),
    (prl.Boltzmann(1.0), Peaks(ACTIONS), "the network gives Peaks; explore with EpsilonGreedy"),
    (prl.Sample(), VALUES, "Sample needs a distribution, the network gives Values; explore with EpsilonGreedy"),
    (prl.Sample(), ACTIONS, "Sample needs a distribution, the network gives a tensor of torch.float32"),
    (prl.GaussianNoise(0.1), VALUES, "GaussianNoise needs continuous actions, the network gives Values"),
    (prl.GaussianNoise(0.1), DISTRIBUTION, "GaussianNoise needs continuous actions, .* explore with Sample"),
    (prl.OrnsteinUhlenbeck(0.1), VALUES, "OrnsteinUhlenbeck needs continuous actions, the network gives Values"),
]  # fmt: skip


@pytest.mark.parametrize(("explorer", "output", "message"), MISFITS)
def test_an_explorer_that_does_not_fit_the_output_is_refused(explorer: Any, output: Any, message: str) -> None:
    for refused in (explorer, prl.UniformUntil(0, then=explorer), prl.UniformUntil(1, prl.Greedy(), first=explorer)):
        with pytest.raises(TypeError, match=message):
            acted(refused, output, exploration_of(Countable(3), 2))
        # Also if the explorer is used only after many transitions.
        with pytest.raises(TypeError, match=message):
            prl.UniformUntil(10_000, then=refused).check_output(output)


@pytest.mark.parametrize(
    ("explorer", "output"),
    [
        (prl.Greedy(), ACTIONS),
        (prl.EpsilonGreedy(0.1), VALUES),
        (prl.Boltzmann(0.1), VALUES),
        (prl.Sample(), DISTRIBUTION),
        (prl.GaussianNoise(0.1), DiagonalGaussian(ACTIONS, torch.zeros(2))),
        (prl.OrnsteinUhlenbeck(0.1), ACTIONS),
    ],
)
def test_an_explorer_that_fits_the_output_is_accepted(explorer: Any, output: Any) -> None:
    prl.UniformUntil(1, then=explorer).check_output(output)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: prl.EpsilonGreedy(1.5), r"EpsilonGreedy: epsilon must lie in \[0, 1\], got 1.5"),
        (
            lambda: prl.EpsilonGreedy(prl.LinearSchedule(2, 0)),
            r"EpsilonGreedy: epsilon must lie in \[0, 1\], got Linear",
        ),
        (lambda: prl.Boltzmann(-1.0), "Boltzmann: temperature must be at least 0, got -1.0"),
        (lambda: prl.GaussianNoise(-0.1), "GaussianNoise: sigma must be at least 0, got -0.1"),
        (lambda: prl.GaussianNoise(0.1, clip=0), "GaussianNoise: clip must be greater than 0, got 0"),
        (lambda: prl.OrnsteinUhlenbeck(0.1, theta=0), "OrnsteinUhlenbeck: theta must be greater than 0, got 0"),
        (lambda: prl.OrnsteinUhlenbeck(0.1, theta=20, dt=0.1), r"theta \* dt must be less than 2, .* got theta=20.0"),
        (lambda: prl.UniformUntil(-1, then=prl.Greedy()), "UniformUntil: steps must be at least 0, got -1"),
        (lambda: prl.UniformUntil(10, then=None), "UniformUntil: then must be an Explorer, got None"),  # type: ignore[arg-type]
    ],
)
def test_hyper_parameters_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("num_envs", [1, 3])
def test_all_components_of_an_action_are_explored_together(num_envs: int) -> None:
    class Grid:
        def uniform(self, random: np.random.Generator, num_envs: int) -> torch.Tensor:
            return torch.from_numpy(random.integers(1, 5, (num_envs, 2, 2)))

        def clip(self, action: torch.Tensor) -> torch.Tensor:
            return action

    output = Peaks(torch.zeros(num_envs, 2, 2, dtype=torch.int64))
    actions = acted(prl.EpsilonGreedy(0.5), output, exploration_of(Grid(), num_envs), times=50)
    random = (actions > 0).flatten(2)
    assert (random.all(2) == random.any(2)).all()
