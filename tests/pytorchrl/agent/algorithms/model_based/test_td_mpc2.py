"""TD-MPC2's losses, gradients and returns equal those of the paper's equations in torch; plans belong to environments.

The computation of :class:`ByEquations` calls nothing of the toolkit: its networks are functions of saved weights.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import DiagonalGaussian, SquashedGaussian
from pytorchrl.agent.algorithms.model_based.mb_mpc import PLAN
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from storages.transition import (
    ACT,
    BATCH_SIZES,
    DISCOUNT,
    DONE,
    EPISODE,
    ERRORS,
    MASK,
    OBS,
    OBS2,
    REW,
    RHS,
    SORTED_INDICES,
    WEIGHTS,
    WINDOW,
)
from tests.support.by_hand import envs_with, exploring, perturb
from tests.support.comparison import assert_equal
from tests.support.toys import Counter

STEPS, SEQUENCES, OBSERVED, SIZE, PART, BINS, LARGEST, GAMMA, RHO = 3, 4, 3, 6, 3, 9, 3.0, 0.9, 0.6
COEFS = {"consistency_coef": 2.0, "reward_coef": 0.3, "value_coef": 0.7, "termination_coef": 0.4, "entropy_coef": 0.05}
SETTINGS: dict[str, Any] = {
    "gamma": GAMMA,
    "rho": RHO,
    "latent_size": SIZE,
    "simplex_size": PART,
    "num_bins": BINS,
    "largest_log": LARGEST,
    "num_critics": 3,
    "start_steps": 0,
    "pretraining_updates": 0,
    "planner": prl.planners.ElitePathIntegral(3, 2, 8, 3, 2),
}
LAYERS = {"hidden_sizes": (5,), "activation": "mish", "layer_norm": True}
BOX = spaces.Box(-3.0, 1.0, (2,), np.float32)


def made(actor: dict[str, Any] | None = None, **changes: Any) -> Any:
    """An algorithm of few weights, whose target critics differ from the critics."""
    torch.manual_seed(0)
    envs = envs_with(BOX)
    body = prl.OffPolicyActor.create_factory(**{**LAYERS, **(actor or {})})("cpu", envs)
    algorithm = prl.TDMPC2.create_factory(**{**SETTINGS, **COEFS, **changes})("cpu", body, envs)
    algorithm.seed(0)
    perturb(algorithm.actor, 1, 0.3)
    perturb(algorithm.target_critics, 2, 0.3)
    return algorithm


def sequences(seed: int = 0, **changes: Any) -> dict[str, Tensor]:
    """Sequences of which one ends after two steps, one continues into the next episode, and one terminates."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn((STEPS, SEQUENCES, *size), generator=generator)

    obs, obs2, discount, mask, done = normal(OBSERVED), normal(OBSERVED), normal(1), normal(1), normal(1)
    discount.fill_(GAMMA)
    mask.fill_(1)
    done.zero_()
    done[0, 0] = 1  # an episode begins with the sequence
    mask[2, 1] = 0
    discount[1, 1] = 0
    done[1, 2] = 1
    discount[2, 3] = 0
    batch = {
        OBS: obs,
        OBS2: obs2,
        ACT: torch.empty(STEPS, SEQUENCES, 2).uniform_(-3, 1, generator=generator),
        REW: 3 * normal(1),
        DONE: done,
        DISCOUNT: discount,
        MASK: mask,
        WEIGHTS: torch.empty(SEQUENCES, 1).uniform_(0.5, 1.5, generator=generator),
        WINDOW: torch.ones(STEPS, SEQUENCES, 1, dtype=torch.int64),
    }
    return {**batch, **changes}


class ByEquations:
    """Losses of a batch, with the noise and the critics that the algorithm draws next."""

    def __init__(self, algorithm: Any, batch: dict[str, Tensor]) -> None:
        self.weights = {
            name: parameter.detach().clone().requires_grad_()
            for name, parameter in algorithm.actor.networks.named_parameters()
        }
        self.target = {name: each.clone() for name, each in algorithm.target_critics.named_parameters()}
        generator, subsets = torch.Generator(), torch.Generator()
        generator.set_state(algorithm.generator.get_state())
        subsets.set_state(algorithm.subset_generator.get_state())
        self.noise = [torch.randn(rows * SEQUENCES, 2, generator=generator) for rows in (STEPS, STEPS + 1)]
        self.drawn = [torch.randperm(3, generator=subsets)[:2].tolist() for _ in range(2)]
        self.batch, self.bins = batch, torch.linspace(-LARGEST, LARGEST, BINS)
        self.actions = (batch[ACT] + 1) / 2  # the Box is [-3, 1]

    def layer(self, name: str, inputs: Tensor, weights: dict[str, Tensor] | None = None) -> Tensor:
        of = self.weights if weights is None else weights
        return inputs @ of[f"{name}.weight"].T + of[f"{name}.bias"]

    def hidden(self, name: str, inputs: Tensor, weights: dict[str, Tensor] | None = None) -> Tensor:
        """A linear layer, layer normalisation and Mish."""
        of = self.weights if weights is None else weights
        numbers = self.layer(f"{name}.layers.0", inputs, of)
        return mish(normalised(numbers) * of[f"{name}.norms.0.weight"] + of[f"{name}.norms.0.bias"])

    def simplices(self, name: str, features: Tensor) -> Tensor:
        numbers = normalised(self.layer(f"{name}.head.layer", features))
        numbers = numbers * self.weights[f"{name}.head.norm.weight"] + self.weights[f"{name}.head.norm.bias"]
        powers = numbers.view(len(numbers), SIZE // PART, PART).exp()
        return (powers / powers.sum(2, keepdim=True)).view(len(numbers), SIZE)

    def encode(self, obs: Tensor) -> Tensor:
        return self.simplices("encoder", self.hidden("encoder.body.hidden", obs))

    def follow(self, latent: Tensor, action: Tensor) -> Tensor:
        return self.simplices("dynamics", self.hidden("dynamics.joint", torch.cat([latent, action], 1)))

    def logits(self, name: str, latent: Tensor, action: Tensor, weights: dict[str, Tensor] | None = None) -> Tensor:
        features = self.hidden(f"{name}.joint", torch.cat([latent, action], 1), weights)
        return self.layer(f"{name}.head.layer", features, weights)

    def number(self, logits: Tensor) -> Tensor:
        """The inverse of the symmetric logarithm of the mean of the bins."""
        mean = (torch.softmax(logits, 1) * self.bins).sum(1, keepdim=True)
        return mean.sign() * (mean.abs().exp() - 1)

    def cross_entropy(self, logits: Tensor, number: Tensor) -> Tensor:
        found = []
        for row, value in zip(torch.log_softmax(logits, 1), number[:, 0].tolist(), strict=True):
            log = math.copysign(math.log(1 + abs(value)), value)
            place = (min(max(log, -LARGEST), LARGEST) + LARGEST) / (2 * LARGEST) * (BINS - 1)
            below = min(int(place), BINS - 2)
            found.append(-((below + 1 - place) * row[below] + (place - below) * row[below + 1]))
        return torch.stack(found)[:, None]

    def act(self, latent: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions, and their log densities."""
        mean, numbers = self.layer("policy.head.layer", self.hidden("policy.body.hidden", latent)).chunk(2, 1)
        log_std = -10 + 6 * (torch.tanh(numbers) + 1)
        before = mean + log_std.exp() * noise
        density = torch.distributions.Normal(mean, log_std.exp()).log_prob(before)
        return torch.tanh(before), (density - torch.log(1 - torch.tanh(before) ** 2)).sum(1, keepdim=True)

    def losses(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Losses of the model and of the policy, the errors of values, and the spread of values."""
        batch, real = self.batch, self.batch[MASK]
        share = real * batch[WEIGHTS] / real.sum()
        latent = self.encode(batch[OBS][0])
        model, policy, errors = torch.zeros(()), torch.zeros(()), []
        goes_on, states = torch.ones(SEQUENCES, 1), []
        for t in range(STEPS):
            if t:
                goes_on = goes_on * (1 - batch[DONE][t])
            states.append((latent, RHO**t * goes_on * real[t] / real.sum()))
            with torch.no_grad():
                following = self.encode(batch[OBS2][t])
                action, _ = self.act(following, self.noise[0].view(STEPS, SEQUENCES, 2)[t])
                values = [
                    self.number(self.logits(f"networks.{n}", following, action, self.target)) for n in self.drawn[0]
                ]
                target = batch[REW][t] + batch[DISCOUNT][t] * torch.minimum(*values)
            logits = [self.logits(f"critics.networks.{n}", latent, self.actions[t]) for n in range(3)]
            value_loss = sum((self.cross_entropy(each, target) for each in logits), torch.zeros(())) / 3
            reward_loss = self.cross_entropy(self.logits("reward", latent, self.actions[t]), batch[REW][t])
            mean = sum((self.number(each) for each in logits), torch.zeros(())) / 3
            errors.append((mean - target).abs().detach())
            latent = self.follow(latent, self.actions[t])
            consistency = (latent - following).square().mean(1, keepdim=True)
            row = COEFS["consistency_coef"] * consistency
            row = row + COEFS["reward_coef"] * reward_loss + COEFS["value_coef"] * value_loss
            odds = self.layer("termination.head.layer", self.hidden("termination.body.hidden", latent))
            ends = F.binary_cross_entropy_with_logits(odds, (batch[DISCOUNT][t] == 0).float(), reduction="none")
            model = model + (share[t] * goes_on * (RHO**t * row + COEFS["termination_coef"] * ends)).sum()
        states.append((latent, RHO * states[-1][1]))
        fixed = {name: weight.detach() for name, weight in self.weights.items()}
        for t, (state, weight) in enumerate(states):
            action, log_prob = self.act(state.detach(), self.noise[1].view(STEPS + 1, SEQUENCES, 2)[t])
            values = [
                self.number(self.logits(f"critics.networks.{n}", state.detach(), action, fixed)) for n in self.drawn[1]
            ]
            value = (values[0] + values[1]) / 2
            policy = policy - (weight * (value / 2.0 - COEFS["entropy_coef"] * log_prob)).sum()
            if t == 0:
                low, high = np.percentile(value.detach().numpy(), [5, 95])
        return model, policy, torch.stack(errors), torch.tensor(max(1.0, high - low))


def mish(numbers: Tensor) -> Tensor:
    return numbers * torch.tanh(torch.log(1 + numbers.exp()))


def normalised(numbers: Tensor) -> Tensor:
    variance = numbers.var(1, correction=0, keepdim=True)
    return (numbers - numbers.mean(1, keepdim=True)) / torch.sqrt(variance + 1e-5)


def compared(algorithm: Any, batch: dict[str, Tensor]) -> tuple[ByEquations, dict[str, Tensor], Any]:
    """The computation by equations, the gradients of the algorithm by the names of weights, and its result."""
    with torch.no_grad():
        algorithm.training.variables["value_range"].fill_(2.0)
    by_equations = ByEquations(algorithm, batch)
    gradients, result = algorithm.compute_gradients(batch)
    names = {id(parameter): name for name, parameter in algorithm.actor.networks.named_parameters()}
    groups = algorithm.training.groups.items()
    owners = {f"{group}.{name}": each for group, of in groups for name, each in of.parameters.items()}
    return by_equations, {names.get(id(owners[name]), name): each for name, each in gradients.items()}, result


def test_losses_and_gradients_equal_those_of_the_equations() -> None:
    algorithm, batch = made(), sequences()
    by_equations, gradients, result = compared(algorithm, batch)
    model, policy, errors, spread = by_equations.losses()
    torch.testing.assert_close(result.metrics["model_loss"], model.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.metrics["policy_loss"], policy.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.info[ERRORS], errors, rtol=1e-3, atol=1e-4)
    # The running range moves towards the spread of values in the first states.
    torch.testing.assert_close(gradients.pop("value_range.value"), (2.0 - spread).view(1), rtol=1e-4, atol=1e-5)
    (model + policy).backward()
    assert gradients.keys() == by_equations.weights.keys()
    for name, weight in by_equations.weights.items():
        assert weight.grad is not None
        torch.testing.assert_close(gradients[name], weight.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_packed_episodes_have_the_losses_of_padded_ones() -> None:
    lengths, batch = [3, 2, 1], {key: each[:, :3].clone() for key, each in sequences().items() if key != WEIGHTS}
    real = torch.arange(STEPS)[:, None] < torch.tensor(lengths)
    batch[DONE].zero_()
    padded = {**batch, MASK: real[..., None].float(), WEIGHTS: torch.ones(3, 1)}
    packed = {key: each.flatten(0, 1)[real.flatten()] for key, each in batch.items() if key != MASK}
    packed |= {
        WEIGHTS: torch.ones(3, 1),
        BATCH_SIZES: torch.tensor([3, 2, 1]),
        SORTED_INDICES: torch.arange(3),
        EPISODE: torch.tensor([[0], [1], [2], [0], [1], [0]]),
    }
    deterministic = prl.heads.SquashedGaussianPolicy(smallest_log_std=-40.0, largest_log_std=-30.0)
    found = []
    for each in (padded, packed):
        algorithm = made(num_critics=2, distribution=deterministic)
        found.append(algorithm.compute_gradients(each))
    (of_padded, first), (of_packed, second) = found
    torch.testing.assert_close(first.metrics["model_loss"], second.metrics["model_loss"])
    for name, gradient in of_padded.items():
        if name.startswith("model"):
            torch.testing.assert_close(gradient, of_packed[name], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(first.info[ERRORS].flatten(0, 1)[real.flatten()], second.info[ERRORS])


def test_padding_and_steps_of_the_next_episode_have_no_gradients() -> None:
    plain, changed = sequences(), sequences()
    for key in (OBS, OBS2, ACT, REW):
        changed[key][2, 1] = 0.5  # padding
        changed[key][1:, 2] = -0.5  # the next episode
    first, second = (made().compute_gradients(each)[0] for each in (plain, changed))
    assert_equal(first, second)


def test_a_recurrent_encoder_has_the_losses_of_the_states_that_it_encodes() -> None:
    algorithm = made({"memory": "gru", "memory_size": 4})
    rhs = torch.randn(SEQUENCES, 4, generator=torch.Generator().manual_seed(3))
    rows = algorithm.read({**sequences(), RHS: rhs})
    steps = algorithm.model.unroll(rows, RHO)
    encoded = algorithm.model.encoder(rows.now)
    assert torch.equal(steps.latent[:SEQUENCES], encoded[:SEQUENCES])
    assert not torch.allclose(steps.latent[SEQUENCES:], encoded[SEQUENCES:])


def test_the_encoder_takes_its_share_of_each_step_of_the_optimiser() -> None:
    whole, shared = made(encoder_share=1.0), made(encoder_share=0.3)
    before = {name: each.clone() for name, each in whole.actor.named_parameters()}
    for algorithm in (whole, shared):
        algorithm.update(sequences())
    moved = dict(shared.actor.named_parameters())
    for name, parameter in whole.actor.named_parameters():
        share = 0.3 if name.startswith("networks.encoder") else 1.0
        expected = before[name] + share * (parameter - before[name])
        torch.testing.assert_close(moved[name], expected, rtol=0.0, atol=1e-7, msg=name)


def test_gradients_of_another_process_give_the_state_of_an_update() -> None:
    updated, applied = made(), made()
    for seed in range(2):
        updated.update(sequences(seed))
        gradients, _ = applied.compute_gradients(sequences(seed))
        applied.apply_gradients(gradients)
    assert_equal(updated.state_dict(), applied.state_dict())


def test_the_range_of_values_is_a_running_mean() -> None:
    algorithm = made(range_rate=0.25)
    expected = 1.0
    for seed in range(3):
        batch = sequences(seed)
        spread = float(ByEquations(algorithm, batch).losses()[3])
        algorithm.update(batch)
        expected = 0.75 * expected + 0.25 * spread
        assert algorithm.training.variables["value_range"].item() == pytest.approx(expected, rel=1e-4)


def test_the_first_phase_has_the_batches_of_pretraining() -> None:
    class Counting:
        def generate_batches(self, number: int, size: int) -> Any:
            return iter(range(number))

    algorithm = made(pretraining_updates=7, num_mini_batch=2)
    storage: Any = Counting()
    assert len(list(algorithm.batches(storage))) == 7
    algorithm.update(sequences())
    assert len(list(algorithm.batches(storage))) == 2


# Acting


@pytest.mark.parametrize("termination_coef", [0.0, 0.4])
def test_returns_are_predicted_rewards_and_the_value_after_the_last_action(termination_coef: float) -> None:
    algorithm = made(termination_coef=termination_coef)
    exploration = exploring(algorithm, 2)
    generator = torch.Generator().manual_seed(5)
    obs, actions = torch.randn(2, OBSERVED, generator=generator), torch.rand(2, 4, 3, 2, generator=generator) * 2 - 1
    by_equations = ByEquations(algorithm, sequences())
    drawn = np.random.default_rng()
    drawn.bit_generator.state = exploration.random.bit_generator.state
    two = drawn.permutation(3)[:2]
    noise_generator = torch.Generator()
    noise_generator.set_state(exploration.generator.get_state())
    noise = torch.randn(8, 2, generator=noise_generator)
    latent = algorithm.model.encoder(algorithm.actor.view(obs))
    returns = algorithm.expected_returns(latent, actions, exploration)
    assert returns.shape == (2, 4)
    with torch.no_grad():
        for state in range(2):
            for sequence in range(4):
                row, z = 4 * state + sequence, by_equations.encode(obs[state : state + 1])
                total, weight = 0.0, 1.0
                for action in actions[state, sequence].split(1):
                    total += weight * float(by_equations.number(by_equations.logits("reward", z, action)))
                    z = by_equations.follow(z, action)
                    weight *= GAMMA
                    if termination_coef:
                        hidden = by_equations.hidden("termination.body.hidden", z)
                        weight /= 1 + math.exp(float(by_equations.layer("termination.head.layer", hidden)))
                action, _ = by_equations.act(z, noise[row : row + 1])
                values = [by_equations.number(by_equations.logits(f"critics.networks.{n}", z, action)) for n in two]
                total += weight * float(values[0] + values[1]) / 2
                assert float(returns[state, sequence]) == pytest.approx(total, rel=1e-3, abs=1e-4)


def test_sequences_of_the_policy_are_proposed_to_the_planner() -> None:
    algorithm = made()
    exploration = exploring(algorithm, 2)
    latent = algorithm.model.encoder(algorithm.actor.view(torch.randn(2, OBSERVED)))
    generator = torch.Generator()
    generator.set_state(exploration.generator.get_state())
    noise = torch.randn(3, 2 * 4, 2, generator=generator)
    proposed = algorithm.model.sequences_of(algorithm.pi, latent, 4, 3, exploration.generator)
    by_equations = ByEquations(algorithm, sequences())
    state = latent.repeat_interleave(4, 0)
    for step in range(3):
        action, _ = by_equations.act(state, noise[step])
        torch.testing.assert_close(proposed[:, :, step].flatten(0, 1), action, rtol=1e-4, atol=1e-5)
        state = by_equations.follow(state, action)


class Ramp(prl.planners.Planner):
    """Keeps what it starts from, and plans ever larger actions."""

    def plan(self, returns: Any, before: Tensor, generator: torch.Generator) -> Tensor:
        _STARTS.append(before.clone())
        assert returns(before.unsqueeze(1)).shape == (len(before), 1)
        return torch.linspace(0.1, 0.1 * self.horizon, self.horizon).view(1, -1, 1).expand_as(before) + before


_STARTS: list[Tensor] = []


def test_each_environment_goes_on_with_its_plan_until_its_episode_ends() -> None:
    algorithm = made(planner=Ramp(horizon=3))
    exploration = exploring(algorithm, 2)
    _STARTS.clear()
    for starts in ([1.0, 1.0], [0.0, 0.0], [0.0, 1.0]):
        exploration.starts = torch.tensor(starts)[:, None]
        acted = algorithm.acting_step(torch.zeros(2, OBSERVED), None, exploration.starts, exploration)
    assert torch.equal(_STARTS[0], torch.zeros(2, 3, 2))
    torch.testing.assert_close(_STARTS[1][:, :, 0], torch.tensor([[0.2, 0.3, 0.0]] * 2))
    torch.testing.assert_close(_STARTS[2][:, :, 0], torch.tensor([[0.5, 0.3, 0.0], [0.0, 0.0, 0.0]]))
    # Plans without a standard deviation are followed, from [-1, 1] to the Box [-3, 1].
    torch.testing.assert_close(acted.env_action, 2 * (_STARTS[2][:, 0] + 0.1) - 1)


def test_planned_actions_are_explored_by_their_standard_deviation() -> None:
    algorithm = made()
    obs, done = torch.zeros(1, OBSERVED), torch.ones(1, 1)
    plan: DiagonalGaussian = algorithm.policy(algorithm.actor.view(obs), exploring(algorithm, 1, seed=4))
    assert isinstance(plan, DiagonalGaussian)
    greedy = algorithm.acting_step(obs, None, done, exploring(algorithm, 1, seed=4, deterministic=True)).action
    torch.testing.assert_close(greedy, (2 * plan.mean - 1).clamp(-3, 1))
    explored = algorithm.acting_step(obs, None, done, exploring(algorithm, 1, seed=4)).action
    assert not torch.equal(explored, greedy)


def test_without_a_planner_the_policy_acts_and_keeps_nothing() -> None:
    algorithm = made(planner=None)
    exploration = exploring(algorithm, 2)
    obs = torch.randn(2, OBSERVED, generator=torch.Generator().manual_seed(0))
    distribution = algorithm.policy(algorithm.actor.view(obs), exploration)
    assert isinstance(distribution, SquashedGaussian)
    by_equations = ByEquations(algorithm, sequences())
    expected, _ = by_equations.act(by_equations.encode(obs), torch.zeros(2, 2))
    torch.testing.assert_close(distribution.mode(), expected, rtol=1e-4, atol=1e-5)
    assert not exploration.state


def test_planning_can_be_switched_off_and_on_in_use() -> None:
    algorithm = made()
    planner = algorithm.planner
    for chosen, kept in ((None, set()), (planner, {PLAN})):
        algorithm.update_algorithm_parameter("planner", chosen)
        exploration = exploring(algorithm, 2)
        algorithm.acting_step(torch.zeros(2, OBSERVED), None, torch.ones(2, 1), exploration)
        assert set(exploration.state) == kept


@pytest.mark.long
def test_the_policy_alone_is_exported_and_a_planner_is_refused(tmp_path: Path) -> None:
    obs = torch.randn(5, OBSERVED, generator=torch.Generator().manual_seed(0))
    policy = TrainedPolicy(made(planner=None))
    exported = torch.export.load(policy.export(tmp_path / "policy.pt2")).module()
    np.testing.assert_allclose(exported(obs).detach(), policy(obs.numpy()), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="TDMPC2 chooses actions by what it keeps of earlier steps"):
        TrainedPolicy(made()).export(tmp_path / "planner.pt2")


@pytest.mark.parametrize(
    "planner",
    [prl.planners.CrossEntropy(2, 2, 8, 2), prl.planners.PathIntegral(2), prl.planners.RandomShooting(2, 9)],
    ids=lambda each: type(each).__name__,
)
def test_every_planner_acts_within_the_bounds(planner: Any) -> None:
    algorithm = made(planner=planner)
    acted = algorithm.acting_step(torch.randn(3, OBSERVED), None, torch.ones(3, 1), exploring(algorithm, 3))
    assert ((acted.env_action >= -3) & (acted.env_action <= 1)).all()


def test_a_model_that_diverges_still_gives_actions_within_the_bounds() -> None:
    algorithm = made()
    with torch.no_grad():
        for parameter in algorithm.actor.parameters():
            parameter.mul_(1e20)
    acted = algorithm.acting_step(torch.ones(2, OBSERVED), None, torch.ones(2, 1), exploring(algorithm, 2))
    assert ((acted.env_action >= -3) & (acted.env_action <= 1)).all()


# Composition


def scheme_of(storage: Any, num_envs: int = 2, **changes: Any) -> prl.Scheme:
    settings = {**SETTINGS, "start_steps": 12, "pretraining_updates": 2, "mini_batch_size": 4, "test_every": 0}
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    return prl.Scheme(
        prl.TDMPC2.create_factory(**{**settings, **changes}),
        prl.OffPolicyActor.create_factory(**LAYERS),
        storage,
        prl.VecEnv.create_factory(Counter, num_envs, env_kwargs={"kind": "vector", "length": 7, "actions": box}),
        seed=1,
    )


def state_after(folder: Path, storage: Any, *, interrupted_at: int | None = None, **changes: Any) -> Any:
    """The state of a run of 60 steps, and the plans where it was interrupted, if it was."""
    scheme, plans = scheme_of(storage, **changes), None
    learner = prl.Learner(scheme, target_steps=60, log_dir=folder)
    if interrupted_at is not None:
        learner._interruption.is_requested = lambda: scheme.steps >= interrupted_at  # type: ignore[method-assign]
        assert not learner.run()
        plans = scheme.state_dict()["collector"]
        learner.close()
        scheme = scheme_of(storage, **changes)
        learner = prl.Learner.resume(folder, scheme=scheme)
    assert learner.run()
    state = learner.scheme.state_dict()
    learner.close()
    return state, plans


@pytest.mark.parametrize(
    "planner",
    [pytest.param(SETTINGS["planner"], id="planned", marks=pytest.mark.long), pytest.param(None, id="by the policy")],
)
def test_a_run_resumed_within_episodes_is_the_run_that_was_not_interrupted(planner: Any, tmp_path: Path) -> None:
    storage = prl.PERBuffer.create_factory(size=40, alpha=0.6, beta=0.4, sequences=prl.Sequences(3))
    whole, _ = state_after(tmp_path / "whole", storage, planner=planner)
    # Episodes have seven steps in each of two environments.
    resumed, plans = state_after(tmp_path / "resumed", storage, interrupted_at=32, planner=planner)
    assert_equal(whole, resumed)
    assert ("'plan'" in repr(plans)) == (planner is not None)


def test_prioritised_sequences_on_disk_are_learnt_from_and_get_the_errors_of_values(tmp_path: Path) -> None:
    storage = prl.PERBuffer.create_factory(
        size=40, alpha=1.0, beta=0.5, sequences=prl.Sequences(3), directory=tmp_path / "steps"
    )
    with scheme_of(storage) as scheme:
        while not scheme.algorithm.updates:
            _, due = scheme.collect(scheme.steps + 2)
            if due:
                metrics = list(scheme.update())
        assert all(math.isfinite(float(metrics[-1][name])) for name in ("model_loss", "policy_loss", "q_value"))
        batch = next(iter(scheme.storage.generate_batches(1, 4)))
        # Those that were updated do not have the initial priority any more.
        assert len(batch[WEIGHTS].unique()) > 1


def test_sizes_and_distributions_that_do_not_fit_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"latent_size": 10, "simplex_size": 4}, "TDMPC2: simplex_size must divide latent_size=10, got 4"),
        ({"num_critics": 1}, "TDMPC2: num_critics must be at least 2, got 1"),
        ({"distribution": prl.heads.GaussianPolicy()}, "TDMPC2: distribution must have bounded support"),
    ]
    for settings, message in wrong:
        with pytest.raises(ValueError, match=message):
            prl.TDMPC2.create_factory(**settings)


def test_the_sizes_of_the_paper_are_about_one_and_five_million_parameters() -> None:
    envs = envs_with(BOX)
    for millions in (1, 5):
        preset = prl.TDMPC2.paper(millions)  # type: ignore[arg-type]
        actor = preset["actor_factory"]("meta", envs)
        preset["algo_factory"]("meta", actor, envs)
        assert sum(each.numel() for each in actor.parameters()) / 1e6 == pytest.approx(millions, rel=0.5)
