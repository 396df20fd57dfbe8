"""SACDecomposed's losses and gradients equal those of slow numpy loops over rows, critics and components."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.agent.actors.outputs import ComponentValue
from storages.transition import ACT, BURN_IN, DISCOUNT, DONE, ERRORS, MASK, OBS, OBS2, REW, REWC, WEIGHTS
from tests.support.by_hand import envs_with, layer_of, linear, numpy
from tests.support.soft_critics import SPACE, ByHand, assert_gradients, made, n_step_batch, target_of

NAMES = ("speed", "force", "alive")
WEIGHTS_OF = {"force": -0.5, "alive": 2.0}
IN_ORDER = np.array([1.0, -0.5, 2.0, 1.0])
"""Weights of the critics' outputs, that of the entropy bonus last."""


def decomposed(**changes: Any) -> Any:
    settings = {"reward_components": NAMES, "component_weights": WEIGHTS_OF, "initial_alpha": 0.5}
    return made(prl.SACDecomposed, **(settings | changes))


def batch_of(components: int = 3) -> dict[str, torch.Tensor]:
    """Components that sum to another number than the reward."""
    rewards = np.random.default_rng(9).normal(size=(5, components)).astype(np.float32)
    return n_step_batch() | {REWC: torch.from_numpy(rewards)}


class NumpySACD(ByHand):
    weights = IN_ORDER

    def total(self, outputs: Any) -> Any:
        return (outputs * self.weights).sum(1, keepdims=True)

    def of_target(self, values: list[Any]) -> Any:
        chosen = []
        for row in range(5):
            totals = [float(self.total(outputs)[row, 0]) for outputs in values]
            chosen.append(values[totals.index(min(totals))][row])
        return np.stack(chosen)

    def of_policy(self, values: list[Any]) -> Any:
        return np.min([self.total(outputs) for outputs in values], axis=0)

    def rewards(self) -> Any:
        return self.batch[REWC]

    def make_target(self) -> Any:
        action, log_prob = self.act(self.batch[OBS2], self.noise2)
        value = self.of_target(self.values(self.target_critics, self.batch[OBS2], action))
        rewards, discount = self.rewards(), self.batch[DISCOUNT]
        target = np.empty_like(value)
        for row in range(5):
            for component in range(rewards.shape[1]):
                target[row, component] = rewards[row, component] + discount[row, 0] * value[row, component]
            target[row, -1] = discount[row, 0] * (-self.alpha * log_prob[row, 0] + value[row, -1])
        return target

    def errors(self) -> Any:
        """The Euclidean norm of the errors of the outputs in each row, averaged over critics."""
        return np.mean([np.sqrt((each**2).sum(1, keepdims=True)) for each in self.differences()], axis=0)

    def critic_loss(self) -> float:
        weights = self.batch[WEIGHTS]
        return float(sum(0.5 * (weights * (each**2).sum(1, keepdims=True)).mean() for each in self.differences()))


class NumpyWhole(NumpySACD):
    """With the reward as the only component."""

    weights = np.ones(2)

    def rewards(self) -> Any:
        return self.batch[REW]


@pytest.mark.parametrize("num_critics", [2, 3, 1])
def test_gradients_equal_those_of_numpy_loops(num_critics: int) -> None:
    algorithm = decomposed(num_critics=num_critics)
    assert_gradients(algorithm, batch_of(), NumpySACD(algorithm, batch_of()))


def test_without_names_the_reward_is_the_only_component() -> None:
    algorithm = made(prl.SACDecomposed, initial_alpha=0.5)
    assert algorithm.components == ("reward", "entropy")
    assert_gradients(algorithm, n_step_batch(), NumpyWhole(algorithm, n_step_batch()))


def test_one_component_of_weight_1_is_updated_as_the_value_of_sac() -> None:
    ours, theirs = made(prl.SACDecomposed, initial_alpha=0.5), made(prl.SAC, initial_alpha=0.5)
    theirs.pi.load_state_dict(ours.pi.state_dict())
    for networks in (("critics", "critics"), ("target_critics", "target_critics")):
        for one, other in zip(getattr(ours, networks[0]), getattr(theirs, networks[1]), strict=True):
            with torch.no_grad():
                other.head.layer.weight.copy_(one.head.layer.weight.sum(0, keepdim=True))
                other.head.layer.bias.copy_(one.head.layer.bias.sum(0, keepdim=True))
    batch = n_step_batch()
    ours.seed(3), theirs.seed(3)
    targets = [target_of(each, batch, 0.5).mean for each in (ours, theirs)]
    torch.testing.assert_close(*targets, rtol=1e-5, atol=1e-5)
    ours.seed(3), theirs.seed(3)
    (mine, result), (its, expected) = (each.compute_gradients(batch) for each in (ours, theirs))
    for name in (name for name in its if not name.startswith("critics")):
        torch.testing.assert_close(mine[name], its[name], rtol=1e-4, atol=1e-5)
    for name in ("policy_loss", "q_value", "entropy", "alpha"):
        torch.testing.assert_close(result.metrics[name], expected.metrics[name], rtol=1e-4, atol=1e-5)
    # The gradient of a sum is that of each of its parts: errors of the outputs add up to the error of the sum.
    for critic in range(2):
        name = f"critics.networks.{critic}.head.layer.weight"
        torch.testing.assert_close(mine[name].sum(0, keepdim=True), its[name], rtol=1e-4, atol=1e-5)


def test_critics_of_equal_sums_give_the_outputs_of_one_of_them() -> None:
    algorithm = made(prl.SACDecomposed)
    values = [ComponentValue(torch.tensor([each])) for each in ([-1.0, 1.0], [-2.0, 2.0])]
    assert algorithm.value_for_target(values).components.tolist() == [[-1, 1]]


def test_the_reward_that_the_environment_pays_is_not_learnt_from() -> None:
    one, other = decomposed(), decomposed()
    batch = batch_of()
    one.update(batch)
    other.update(batch | {REW: batch[REW] + 100})
    for name, weight in one.get_weights().items():
        assert torch.equal(weight, other.get_weights()[name]), name


def test_changed_weights_count_from_the_next_update_and_change_no_critic() -> None:
    changed, given = decomposed(component_weights=None), decomposed()
    before = changed.get_weights()
    changed.update_algorithm_parameter("component_weights", WEIGHTS_OF)
    assert all(torch.equal(before[name], weight) for name, weight in changed.get_weights().items())
    ours, theirs = changed.compute_gradients(batch_of())[0], given.compute_gradients(batch_of())[0]
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_invalid_weights_are_refused_and_change_nothing() -> None:
    algorithm = decomposed()
    for weights in ({"sped": 1.0}, {"speed": float("nan")}, {"speed": "1"}, {"entropy": 2.0}):
        with pytest.raises(ValueError, match=r"SACDecomposed: (component_weights names|the weight of 'speed')"):
            algorithm.update_algorithm_parameter("component_weights", weights)
    assert algorithm.component_weights == WEIGHTS_OF
    assert_gradients(algorithm, batch_of(), NumpySACD(algorithm, batch_of()))


def test_metrics_are_the_value_of_each_component_and_the_error_of_their_sum() -> None:
    algorithm, batch = decomposed(), batch_of()
    outputs = linear(layer_of(algorithm.critics[0].head), np.hstack([numpy(batch[OBS]), (numpy(batch[ACT]) + 1) / 2]))
    metrics = algorithm.update(batch).metrics
    found = [metrics[f"value/{name}"].item() for name in (*NAMES, "entropy")]
    np.testing.assert_allclose(found, outputs.mean(0), rtol=1e-4, atol=1e-5)
    paid = numpy(batch[REWC]) @ IN_ORDER[:3]
    gap = np.abs(numpy(batch[REW])[:, 0] - paid).mean()
    np.testing.assert_allclose(metrics["unexplained_reward"].item(), gap, rtol=1e-5)
    assert "unexplained_reward" not in made(prl.SACDecomposed).update(n_step_batch()).metrics


def test_influences_are_shares_of_the_gradient_of_the_smaller_weighted_sum() -> None:
    algorithm, batch = decomposed(), batch_of()
    critics = [layer_of(critic.head) for critic in algorithm.critics]
    outputs = [linear(each, np.hstack([numpy(batch[OBS]), (numpy(batch[ACT]) + 1) / 2])) for each in critics]
    shares = algorithm.influence(batch)
    assert list(shares) == [*NAMES, "entropy"]
    chosen = set()
    for row in range(5):
        totals = [float(each[row] @ IN_ORDER) for each in outputs]
        critic = int(np.argmin(totals))
        chosen.add(critic)
        # The last two inputs are the action; the norm of the weighted output's gradient.
        norms = np.linalg.norm(critics[critic][0][:, -2:] * IN_ORDER[:, None], axis=1)
        for position, share in enumerate(shares.values()):
            assert share.shape == batch[REW].shape
            np.testing.assert_allclose(share[row].item(), norms[position] / norms.sum(), rtol=1e-4)
    assert chosen == {0, 1}


def test_a_component_without_weight_or_a_critic_without_gradient_has_no_influence() -> None:
    algorithm = decomposed(component_weights={"force": 0.0})
    assert not algorithm.influence(batch_of())["force"].any()
    before = {name: weight.clone() for name, weight in algorithm.get_weights().items()}
    assert all(parameter.grad is None for parameter in algorithm.critics.parameters())
    assert all(torch.equal(before[name], weight) for name, weight in algorithm.get_weights().items())
    for critic in algorithm.critics:
        torch.nn.init.zeros_(critic.head.layer.weight)
    assert all(not share.any() for share in algorithm.influence(batch_of()).values())


def sequences(components: int = 3) -> dict[str, Any]:
    """Three sequences of four steps with a burn-in of two, the last of which has two steps of padding."""
    random, steps = np.random.default_rng(4), (4, 3)
    mask = torch.ones(4, 3, 1)
    mask[2:, 2] = 0

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(random.normal(size=shape).astype(np.float32))

    return {
        OBS: normal(*steps, 3),
        OBS2: normal(*steps, 3),
        ACT: normal(*steps, 2).clamp(-2.9, 0.9),
        REW: normal(*steps, 1),
        REWC: normal(*steps, components),
        DONE: torch.zeros(*steps, 1),
        DISCOUNT: torch.full((*steps, 1), 0.9),
        MASK: mask,
        WEIGHTS: torch.ones(3, 1),
        "Window": torch.ones((*steps, 1), dtype=torch.int64),
        "RecurrentHiddenStates": torch.zeros(3, 4),
        BURN_IN: {
            OBS: normal(2, 3, 3),
            DONE: torch.zeros(2, 3, 1),
            MASK: torch.ones(2, 3, 1),
            "RecurrentHiddenStates": torch.zeros(3, 4),
        },
    }


@pytest.mark.parametrize("memory", ["gru"])
def test_sequences_are_rows_whose_padding_counts_for_nothing(memory: str) -> None:
    envs = envs_with(SPACE)
    body = prl.OffPolicyActor.create_factory(hidden_sizes=(4,), memory=memory, memory_size=4)("cpu", envs)
    algorithm = prl.SACDecomposed.create_factory(reward_components=NAMES)("cpu", body, envs)
    batch, other = sequences(), sequences()
    other[REWC][2:, 2] += 100
    results = []
    for each in (batch, other):
        algorithm.seed(0)
        gradients, result = algorithm.compute_gradients(each)
        results.append((gradients, result.metrics))
        assert result.info[ERRORS].shape == each[REW].shape
        assert {share.shape for share in algorithm.influence(each).values()} == {each[REW].shape}
    for name, gradient in results[0][0].items():
        assert torch.equal(gradient, results[1][0][name]), name
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize("batch", [n_step_batch(), batch_of(components=2)], ids=["none", "too few"])
def test_batches_without_the_components_are_refused_by_name(batch: dict[str, torch.Tensor]) -> None:
    message = r"SACDecomposed: batches must have 3 reward_components \(speed, force, alive\), got (0|2); steps that"
    with pytest.raises(ValueError, match=message):
        decomposed().update(batch)


def test_components_of_double_precision_are_learnt_from_in_single_precision() -> None:
    one, other, batch = decomposed(), decomposed(), batch_of()
    one.update(batch)
    other.update(batch | {REWC: batch[REWC].double()})
    assert all(torch.equal(weight, other.get_weights()[name]) for name, weight in one.get_weights().items())


REFUSED: list[tuple[Mapping[str, Any], str]] = [
    ({"reward_components": ("a", "b", "a")}, "reward_components holds 'a' twice"),
    ({"reward_components": ("a", "entropy")}, "'entropy' is the entropy bonus, which is no entry of reward_components"),
    ({"reward_components": "speed"}, "reward_components must be a sequence"),
    (
        {"reward_components": ("a", "b"), "component_weights": {"c": 1.0}},
        "component_weights names 'c', but the components are 'a', 'b'",
    ),
    ({"component_weights": {"speed": 1.0}}, "component_weights names 'speed', but the components are 'reward'"),
    ({"component_weights": {"reward": float("inf")}}, "the weight of 'reward' must be a finite number, got inf"),
    ({"component_weights": {"reward": True}}, "the weight of 'reward' must be a finite number, got True"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_invalid_components_are_refused(settings: Mapping[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"SACDecomposed: {message}"):
        prl.SACDecomposed.create_factory(**settings)


def test_the_name_that_nnabla_rl_has_is_explained() -> None:
    with pytest.raises(TypeError, match="reward_components, the names of the infos"):
        prl.SACDecomposed.create_factory(reward_dimension=3)  # type: ignore[call-arg]
