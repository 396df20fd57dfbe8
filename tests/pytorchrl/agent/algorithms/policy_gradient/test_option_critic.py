"""Options act until they terminate; their policies, values and terminations learn as the papers' equations say."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.algorithms.policy_gradient.options import OPTION, OPTION_BEFORE
from pytorchrl.agent.explorers import Exploration
from storages.transition import ACT, ADV, DONE, DONE2, LOGP, OBS, OBS2, RET, REW, RHS2, TRUNC2, VAL, Batch
from tests.support.by_hand import envs_with, exploring, linear, numeric_gradient, numpy, perturb
from tests.support.comparison import assert_equal
from tests.support.toys import RandomEnds, continuous
from tests.support.training import saved_and_loaded

OPTIONS, ACTIONS, ROWS, GAMMA = 3, 4, 6, 0.9
DISCRETE, BOX = spaces.Discrete(ACTIONS), continuous(-1.0, 1.0, 2)


def linear_option_critic(space: Any = DISCRETE, **hyper_parameters: Any) -> prl.OptionCritic:
    envs = envs_with(space)
    actor = prl.OnPolicyActor.create_factory(hidden_sizes=())("cpu", envs)
    settings: dict[str, Any] = {"num_options": OPTIONS, "gamma": GAMMA, "optimizer": prl.Adam()}
    algorithm = prl.OptionCritic.create_factory(**(settings | hyper_parameters))("cpu", actor, envs)
    perturb(actor, 1, 0.5)
    return algorithm


def terminate(algorithm: prl.OptionCritic, probability: float) -> None:
    """Give all options one termination probability in all states."""
    with torch.no_grad():
        algorithm.termination.head.layer.weight.zero_()
        algorithm.termination.head.layer.bias.fill_(np.log(probability / (1 - probability)))


def value_options(algorithm: prl.OptionCritic, *values: float) -> None:
    """Give the options these values in all states."""
    with torch.no_grad():
        algorithm.option_values.head.layer.weight.zero_()
        algorithm.option_values.head.layer.bias.copy_(torch.tensor(values))


def acted(algorithm: prl.OptionCritic, exploration: Exploration, starts: float = 0.0, seed: int = 0) -> Any:
    """One step in all environments."""
    generator = torch.Generator().manual_seed(seed)
    obs = torch.randn((exploration.num_envs, 3), generator=generator)
    done = exploration.starts = torch.full((exploration.num_envs, 1), starts)
    return algorithm.acting_step(obs, None, done, exploration)


# Acting


def test_an_option_acts_until_it_terminates_or_the_episode_ends() -> None:
    algorithm = linear_option_critic(option_epsilon=1.0)
    terminate(algorithm, 1e-9)
    exploration = exploring(algorithm, 50)
    first = acted(algorithm, exploration, starts=1.0).fields[OPTION]
    assert set(first.ravel().tolist()) == set(range(OPTIONS))
    for seed in range(3):
        fields = acted(algorithm, exploration, seed=seed).fields
        assert_equal((fields[OPTION], fields[OPTION_BEFORE]), (first, first))
    anew = acted(algorithm, exploration, starts=1.0).fields
    assert (anew[OPTION] != first).any()
    terminate(algorithm, 1 - 1e-6)
    again = acted(algorithm, exploration).fields
    assert_equal(again[OPTION_BEFORE], anew[OPTION])
    assert (again[OPTION] != anew[OPTION]).any()


def test_options_terminate_with_their_probability_and_are_chosen_epsilon_greedily() -> None:
    algorithm, envs = linear_option_critic(option_epsilon=0.3), 20_000
    terminate(algorithm, 0.25)
    value_options(algorithm, 1.0, 3.0, 2.0)
    exploration = exploring(algorithm, envs)
    first = acted(algorithm, exploration, starts=1.0).fields[OPTION]
    counts = np.bincount(first.ravel(), minlength=OPTIONS) / envs
    np.testing.assert_allclose(counts, [0.1, 0.8, 0.1], atol=0.01)
    value_options(algorithm, 3.0, 1.0, 2.0)
    second = acted(algorithm, exploration).fields[OPTION]
    # Of those that had option 1, a quarter chooses anew.
    after = np.bincount(second[first == 1], minlength=OPTIONS) / (first == 1).sum().item()
    np.testing.assert_allclose(after, [0.25 * 0.8, 0.75 + 0.25 * 0.1, 0.25 * 0.1], atol=0.012)


def test_without_exploration_the_best_option_acts_until_its_termination_is_likely() -> None:
    algorithm = linear_option_critic(option_epsilon=1.0)
    value_options(algorithm, 1.0, 3.0, 2.0)
    terminate(algorithm, 0.49)
    exploration = exploring(algorithm, 5, deterministic=True)
    step = acted(algorithm, exploration, starts=1.0)
    assert not step.fields
    assert (exploration.state[OPTION] == 1).all()
    value_options(algorithm, 3.0, 1.0, 2.0)
    acted(algorithm, exploration)
    assert (exploration.state[OPTION] == 1).all()
    terminate(algorithm, 0.51)
    acted(algorithm, exploration)
    assert (exploration.state[OPTION] == 0).all()


@pytest.mark.parametrize("space", [DISCRETE, BOX, spaces.MultiDiscrete([2, 3])], ids=["discrete", "box", "several"])
def test_actions_and_their_log_probabilities_are_of_the_option_in_use(space: Any) -> None:
    algorithm = linear_option_critic(space, option_epsilon=1.0)
    exploration = exploring(algorithm, 40)
    step = acted(algorithm, exploration, starts=1.0)
    obs = torch.randn((40, 3), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features = algorithm.actor.view(obs).features(algorithm.pi.body)
        policies = [head(features) for head in algorithm.pi.head.policies]  # type: ignore[union-attr]
        by_row = [policies[int(option)].log_prob(step.action)[row] for row, option in enumerate(step.fields[OPTION])]
        values = algorithm.option_values(algorithm.actor.view(obs)).gather(1, step.fields[OPTION])
    torch.testing.assert_close(step.fields[LOGP], torch.stack(by_row))
    torch.testing.assert_close(step.fields[VAL], values)


@pytest.mark.parametrize(
    "space", [DISCRETE, continuous(size=2), spaces.Box(-1, 1, (2, 3))], ids=["discrete", "box", "of two axes"]
)
def test_the_distribution_of_options_in_use_is_that_of_its_option_in_each_row(space: Any) -> None:
    algorithm, generator = linear_option_critic(space), torch.Generator().manual_seed(0)
    obs, option = torch.randn((OPTIONS, 3), generator=generator), torch.tensor([[2], [0], [1]])
    with torch.no_grad():
        features = algorithm.actor.view(obs).features(algorithm.pi.body)
        policies = [head(features) for head in algorithm.pi.head.policies]  # type: ignore[union-attr]
        chosen, other = (algorithm.pi(algorithm.actor.view(seen)).of(option) for seen in (obs, -obs))
        others = [head(-features) for head in algorithm.pi.head.policies]  # type: ignore[union-attr]
        draws = chosen.sample(torch.Generator().manual_seed(1), 7)

        def of_rows(parts: Any) -> Any:
            return torch.stack([parts[int(one)][row] for row, one in enumerate(option)])

        same = torch.Generator().manual_seed(1)
        drawn = [policy.sample(same, 7) for policy in policies]
        assert_equal(draws, torch.stack([drawn[int(one)][:, row] for row, one in enumerate(option)], dim=1))
        assert_equal(chosen.mode(), of_rows([policy.mode() for policy in policies]))
        assert_equal(chosen.entropy(), of_rows([policy.entropy() for policy in policies]))
        divergences = [one.kl(their) for one, their in zip(policies, others, strict=True)]
        torch.testing.assert_close(chosen.kl(other), of_rows(divergences))
        log_probs = torch.stack([policy.log_prob(draws) for policy in policies])
        expected = torch.stack([log_probs[int(one)][:, row] for row, one in enumerate(option)], dim=1)
        torch.testing.assert_close(chosen.detach().log_prob(draws), expected)


def test_the_option_in_use_is_saved_and_restored() -> None:
    algorithm = linear_option_critic()
    one, other = exploring(algorithm, 8), exploring(algorithm, 8, seed=5)
    acted(algorithm, one, starts=1.0)
    other.load_state_dict(saved_and_loaded(one.state_dict()))
    for seed in range(4):
        assert_equal(*(acted(algorithm, each, seed=seed).fields for each in (one, other)))


# Learning


def batch_of(seed: int = 0) -> Batch:
    generator = np.random.default_rng(seed)
    numbers = {OBS: (ROWS, 3), RET: (ROWS, 1), ADV: (ROWS, 1), REW: (ROWS, 1)}
    fields: dict[str, Any] = {key: generator.normal(size=shape).astype(np.float32) for key, shape in numbers.items()}
    for key, count in ((ACT, ACTIONS), (OPTION, OPTIONS), (OPTION_BEFORE, OPTIONS)):
        fields[key] = generator.integers(count, size=(ROWS, 1))
    fields[DONE] = (np.arange(ROWS) % 4 == 0).astype(np.float32)[:, None]
    return {key: torch.from_numpy(value) for key, value in fields.items()}


class ByHand:
    """The networks in numpy; their layers can be changed in place."""

    def __init__(self, algorithm: prl.OptionCritic) -> None:
        def layer(module: Any) -> Any:
            return [numpy(module.layer.weight), numpy(module.layer.bias)]

        self.policies = [layer(head) for head in algorithm.pi.head.policies]  # type: ignore[union-attr]
        self.values, self.termination = layer(algorithm.option_values.head), layer(algorithm.termination.head)

    @property
    def layers(self) -> list[Any]:
        return [number for layer in (*self.policies, self.values, self.termination) for number in layer]


@pytest.mark.parametrize("cost", [0.0, 0.5])
def test_an_update_equals_the_one_computed_by_hand(cost: float) -> None:
    coefficients = {"value_loss_coef": 0.7, "entropy_coef": 0.05, "termination_coef": 0.4}
    algorithm = linear_option_critic(
        lr=0.01, max_grad_norm=None, optimizer=prl.SGD(), option_epsilon=0.2, deliberation_cost=cost, **coefficients
    )
    batch, by_hand = batch_of(), ByHand(algorithm)
    obs, rows = numpy(batch[OBS]), np.arange(ROWS)
    action, option, before = (batch[key][:, 0].numpy() for key in (ACT, OPTION, OPTION_BEFORE))
    returns, advantage, begins = (numpy(batch[key])[:, 0] for key in (RET, ADV, DONE))
    fixed = linear(by_hand.values, obs)
    over = 0.8 * fixed.max(1) + 0.2 * fixed.mean(1)
    worse = fixed[rows, before] - over + cost

    def loss() -> Any:
        logits = np.stack([linear(by_hand.policies[o], obs[row]) for row, o in enumerate(option)])
        log_probs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        entropy = -(np.exp(log_probs) * log_probs).sum(1).mean()
        gain = (log_probs[rows, action] * advantage).mean()
        error = 0.5 * ((linear(by_hand.values, obs)[rows, option] - returns) ** 2).mean()
        ends = 1 / (1 + np.exp(-linear(by_hand.termination, obs)[rows, before]))
        return -gain - 0.05 * entropy + 0.7 * error + 0.4 * ((1 - begins) * ends * worse).mean()

    expected = [layer - 0.01 * numeric_gradient(loss, layer) for layer in by_hand.layers]
    result = algorithm.update(batch)
    ends = 1 / (1 + np.exp(-linear(by_hand.termination, obs)[rows, before]))
    np.testing.assert_allclose(result.metrics["terminations"], ((1 - begins) * ends).mean(), rtol=1e-5)
    for now, after in zip(ByHand(algorithm).layers, expected, strict=True):
        np.testing.assert_allclose(now, after, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("memory", [None, "gru"])
def test_returns_bootstrap_from_the_option_in_use_where_an_episode_is_cut(memory: Any) -> None:
    scheme = prl.Scheme(
        prl.OptionCritic.create_factory(num_options=OPTIONS, gamma=GAMMA, option_epsilon=0.5, test_every=0),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), memory=memory, memory_size=4),
        prl.VanillaOnPolicyBuffer.create_factory(size=12),
        prl.VecEnv.create_factory(RandomEnds, num_envs=3),
        seed=2,
    )
    algorithm: Any = scheme.algorithm
    perturb(algorithm.option_values, 3)
    perturb(algorithm.termination, 4)
    scheme.collect(36)
    rollout = scheme.storage
    held = rollout.get_all_buffer_data()
    with torch.no_grad():
        flat = {key: held[key].flatten(0, 1) for key in held}
        view = algorithm.actor.view(flat[OBS2], flat.get(RHS2), torch.zeros(36, 1))
        values, ends = numpy(algorithm.option_values(view)), numpy(algorithm.termination(view).sigmoid())
    option = flat[OPTION].numpy()
    kept, end = np.take_along_axis(values, option, 1), np.take_along_axis(ends, option, 1)
    over = 0.5 * values.max(1, keepdims=True) + 0.5 * values.mean(1, keepdims=True)
    arriving = ((1 - end) * kept + end * over).reshape(12, 3)  # U(s', w)
    terminated, truncated, rewards = (numpy(held[key])[..., 0] for key in (DONE2, TRUNC2, REW))
    assert (truncated[:-1] > 0).any()
    returns, following = np.zeros((12, 3)), arriving[-1]
    for step in reversed(range(12)):
        following = np.where(truncated[step] > 0, arriving[step], following) * (1 - terminated[step])
        following = returns[step] = rewards[step] + GAMMA * following
    computed = {}
    before_gradients = rollout.before_gradients

    def recording() -> None:
        before_gradients()
        computed.update(rollout.get_all_buffer_data())

    rollout.before_gradients = recording  # type: ignore[method-assign]
    list(scheme.update())
    np.testing.assert_allclose(numpy(computed[RET])[..., 0], returns, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(numpy(computed[ADV] + computed[VAL])[..., 0], returns, rtol=1e-4, atol=1e-5)
    scheme.close()


# Composition


def test_a_policy_of_options_is_not_exported_as_a_function_of_observations(tmp_path: Any) -> None:
    policy = prl.TrainedPolicy(linear_option_critic())
    with pytest.raises(
        ValueError, match="OptionCritic chooses actions by what it keeps of earlier steps, which an exported"
    ):
        policy.export(tmp_path / "policy.pt2")


def test_noise_matrices_and_v_trace_are_refused() -> None:
    with pytest.raises(ValueError, match="OptionCritic: distribution must draw independent actions"):
        prl.OptionCritic.create_factory(distribution=prl.heads.GSDEPolicy(4))
    with pytest.raises(prl.CompositionError, match="VTraceBuffer needs log-probabilities"):
        prl.Scheme(
            prl.OptionCritic.create_factory(),
            prl.OnPolicyActor.create_factory(),
            prl.VTraceBuffer.create_factory(size=8),
            prl.VecEnv.create_factory("CartPole-v1"),
        )
