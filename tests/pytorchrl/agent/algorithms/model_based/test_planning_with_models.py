"""Models' losses, gradients and rollouts equal slow numpy loops; plans go on from those of the step before."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import pytorchrl as prl
from pytorchrl.agent.actors.batched_passes import StackedNetworks
from pytorchrl.agent.actors.network import Network
from storages.transition import ACT, DISCOUNT, ERRORS, OBS, OBS2, REW, WEIGHTS
from tests.support.by_hand import copies, exploring, layer_of, linear, numeric_gradient, numpy
from tests.support.comparison import assert_equal
from tests.support.soft_critics import drawn, made, n_step_batch
from tests.support.toys import Counter

ROWS, SIZE, GAMMA = 5, 3, 0.9
BOTH = [prl.PETS, prl.PDDM]


def greedy(algorithm: Any) -> Any:
    return exploring(algorithm, 2, deterministic=True)


def softplus(number: Any) -> Any:
    return np.logaddexp(0, number)


class ByHand:
    """The losses of a batch, with the rows that each network draws; networks have one layer."""

    def __init__(self, algorithm: Any, batch: dict[str, torch.Tensor]) -> None:
        self.batch = {key: numpy(value) for key, value in batch.items()}
        self.probabilistic = algorithm.probabilistic
        heads = [network.head for network in algorithm.model.networks]
        self.layers = [layer_of(head) for head in heads]
        self.bounds = [numpy(head.bounds) for head in heads] if self.probabilistic else []
        count = len(heads)
        (self.drawn,) = drawn(algorithm.generator, [lambda g: torch.randint(ROWS, (count, ROWS), generator=g)])
        self.observed = np.hstack([self.batch[OBS2] - self.batch[OBS], self.batch[REW]])
        self.inputs = np.hstack([self.batch[OBS], (self.batch[ACT] + 1) / 2])  # the Box is [-3, 1]

    def predicted(self, network: int, row: int) -> tuple[Any, Any, float]:
        """Mean, standard deviation and log-odds of going on."""
        numbers = linear(self.layers[network], self.inputs[row])
        if not self.probabilistic:
            return numbers[:-1], self.observed.std(0), numbers[-1]
        low, high = self.bounds[network]
        log_std = high - softplus(high - numbers[SIZE + 1 : -1])
        return numbers[: SIZE + 1], np.exp(low + softplus(log_std - low)), numbers[-1]

    def loss(self) -> float:
        total = 0.0
        for network in range(len(self.layers)):
            for row in self.drawn[network].astype(int):
                mean, std, odds = self.predicted(network, row)
                surprise = 0.5 * ((mean - self.observed[row]) / std) ** 2
                if self.probabilistic:
                    surprise = surprise + np.log(std)
                goes_on = self.batch[DISCOUNT][row, 0] != 0
                ends = softplus(-odds if goes_on else odds)
                total += self.batch[WEIGHTS][row, 0] / ROWS * (surprise.mean() + ends)
            if self.probabilistic:
                low, high = self.bounds[network]
                total += 0.01 * (high - low).sum()
        return float(total)

    def error(self, row: int) -> float:
        squares = [
            np.square(self.predicted(each, row)[0] - self.observed[row]).mean() for each in range(len(self.layers))
        ]
        return math.sqrt(np.mean(squares))


@pytest.mark.parametrize("cls", BOTH)
def test_losses_errors_and_gradients_equal_those_of_numpy_loops(cls: Any) -> None:
    algorithm, batch = made(cls, ensemble_size=4, planner=prl.planners.RandomShooting(2, 3)), n_step_batch()
    before, by_hand = copies(batch), ByHand(algorithm, batch)
    # The episode of the second row ends.
    assert (by_hand.drawn == 1).any()
    gradients, result = algorithm.compute_gradients(batch)
    np.testing.assert_allclose(result.metrics["model_loss"], by_hand.loss(), rtol=1e-4)
    errors = [by_hand.error(row) for row in range(ROWS)]
    np.testing.assert_allclose(numpy(result.info[ERRORS])[:, 0], errors, rtol=1e-4)
    np.testing.assert_allclose(result.metrics["model_error"], np.mean(errors), rtol=1e-4)
    for network in range(4):
        parts = dict(zip(("layer.weight", "layer.bias"), by_hand.layers[network], strict=True))
        if by_hand.probabilistic:
            parts["bounds"] = by_hand.bounds[network]
        for name, part in parts.items():
            expected = numeric_gradient(by_hand.loss, part)
            found = numpy(gradients.pop(f"model.networks.{network}.head.{name}"))
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-4)
    assert not gradients
    assert_equal(batch, before)


def rollout_by_hand(algorithm: Any, obs: Any, actions: Any, noise: list[Any], network: int, row: int) -> float:
    """The return of an action sequence (H, A) in one rollout, whose noise is in a row of each step's."""
    head = algorithm.model.networks[network].head
    total, weight = 0.0, 1.0
    for step, action in enumerate(actions):
        numbers = linear(layer_of(head), np.concatenate([obs, action]))
        change = numbers[: SIZE + 1]
        if algorithm.probabilistic:
            low, high = numpy(head.bounds)
            log_std = high - softplus(high - numbers[SIZE + 1 : -1])
            change = change + np.exp(low + softplus(log_std - low)) * noise[step][row]
        total += weight * change[-1]
        weight *= GAMMA / (1 + np.exp(-numbers[-1]))
        obs = obs + change[:-1]
    return float(total)


@pytest.mark.parametrize("particles", [1, 3])
@pytest.mark.parametrize("cls", BOTH)
def test_returns_are_means_over_rollouts_each_of_one_network(cls: Any, particles: int) -> None:
    algorithm = made(
        cls, gamma=GAMMA, ensemble_size=2, num_particles=particles, planner=prl.planners.RandomShooting(2, 3)
    )
    states, number, horizon = 2, 4, 3
    generator = torch.Generator().manual_seed(0)
    obs = torch.randn(states, SIZE, generator=generator)
    actions = torch.empty(states, number, horizon, 2).uniform_(-1, 1, generator=generator)
    rows = 2 * particles * states * number
    noise = drawn(generator, [lambda g: torch.empty(rows, SIZE + 1).normal_(generator=g)] * horizon)
    returns = algorithm.expected_returns(algorithm.model.rollouts(), obs, actions, generator)
    assert returns.shape == (states, number)
    for state in range(states):
        for sequence in range(number):
            found = [
                rollout_by_hand(
                    algorithm,
                    numpy(obs)[state],
                    numpy(actions)[state, sequence],
                    noise,
                    copy // particles,
                    (copy * states + state) * number + sequence,
                )
                for copy in range(2 * particles)
            ]
            np.testing.assert_allclose(returns[state, sequence], np.mean(found), rtol=1e-4)


@pytest.mark.usefixtures("linear_class")
@pytest.mark.parametrize(
    "actor",
    [{}, {"hidden_sizes": (8,)}, {"hidden_sizes": (8, 6), "activation": "tanh", "normalize_observations": True}],
    ids=str,
)
@pytest.mark.parametrize("cls", BOTH)
def test_batched_products_give_the_returns_of_one_network_at_a_time(
    cls: Any, actor: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = made(cls, actor, ensemble_size=3, planner=prl.planners.RandomShooting(2, 3))
    if algorithm.actor.normalization is not None:
        algorithm.actor.normalization.add(torch.randn(50, SIZE) * 3 + 1)
        algorithm.actor.normalization.use_newest()
    assert StackedNetworks.of(algorithm.model.networks) is not None
    obs, actions = torch.randn(2, SIZE), torch.rand(2, 5, 4, 2) * 2 - 1
    batched = algorithm.expected_returns(algorithm.model.rollouts(), obs, actions, torch.Generator().manual_seed(0))
    monkeypatch.setattr(StackedNetworks, "of", lambda ensemble: None)
    one_by_one = algorithm.expected_returns(algorithm.model.rollouts(), obs, actions, torch.Generator().manual_seed(0))
    torch.testing.assert_close(batched, one_by_one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("actor", [{"layer_norm": True}, {"late_action": 1}, {"noisy": True}, {"activation": "elu"}])
def test_networks_with_other_layers_plan_one_at_a_time(actor: dict[str, Any]) -> None:
    algorithm = made(prl.PETS, {"hidden_sizes": (6,), **actor}, planner=prl.planners.RandomShooting(2, 3))
    assert StackedNetworks.of(algorithm.model.networks) is None
    action = algorithm.acting_step(torch.randn(2, SIZE), None, torch.ones(2, 1), greedy(algorithm)).action
    assert torch.isfinite(action).all()


class Doubled(Network):
    def forward(self, *args: Any) -> Any:
        predicted = super().forward(*args)
        return type(predicted)(2 * predicted.mean, predicted.log_std, predicted.logit)


CHANGES: dict[str, Any] = {
    "subclass": lambda network: setattr(network, "__class__", Doubled),
    "parametrisation": lambda network: nn.utils.parametrizations.weight_norm(network.joint.layers[0]),
    "pre-hook": lambda network: network.head.register_forward_pre_hook(lambda module, inputs: (2 * inputs[0],)),
    "hook": lambda network: network.joint.register_forward_hook(lambda module, inputs, output: 2 * output),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_models_network_shows_in_the_next_plan(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = made(prl.PDDM, {"hidden_sizes": (6,)}, planner=prl.planners.RandomShooting(2, 3))
    obs, actions, returns = torch.randn(2, SIZE), torch.rand(2, 5, 4, 2) * 2 - 1, []
    for network in [None, *algorithm.model.networks]:
        if network is not None:
            CHANGES[change](network)
        returns.append(algorithm.expected_returns(algorithm.model.rollouts(), obs, actions, torch.Generator()))
    assert not torch.allclose(returns[0], returns[-1]) or change == "parametrisation"
    monkeypatch.setattr(StackedNetworks, "of", lambda ensemble: None)
    by_modules = algorithm.expected_returns(algorithm.model.rollouts(), obs, actions, torch.Generator())
    torch.testing.assert_close(returns[-1], by_modules)


def test_hooks_of_a_models_networks_are_called_while_planning() -> None:
    algorithm = made(prl.PETS, {"hidden_sizes": (6,)}, planner=prl.planners.RandomShooting(2, 3))
    calls: list[Any] = []
    algorithm.model.networks[1].joint.layers[0].register_forward_hook(lambda *each: calls.append(each))
    algorithm.acting_step(torch.randn(2, SIZE), None, torch.ones(2, 1), greedy(algorithm))
    assert len(calls) == 2


class Remembering(prl.planners.Planner):
    """Keeps what it starts from, and plans ever larger actions."""

    def plan(self, returns: Any, before: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        _STARTS.append(before.clone())
        return torch.linspace(0.1, 0.1 * self.horizon, self.horizon).view(1, -1, 1).expand_as(before) + before


_STARTS: list[torch.Tensor] = []


def test_a_plan_starts_from_the_previous_one_and_from_zeros_in_a_new_episode() -> None:
    algorithm = made(prl.PETS, planner=Remembering(horizon=3))
    exploration = exploring(algorithm, 2, deterministic=True)
    _STARTS.clear()
    actions = []
    for starts in ([1.0, 1.0], [0.0, 0.0], [0.0, 1.0]):
        exploration.starts = torch.tensor(starts)[:, None]
        actions.append(algorithm.acting_step(torch.zeros(2, SIZE), None, exploration.starts, exploration).env_action)
    first, second, third = (start[:, :, 0] for start in _STARTS)
    assert torch.equal(first, torch.zeros(2, 3))
    torch.testing.assert_close(second, torch.tensor([[0.2, 0.3, 0.0]] * 2))
    torch.testing.assert_close(third, torch.tensor([[0.5, 0.3, 0.0], [0.0, 0.0, 0.0]]))
    # From [-1, 1] to the Box [-3, 1].
    torch.testing.assert_close(actions[1], torch.full((2, 2), 2 * (0.1 + 0.2) - 1))


@pytest.mark.parametrize(
    "planner", [prl.planners.CrossEntropy(20, 2, 8, 2), prl.planners.PathIntegral(20), prl.planners.RandomShooting(20)]
)
def test_a_model_that_diverges_still_gives_actions_within_the_bounds(planner: prl.planners.Planner) -> None:
    algorithm = made(prl.PDDM, planner=planner)
    with torch.no_grad():
        for parameter in algorithm.model.networks.parameters():
            parameter.mul_(1e9)
    chosen = algorithm.acting_step(torch.ones(2, SIZE), None, torch.ones(2, 1), greedy(algorithm))
    assert ((chosen.env_action >= -3) & (chosen.env_action <= 1)).all()


def test_each_network_learns_from_other_rows() -> None:
    algorithm, batch = made(prl.PDDM, ensemble_size=2, planner=prl.planners.RandomShooting(2, 3)), n_step_batch()
    first, second = algorithm.model.networks
    second.load_state_dict(first.state_dict())
    algorithm.update(batch)
    assert not torch.equal(first.head.layer.weight, second.head.layer.weight)


def test_gaussian_noise_explores_around_planned_actions() -> None:
    planner = prl.planners.RandomShooting(2, 3)
    algorithm = made(prl.PDDM, planner=planner, explorer=prl.GaussianNoise(0.1), start_steps=0)
    obs, done = torch.zeros(2, SIZE), torch.ones(2, 1)
    noisy = algorithm.acting_step(obs, None, done, exploring(algorithm, 2)).action
    planned = algorithm.acting_step(obs, None, done, exploring(algorithm, 2, deterministic=True)).action
    assert 0 < (noisy - planned).abs().max() < 1.5


def scheme_of(algorithm: Any, actor: dict[str, Any] | None = None, n_step: int = 1, **env: Any) -> prl.Scheme:
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)
    return prl.Scheme(
        algorithm.create_factory(),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,), **(actor or {})),
        prl.NStepReplayBuffer.create_factory(size=20, n_step=n_step, sequences=prl.Sequences(4) if actor else None),
        prl.VecEnv.create_factory(Counter, env_kwargs={"actions": box, **env}),
    )


@pytest.mark.parametrize("cls", [prl.PETS, prl.MBPO])
def test_what_a_model_cannot_predict_is_refused_when_the_scheme_is_made(cls: Any) -> None:
    name = cls.__name__
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"kind": "dict"}, f"{name} predicts observations, which must be a Box of floating-point numbers, got Dict"),
        ({"kind": "discrete"}, f"{name} predicts observations.* got Discrete"),
        ({"kind": "vector", "actor": {"memory": "gru"}}, f"{name} predicts the next observation.* memory='gru'"),
        ({"kind": "vector", "n_step": 3}, f"{name}.*n_step"),
    ]
    for settings, message in wrong:
        with pytest.raises(ValueError, match=message):
            scheme_of(cls, **settings)
