"""Algorithms register what they train; saved states, names, checks and optimiser steps follow from that."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import pytorchrl as prl
from pytorchrl.agent.actors.heads import Policy, StateValue, Values
from pytorchrl.agent.algorithms.algorithm import Losses
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.explorers import EpsilonGreedy, Explorer
from pytorchrl.agent.optimizers import RMSprop
from storages.component.hyper_parameters import Count, NonNegativeOrSchedule, UnitInterval
from tests.pytorchrl.agent.algorithms.test_rows import BOX as ONE_NUMBER
from tests.pytorchrl.agent.algorithms.test_rows import batch_of
from tests.support.by_hand import envs_with, replayed, with_next_actions
from tests.support.comparison import assert_equal
from tests.support.hybrid import joined
from tests.support.toys import continuous
from tests.support.training import saved_and_loaded

DISCRETE, BOX = spaces.Discrete(3), continuous(size=2)


class TwoValues(OffPolicyAlgorithm):
    """Two networks, one of which learns in every other update only, a target network and a variable."""

    lr: NonNegativeOrSchedule = 1e-2
    lr_slow: NonNegativeOrSchedule = 1e-3
    polyak: UnitInterval = 0.9
    every: Count = 3
    seldom: bool = True

    def build(self) -> None:
        self.q = self.actor.make("q", Values(), acts=True)
        self.slow = self.actor.make("slow", StateValue())
        self.train_q = self.train("q", self.q)
        self.train_slow = self.train("slow", self.slow, lr="lr_slow")
        self.train_scale = self.variable("scale", 2.0, lr="lr")
        self.q_target = self.target(self.q, every="every")

    def default_explorer(self) -> Explorer:
        return EpsilonGreedy(0.1)

    def policy(self, view: Any, exploration: Any) -> Any:
        return self.q(view)

    def losses(self, rows: Any) -> Losses:
        scale = self.training.variables["scale"]
        losses = {
            self.train_q: rows.mean((self.q(rows.now).values - self.q_target(rows.next).values).square()),
            self.train_scale: (scale - 1).square().sum(),
        }
        if not self.seldom or self.updates % 2 == 1:
            losses[self.train_slow] = rows.mean(self.slow(rows.now).square())
        return Losses(losses)


def made(algorithm: Any, space: Any = DISCRETE, actor: Any = None, **hyper_parameters: Any) -> Any:
    envs = envs_with(space)
    factory = prl.OffPolicyActor.create_factory(hidden_sizes=(4,), **(actor or {}))
    return algorithm.create_factory(**hyper_parameters)("cpu", factory("cpu", envs), envs)


def batch_for(algorithm: Any, seed: int = 0) -> Any:
    if isinstance(algorithm.action_space, spaces.Discrete):
        return replayed(np.array([[0], [2], [1], [2], [0], [1]]), seed)
    size = algorithm.action_space.shape[0]
    return with_next_actions(replayed(torch.linspace(-2, 2, 6 * size).view(6, size).numpy(), seed), seed)


OFF_POLICY: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "two values": (TwoValues, DISCRETE, {}),
    "DQN": (prl.DQN, DISCRETE, {"target_update_interval": 2}),
    "QRDQN": (prl.QRDQN, DISCRETE, {"num_quantiles": 5}),
    "IQN": (prl.IQN, DISCRETE, {"num_quantiles": 5}),
    "MunchausenIQN": (prl.MunchausenIQN, DISCRETE, {"num_quantiles": 5}),
    "NAF": (prl.NAF, BOX, {}),
    "SACDiscrete": (prl.SACDiscrete, DISCRETE, {}),
    "REDQ": (prl.REDQ, BOX, {"num_critics": 3, "policy_delay": 2}),
    "SAC": (prl.SAC, BOX, {}),
    "QtOpt": (prl.QtOpt, BOX, {"num_samples": 8, "num_elites": 2, "lag": 3}),
    "PETS": (prl.PETS, BOX, {"planner": prl.planners.CrossEntropy(2, 2, 4, 2)}),
    "MBPO": (prl.MBPO, BOX, {"rollout_length": 2, "policy_delay": 2}),
    "SACDecomposed": (prl.SACDecomposed, BOX, {"component_weights": {"reward": 0.5}}),
    "QRSAC": (prl.QRSAC, BOX, {"num_quantiles": 5}),
    "HyAR": (prl.HyAR, joined(), {"policy_delay": 3}),
    "MRQ": (prl.MRQ, BOX, {"target_update_interval": 2, "action_features": 4, "num_bins": 7}),
    "DrQV2": (prl.DrQV2, BOX, {"feature_size": 4, "policy_delay": 2}),
    "TD3": (prl.TD3, BOX, {"policy_delay": 3}),
    "BCQ": (prl.BCQ, BOX, {"num_actions": 3, "num_target_actions": 3}),
    "DiscreteBCQ": (prl.DiscreteBCQ, DISCRETE, {"target_update_interval": 2}),
    "BEAR": (prl.BEAR, BOX, {"num_actions": 3, "num_target_actions": 3, "warmup_updates": 2}),
    "TD3BC": (prl.TD3BC, BOX, {}),
    "ReBRAC": (prl.ReBRAC, BOX, {}),
    "FQL": (prl.FQL, BOX, {"flow_steps": 3}),
    "CQL": (prl.CQL, BOX, {"lagrange_threshold": 1.0}),
    "DiscreteCQL": (prl.DiscreteCQL, DISCRETE, {}),
    "IQL": (prl.IQL, BOX, {}),
    "XQL": (prl.XQL, BOX, {}),
    "AWAC": (prl.AWAC, BOX, {"num_samples": 2}),
    "CRR": (prl.CRR, BOX, {}),
    "EDAC": (prl.EDAC, BOX, {"num_critics": 3}),
    "BehaviourCloning": (prl.BehaviourCloning, DISCRETE, {}),
}


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("name", OFF_POLICY)
def test_a_loaded_algorithm_continues_like_the_saved_one(name: str) -> None:
    cls, space, hyper_parameters = OFF_POLICY[name]
    saved, loaded = (made(cls, space, **hyper_parameters) for _ in range(2))
    for seed in range(4):
        saved.update(batch_for(saved, seed))
    loaded.load_state_dict(saved_and_loaded(saved.state_dict()))
    assert_equal(loaded.state_dict(), saved.state_dict())
    assert loaded.updates == 4
    for seed in range(4, 9):
        one, other = (algorithm.update(batch_for(algorithm, seed)) for algorithm in (saved, loaded))
        assert_equal(one.info, other.info)
    assert_equal(loaded.state_dict(), saved.state_dict())


@pytest.mark.quick_share(0.3)
@pytest.mark.parametrize("name", OFF_POLICY)
def test_a_copy_learns_like_the_original_and_independently_of_it(name: str) -> None:
    cls, space, hyper_parameters = OFF_POLICY[name]
    original = made(cls, space, **hyper_parameters)
    original.update(batch_for(original))
    copied, before = copy.deepcopy(original), copy.deepcopy(original.state_dict())
    for seed in range(1, 5):
        copied.update(batch_for(copied, seed))
    assert_equal(original.state_dict(), before)
    for seed in range(1, 5):
        original.update(batch_for(original, seed))
    assert_equal(copied.state_dict(), original.state_dict())


def learns_in_two_steps(name: str) -> bool:
    """Whether the policy learns from the critics' new weights, after their step."""
    algorithm = made(*OFF_POLICY[name][:2], **OFF_POLICY[name][2])
    return type(algorithm).losses_after_step is not prl.Algorithm.losses_after_step


IN_ONE_STEP = [name for name in OFF_POLICY if not learns_in_two_steps(name)]
IN_TWO_STEPS = [name for name in OFF_POLICY if learns_in_two_steps(name)]


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("name", IN_TWO_STEPS)
def test_policies_learn_from_the_critics_after_the_critics_step(name: str) -> None:
    cls, space, hyper_parameters = OFF_POLICY[name]
    chosen = hyper_parameters | ({"policy_delay": 1} if hasattr(cls, "policy_delay") else {})
    whole, in_parts = (made(cls, space, **chosen) for _ in range(2))
    in_parts.load_state_dict(whole.state_dict())
    for seed in range(3):
        batch = batch_for(whole, seed)
        whole.update(batch)
        for losses_of in (in_parts.losses, in_parts.losses_after_step):
            losses: Any = losses_of(in_parts.read(batch))
            for group in losses.of:
                group.stepper.zero_grad()
            first, *others = losses.of.values()
            sum(others, first).backward()
            for group in losses.of:
                group.stepper.step(None)
        in_parts.end_update()
        assert_equal(whole.state_dict(), in_parts.state_dict())


@pytest.mark.parametrize("name", IN_TWO_STEPS)
def test_gradients_that_are_computed_separately_are_all_of_the_same_weights(name: str) -> None:
    cls, space, hyper_parameters = OFF_POLICY[name]
    chosen = hyper_parameters | ({"policy_delay": 1} if hasattr(cls, "policy_delay") else {})
    algorithm = made(cls, space, **chosen)
    before = algorithm.get_weights()
    first, _ = algorithm.compute_gradients(batch_for(algorithm))
    assert_equal(algorithm.get_weights(), before)
    groups = {name.split(".")[0] for name in first}
    assert {group.name for group in algorithm.training.groups.values()} >= groups > {"critics"}
    algorithm.apply_gradients(first)
    moved = {name for name, weight in algorithm.get_weights().items() if not torch.equal(weight, before[name])}
    assert any("critics" in name for name in moved)
    assert any("critics" not in name for name in moved)


@pytest.mark.parametrize("name", IN_ONE_STEP)
def test_computing_and_applying_gradients_separately_equals_an_update(name: str) -> None:
    cls, space, hyper_parameters = OFF_POLICY[name]
    together, apart, elsewhere = (made(cls, space, **hyper_parameters) for _ in range(3))
    apart.load_state_dict(together.state_dict())
    for seed in range(4):
        batch = batch_for(together, seed)
        elsewhere.load_state_dict(apart.state_dict())
        before = apart.get_weights()
        gradients, result = elsewhere.compute_gradients(batch)
        assert_equal(elsewhere.get_weights(), before)
        apart.apply_gradients(gradients)
        # Updates draw random numbers where gradients are computed.
        for ours, theirs in zip(apart._generators(), elsewhere._generators(), strict=True):
            ours.set_state(theirs.get_state())
        assert_equal(together.update(batch).info, result.info)
        assert_equal(together.state_dict(), apart.state_dict())
    apart.apply_gradients({})
    assert_equal(together.state_dict(), apart.state_dict())


class Climbing(OffPolicyAlgorithm):
    """A policy that climbs its critic, whose parameters are not frozen meanwhile."""

    actions = "bounded"
    lr: NonNegativeOrSchedule = 1e-2

    def build(self) -> None:
        self.pi = self.actor.make("pi", prl.heads.DeterministicPolicy(), acts=True)
        self.q = self.actor.make("q", prl.heads.ActionValue(), codec=self.codec)
        self.train_pi, self.train_q = self.train("pi", self.pi), self.train("q", self.q)

    def default_explorer(self) -> Explorer:
        return prl.GaussianNoise(0.1)

    def policy(self, view: Any, exploration: Any) -> Any:
        return self.pi(view)

    def losses(self, rows: Any) -> Losses:
        return Losses({self.train_q: rows.mean((self.q(rows.now, rows.action).mean - rows.reward).square())})

    def losses_after_step(self, rows: Any) -> Losses:
        return Losses({self.train_pi: -rows.mean(self.q(rows.now, self.pi(rows.now)).mean)})


@pytest.mark.parametrize("late_action", [0, 1])
def test_separate_gradients_of_critics_are_without_those_of_the_policys_loss(late_action: int) -> None:
    algorithm = made(Climbing, BOX, actor={"late_action": late_action})
    batch = batch_for(algorithm)
    gradients, _ = algorithm.compute_gradients(batch)
    for losses in (algorithm.losses, algorithm.losses_after_step):
        ((group, loss),) = losses(algorithm.read(batch)).of.items()
        expected = torch.autograd.grad(loss, list(group.parameters.values()))
        for name, gradient in zip(group.parameters, expected, strict=True):
            torch.testing.assert_close(gradients[f"{group.name}.{name}"], gradient)


def test_gradients_are_copies_named_by_group_and_parameter() -> None:
    algorithm = made(TwoValues)
    gradients, _ = algorithm.compute_gradients(batch_for(algorithm))
    names = {f"q.{name}" for name, _ in algorithm.q.named_parameters()} | {"scale.value"}
    assert gradients.keys() == names
    before = {name: gradient.clone() for name, gradient in gradients.items()}
    algorithm.compute_gradients(batch_for(algorithm, 1))
    assert_equal(gradients, before)


def test_a_group_without_a_loss_is_not_stepped() -> None:
    algorithm = made(TwoValues)
    algorithm.update(batch_for(algorithm))
    algorithm.update(batch_for(algorithm, 1))
    for seed in range(2, 6):
        weights = [parameter.clone() for parameter in algorithm.slow.parameters()]
        optimizer = saved_and_loaded(algorithm.train_slow.stepper.state_dict())
        algorithm.update(batch_for(algorithm, seed))
        moved = not all(torch.equal(p, w) for p, w in zip(algorithm.slow.parameters(), weights, strict=True))
        assert moved is (seed % 2 == 1)
        if not moved:
            assert_equal(saved_and_loaded(algorithm.train_slow.stepper.state_dict()), optimizer)


@pytest.mark.parametrize("polyak", [0.0, 0.75])
def test_a_target_is_updated_at_its_interval_and_gets_no_gradient(polyak: float) -> None:
    algorithm = made(TwoValues, polyak=polyak)
    for update in range(1, 7):
        before = [parameter.clone() for parameter in algorithm.q_target.parameters()]
        algorithm.update(batch_for(algorithm, update))
        for target, old, online in zip(algorithm.q_target.parameters(), before, algorithm.q.parameters(), strict=True):
            expected = polyak * old + (1 - polyak) * online if update % 3 == 0 else old
            torch.testing.assert_close(target, expected)
            assert target.grad is None


class TargetsFirst(TwoValues):
    """Registers a target before its network is trained, and two targets of one network."""

    slow_polyak: UnitInterval = 0.99

    def build(self) -> None:
        self.q, self.slow = self.actor.make("q", Values(), acts=True), self.actor.make("slow", StateValue())
        self.slow_target = self.target(self.slow)
        self.train_q, self.train_slow = self.train("q", self.q), self.train("slow", self.slow)
        self.train_scale = self.variable("scale", 2.0, lr="lr")
        self.q_target, self.other_target = self.target(self.q), self.target(self.q, polyak="slow_polyak")


def test_targets_are_updated_for_every_order_and_number_of_registrations() -> None:
    algorithm = made(TargetsFirst, seldom=False)
    assert len(algorithm.state_dict()["training"]["targets"]) == 3
    for network, target, polyak in (
        (algorithm.q, algorithm.other_target, 0.99),
        (algorithm.slow, algorithm.slow_target, 0.9),
    ):
        before = [parameter.clone() for parameter in target.parameters()]
        algorithm.update(batch_for(algorithm))
        for parameter, old, online in zip(target.parameters(), before, network.parameters(), strict=True):
            torch.testing.assert_close(parameter, polyak * old + (1 - polyak) * online)


def test_a_registered_variable_is_trained_and_saved() -> None:
    algorithm = made(TwoValues)
    scale = algorithm.training.variables["scale"]
    assert scale.item() == 2
    algorithm.update(batch_for(algorithm))
    assert scale.item() == pytest.approx(1.99)
    assert algorithm.state_dict()["training"]["variables"]["scale"].item() == scale.item()


def test_each_group_has_its_learning_rate_which_may_be_a_schedule() -> None:
    algorithm = made(TwoValues, lr=prl.LinearSchedule(1e-2, 0.0), lr_slow=5e-4)
    algorithm.set_progress(25, 100)
    rates = {name: group.stepper.learning_rate for name, group in algorithm.training.groups.items()}
    assert rates == pytest.approx({"q": 7.5e-3, "slow": 5e-4, "scale": 7.5e-3})


class Shared(TwoValues):
    """Two groups that may train one body."""

    def build(self) -> None:
        self.q, self.other = self.actor.make("q", Values(), acts=True), self.actor.make("other", Policy())
        self.train("q", self.q)
        self.train("other", self.other)


def test_two_groups_that_share_parameters_are_refused() -> None:
    made(Shared)
    message = (
        "'other' and 'q' have separate optimisers, but share parameters; shared_body=False gives each its own body"
    )
    with pytest.raises(ValueError, match=message):
        made(Shared, actor={"shared_body": True})
    # One group may train a body that its networks share.
    made(prl.PPO, actor={"shared_body": True})


def test_trained_networks_that_checkpoints_would_lack_are_refused() -> None:
    class Forgetful(TwoValues):
        def build(self) -> None:
            super().build()
            self.model = torch.nn.Linear(3, 1)
            self.train("model", self.model)

    with pytest.raises(ValueError, match=r"Forgetful: the networks trained as 'model' .* self\.actor\.add"):
        made(Forgetful)

    class Saved(Forgetful):
        def build(self) -> None:
            super().build()
            self.actor.add("model", self.model)

    assert "networks.model.weight" in made(Saved).get_weights()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"lr": "lr_fast"}, "lr_fast"),
        ({"max_grad_norm": "largest_norm"}, "largest_norm"),
        ({"polyak": "tau"}, "tau"),
        ({"every": "seldom_every"}, "seldom_every"),
        ({"every_steps": "rarely"}, "rarely"),
    ],
)
def test_names_of_hyper_parameters_that_an_algorithm_lacks_are_refused(given: dict[str, str], name: str) -> None:
    class Mistaken(TwoValues):
        def build(self) -> None:
            super().build()
            network = self.actor.make("other", StateValue())
            of_target = given.keys() & {"polyak", "every", "every_steps"}
            self.train("other", network, **({} if of_target else given))
            self.target(network, **(given if of_target else {}))

    with pytest.raises(ValueError, match=f"Mistaken: .* needs a hyper-parameter '{name}', which it lacks"):
        made(Mistaken)


class WithoutTarget(TwoValues):
    def build(self) -> None:
        super().build()
        self.training.targets.clear()


@pytest.mark.parametrize(
    ("saved", "loaded", "message"),
    [
        (
            lambda: made(prl.SAC, BOX),
            lambda: made(prl.TD3, BOX),
            r"optimizers \['policy', 'critics', 'log_alpha'\], the",
        ),
        (lambda: made(prl.DQN), lambda: made(prl.SAC, BOX), "load a state of the same algorithm"),
        (lambda: made(TwoValues), lambda: made(WithoutTarget), r"the targets \['q'\], the algorithm has \[\]"),
        (lambda: made(prl.DQN), lambda: made(prl.DQN, optimizer=RMSprop()), "RMSprop: the saved state is of Adam"),
    ],
)
def test_a_state_of_another_algorithm_is_refused(saved: Any, loaded: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loaded().load_state_dict(saved().state_dict())


class WithoutLosses(TwoValues):
    losses = OffPolicyAlgorithm.losses  # type: ignore[assignment]


def test_an_algorithm_without_losses_raises_an_error_that_names_it() -> None:
    algorithm = made(WithoutLosses)
    with pytest.raises(NotImplementedError, match="WithoutLosses defines no losses"):
        algorithm.update(batch_for(algorithm))


@pytest.mark.parametrize("kind", [prl.DDPG, prl.SAC])
def test_the_policy_learns_from_recurrent_features_of_the_critics_after_their_step(kind: Any) -> None:
    envs = envs_with(ONE_NUMBER)
    envs.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    actor = prl.OffPolicyActor.create_factory(hidden_sizes=(4,), memory="gru", memory_size=3)("cpu", envs)
    algorithm: Any = kind.create_factory()("cpu", actor, envs)
    before: list[torch.Tensor] = []
    seen: list[torch.Tensor] = []
    body = algorithm.critics[0].body
    algorithm.critics[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].features(body).detach()))
    algorithm.critics[0].register_forward_pre_hook(lambda *_: before.append(next(body.parameters()).detach().clone()))
    algorithm.update(batch_of("sequences"))
    assert not torch.equal(before[0], before[-1]), "the critics have made their step"
    assert not torch.equal(seen[0], seen[-1])
