"""Residual bodies and those of users: what they compute, with which algorithms, or why they are refused."""

import functools
import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

import pytorchrl as prl
from pytorchrl.agent.actors import batched_passes
from pytorchrl.agent.actors.batched_passes import StackedNetworks, soft_maximum_of_critic
from pytorchrl.agent.actors.codec import make_codec
from pytorchrl.agent.actors.layers.linear_layers import NoisyLinear
from pytorchrl.agent.actors.layers.residual import BroNet, SimBa
from pytorchrl.experiments.policies.trained_policy import TrainedPolicy
from tests.support.by_hand import envs_with, perturb
from tests.support.comparison import assert_equal
from tests.support.exported import exported_actions, skip_without_onnx
from tests.support.lessons import CASES, learn, make_scheme, parameters
from tests.support.memories import MinimalGatedUnit
from tests.support.toys import Noise, continuous

BOX = continuous(size=2)
EPSILON = 1e-6
BOTH = pytest.mark.parametrize("kind", [SimBa, BroNet])
NAMES = pytest.mark.parametrize("body", ["simba", "bronet"])


def made(kind: Any, inputs: int = 5, sizes: Any = (6, 6), **settings: Any) -> Any:
    """A network whose normalisations are not the identity."""
    torch.manual_seed(0)
    network = kind(inputs, sizes, **settings)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape) / 4)
    return network


def normalised(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    deviation = (x.var(1, unbiased=False, keepdim=True) + EPSILON).sqrt()
    return (x - x.mean(1, keepdim=True)) / deviation * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def product(x: Tensor, weights: Mapping[str, Tensor], name: str) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def simba_of_the_paper(x: Tensor, weights: Mapping[str, Tensor], blocks: int) -> Tensor:
    x = product(x, weights, "embedding")
    for block in range(blocks):
        name = f"blocks.{block}"
        inner = product(normalised(x, weights, f"{name}.norm"), weights, f"{name}.wide").clamp(min=0)
        x = x + product(inner, weights, f"{name}.narrow")
    return normalised(x, weights, "norm")


def bronet_of_the_paper(x: Tensor, weights: Mapping[str, Tensor], blocks: int) -> Tensor:
    def layer(x: Tensor, name: str) -> Tensor:
        return normalised(product(x, weights, f"{name}.layer"), weights, f"{name}.norm")

    x = layer(x, "embedding").clamp(min=0)
    for block in range(blocks):
        x = x + layer(layer(x, f"blocks.{block}.first").clamp(min=0), f"blocks.{block}.second")
    return x


def actor_of(action_space: Any = BOX, cls: Any = prl.OffPolicyActor, **settings: Any) -> prl.Actor:
    torch.manual_seed(0)
    made_actor: prl.Actor = cls.create_factory(**{"hidden_sizes": (8, 8)} | settings)("cpu", envs_with(action_space))
    return made_actor


def critics_of(actor: prl.Actor, count: int = 2) -> Any:
    codec = make_codec(BOX, torch.device("cpu"), scaled=True)
    return actor.make_ensemble("critics", prl.heads.ActionValue(), count, codec=codec)


class Gated(nn.Module):
    """A user's body, of one gated layer for each size."""

    def __init__(self, input_size: int, hidden_sizes: Any) -> None:
        super().__init__()
        sizes = [input_size, *hidden_sizes]
        self.layers = nn.ModuleList(nn.Linear(one, 2 * other) for one, other in itertools.pairwise(sizes))

    def forward(self, features: Tensor) -> Tensor:
        for layer in self.layers:
            features = F.glu(layer(features), dim=1)
        return features


def half(input_size: int, hidden_sizes: Any) -> nn.Module:
    """A user's body that declares no output size, and forgets half of its inputs."""
    return nn.Sequential(nn.Linear(input_size, max(1, input_size // 2)), nn.Dropout(0.5), nn.SiLU())


# What they compute


@pytest.mark.parametrize("sizes", [(6,), (6, 6), (6, 6, 6)])
@pytest.mark.parametrize("rows", [1, 40])
def test_simba_computes_the_equations_of_its_paper(sizes: Any, rows: int) -> None:
    network, inputs = made(SimBa, sizes=sizes), torch.randn(rows, 5)
    torch.testing.assert_close(network(inputs), simba_of_the_paper(inputs, network.state_dict(), len(sizes)))


@pytest.mark.parametrize("sizes", [(6,), (6, 6), (6, 6, 6)])
@pytest.mark.parametrize("rows", [1, 40])
def test_bronet_computes_the_equations_of_its_paper(sizes: Any, rows: int) -> None:
    network, inputs = made(BroNet, sizes=sizes), torch.randn(rows, 5)
    torch.testing.assert_close(network(inputs), bronet_of_the_paper(inputs, network.state_dict(), len(sizes)))


@BOTH
def test_gradients_equal_those_of_the_equations(kind: Any) -> None:
    network, inputs = made(kind), torch.randn(9, 5)
    weights = {name: parameter.detach().clone().requires_grad_() for name, parameter in network.named_parameters()}
    equations = simba_of_the_paper if kind is SimBa else bronet_of_the_paper
    expected = torch.autograd.grad(equations(inputs, weights, 2).square().sum(), list(weights.values()))
    found = torch.autograd.grad(network(inputs).square().sum(), list(network.parameters()))
    for one, other in zip(found, expected, strict=True):
        assert other.abs().max() > 0
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_networks_of_the_papers_sizes_have_their_numbers_of_parameters() -> None:
    # HalfCheetah: 17 numbers and 6 actions. A linear layer from n to m has n * m + m, a normalisation 2 * m.
    simba = SimBa(23, (512, 512))
    block = 2 * 512 + (512 * 2048 + 2048) + (2048 * 512 + 512)
    assert sum(each.numel() for each in simba.parameters()) == 23 * 512 + 512 + 2 * block + 2 * 512
    bronet = BroNet(23, (512, 512))
    layer = 512 * 512 + 512 + 2 * 512
    assert sum(each.numel() for each in bronet.parameters()) == 23 * 512 + 512 + 2 * 512 + 2 * 2 * layer


def test_initial_weights_are_those_of_the_authors_code() -> None:
    torch.manual_seed(0)
    simba, bronet = SimBa(8, (64,)), BroNet(8, (64,))
    torch.testing.assert_close(simba.embedding.weight.T @ simba.embedding.weight, torch.eye(8), rtol=1e-4, atol=1e-4)
    block: Any = simba.blocks[0]
    for layer in (block.wide, block.narrow):
        assert layer.weight.std().item() == pytest.approx((2 / layer.in_features) ** 0.5, rel=0.03)
    for layer in (bronet.blocks[0].first.layer, bronet.blocks[0].second.layer):  # type: ignore[union-attr]
        torch.testing.assert_close(layer.weight @ layer.weight.T, 2 * torch.eye(64), rtol=1e-4, atol=1e-4)
    biases = [each for net in (simba, bronet) for name, each in net.named_parameters() if name.endswith("bias")]
    assert len(biases) == 5 + 6
    assert not any(bias.any() for bias in biases)


@NAMES
@pytest.mark.parametrize("cls", [prl.OffPolicyActor, prl.OnPolicyActor])
def test_a_critic_is_its_body_of_observation_and_action(body: Any, cls: Any) -> None:
    actor = actor_of(cls=cls, body=body)
    critic = critics_of(actor)[0]
    perturb(actor, 1, 0.3)
    observation, action = torch.randn(7, 3), torch.rand(7, 2) * 2 - 1
    weights, equations = critic.joint.state_dict(), {"simba": simba_of_the_paper, "bronet": bronet_of_the_paper}[body]
    expected = critic.head.layer(equations(torch.cat([observation, action], dim=1), weights, 2))
    torch.testing.assert_close(critic(actor.view(observation), action).mean, expected)


@NAMES
def test_a_policy_acts_as_it_is_updated(body: Any) -> None:
    actor = actor_of(spaces.Discrete(3), body=body)
    policy = actor.make("policy", prl.heads.Policy(), acts=True)
    perturb(actor, 1, 0.5)
    observation = torch.randn(1, 3)
    with actor.acting(noisy=True):
        acting = policy(actor.view(observation)).logits
    torch.testing.assert_close(acting, policy(actor.view(observation)).logits)


@NAMES
def test_a_frozen_critic_passes_gradients_to_the_action_and_accumulates_none(body: Any) -> None:
    actor = actor_of(body=body)
    critics = critics_of(actor)
    view, action = actor.view(torch.randn(5, 3)), torch.randn(5, 2, requires_grad=True)
    free = torch.autograd.grad(critics[0](view, action).mean.sum(), action)[0]
    with critics.frozen():
        frozen = torch.autograd.grad(critics[0](view, action).mean.sum(), action)[0]
        sum(value.mean.sum() for value in critics(view, action)).backward()
    assert torch.equal(frozen, free)
    assert free.abs().max() > 0
    assert all(parameter.grad is None for parameter in critics.parameters())


@NAMES
def test_noisy_layers_draw_noise_in_updates_and_none_in_evaluation(body: Any) -> None:
    actor = actor_of(spaces.Discrete(3), body=body, noisy=True)
    network = actor.make("q", prl.heads.Values())
    assert {type(each) for each in network.body.hidden.modules() if hasattr(each, "in_features")} == {NoisyLinear}
    view = [actor.view(torch.ones(4, 3)) for _ in range(4)]
    assert not torch.equal(network(view[0]).values, network(view[1]).values)
    with actor.acting(noisy=False):
        assert torch.equal(network(view[2]).values, network(view[3]).values)


# Settings


def test_networks_may_have_different_bodies() -> None:
    per_network = {"critics": {"body": "bronet", "hidden_sizes": (9, 9)}}
    actor = actor_of(hidden_sizes=(7, 5), per_network=per_network)
    algorithm: Any = prl.SAC.create_factory()("cpu", actor, envs_with(BOX))
    assert [type(critic.joint) for critic in algorithm.critics] == [BroNet, BroNet]
    assert [type(target.joint) for target in algorithm.target_critics] == [BroNet, BroNet]
    assert [layer.out_features for layer in algorithm.pi.body.hidden.layers] == [7, 5]


@NAMES
def test_a_late_action_follows_the_first_blocks(body: Any) -> None:
    actor = actor_of(body=body, hidden_sizes=(8, 8, 8), late_action=2)
    critic = critics_of(actor)[0]
    assert [len(part.blocks) for part in (critic.body.hidden, critic.joint)] == [2, 1]
    assert critic(actor.view(torch.randn(5, 3)), torch.randn(5, 2)).mean.shape == (5, 1)


@pytest.mark.parametrize("memory", ["gru", MinimalGatedUnit])
@NAMES
def test_a_memory_follows_the_blocks(body: Any, memory: Any) -> None:
    actor = actor_of(body=body, memory=memory, memory_size=4)
    policy = actor.make("policy", prl.heads.Policy(), acts=True)
    assert len(policy.body.body.hidden.blocks) == 2  # type: ignore[union-attr]
    critic = critics_of(actor)[0]
    assert critic.joint.blocks[0] is not None
    assert critic.joint.output_size == 4


def test_no_hidden_sizes_leave_the_features_as_they_are() -> None:
    for body in ("simba", Gated):
        network = actor_of(spaces.Discrete(3), body=body, hidden_sizes=()).make("q", prl.heads.Values())
        assert isinstance(network.body.hidden, nn.Identity)
        assert network.body.output_size == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"body": "resnet"}, "OffPolicyActor: body must be one of 'mlp', 'simba', 'bronet', or must be callable"),
        (
            {"body": "simba", "hidden_sizes": (64, 32)},
            "OffPolicyActor: body 'simba': hidden_sizes are the features of each residual block, which are equal, such "
            "as (256, 256), got (64, 32)",
        ),
        (
            {"body": "bronet", "layer_norm": True, "dropout": 0.1},
            "OffPolicyActor: body 'bronet' has layers of its own, and layer_norm=True, dropout=0.1 would change "
            'nothing; leave that out, or choose body="mlp"',
        ),
        ({"body": "simba", "activation": "silu"}, "has layers of its own, and activation='silu' would change nothing"),
        ({"body": Gated, "activation": "silu"}, "OffPolicyActor: body Gated has layers of its own"),
        (
            {"per_network": {"critics": {"body": "simba", "batch_norm": True}}},
            "OffPolicyActor: per_network['critics']: body 'simba' has layers of its own, and batch_norm=True would",
        ),
        (
            {"hidden_sizes": (9, 8), "per_network": {"critics": {"body": "simba"}}},
            "per_network['critics']: body 'simba': hidden_sizes are",
        ),
        ({"per_network": {"critics": {"body": "resnet"}}}, "per_network['critics']: body must be one of"),
        ({"body": nn.Linear(3, 4)}, "OffPolicyActor: body is an instance of Linear; each network makes its own: pass"),
        ({"body": lambda size: nn.Linear(size, 4)}, "body <lambda> must make a module of (input_size, hidden_sizes), "),
    ],
)
def test_settings_that_do_not_fit_a_body_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        prl.OffPolicyActor.create_factory(**settings)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_relu_or_an_actors_default_activation_do_not_exclude_a_residual_body(activation: Any) -> None:
    prl.OnPolicyActor.create_factory(body="simba", activation=activation)


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (prl.DroQ, "body 'simba' has no layer_norm and no dropout, with which the algorithm makes these networks"),
        (prl.CrossQ, "body 'simba' has no batch_renorm_warmup, with which the algorithm makes"),
        (prl.ReBRAC, "body 'simba' has no layer_norm, with which the algorithm makes these networks"),
        (prl.FQL, "body 'simba' has no layer_norm, with which the algorithm makes these networks"),
    ],
)
def test_algorithms_that_need_layers_of_their_own_refuse_a_residual_body(cls: Any, message: str) -> None:
    algorithm = cls.create_factory(**({"renorm_warmup": 0} if cls is prl.CrossQ else {}))
    with pytest.raises(ValueError, match=message):
        algorithm("cpu", actor_of(body="simba"), envs_with(BOX))


# Algorithms

RESIDUAL: dict[str, Any] = {"body": "simba", "hidden_sizes": (4, 4), "normalize_observations": True}
FIRST = [
    case for case in CASES if case.name not in ("DroQ", "CrossQ", "ReBRAC-bounded", "FQL-bounded", "ReBRAC", "FQL")
]
FIRST = list({case.name: case for case in reversed(FIRST)}.values())[::-1]
USUAL = ("SAC", "TD3", "PPO", "DQN", "QRSAC", "CQL", "MBPO", "IMPALA")


@pytest.mark.parametrize(
    "case", [case if case.name in USUAL else pytest.param(case, marks=pytest.mark.long) for case in FIRST], ids=str
)
def test_every_algorithm_learns_with_a_residual_body(case: Any) -> None:
    scheme = make_scheme(case, body=RESIDUAL)
    before = {name: parameter.detach().clone() for name, parameter in parameters(scheme.algorithm).items()}
    learn(scheme, 3)
    after = parameters(scheme.algorithm)
    assert all(parameter.isfinite().all() for parameter in after.values())
    blocks = [name for name in after if ".blocks." in name]
    assert blocks
    assert not [name for name in blocks if name.endswith("weight") and torch.equal(after[name], before[name])]
    scheme.close()


@BOTH
def test_a_frozen_block_stays_as_it_is_and_a_replaced_one_learns(kind: Any) -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(2.0))

        def forward(self, features: Tensor) -> Tensor:
            return self.factor * features

    class Changing(prl.SAC):
        def make_critics(self) -> Any:
            critics = super().make_critics()
            for critic in critics:
                critic.joint.blocks[0].requires_grad_(False)  # type: ignore[union-attr]
                critic.joint.blocks[1] = Doubled()  # type: ignore[index,union-attr]
            return critics

    case = next(case for case in CASES if case.name == "SAC")
    body = RESIDUAL | {"body": "simba" if kind is SimBa else "bronet", "hidden_sizes": (4, 4)}
    scheme = make_scheme(case, Changing, body=body)
    critic: Any = scheme.algorithm.critics[0]  # type: ignore[attr-defined]
    before = {name: parameter.detach().clone() for name, parameter in critic.joint.named_parameters()}
    learn(scheme, 2)
    changed = {name for name, each in critic.joint.named_parameters() if not torch.equal(each, before[name])}
    assert not {name for name in changed if name.startswith("blocks.0")}
    assert {"blocks.1.factor", "embedding.weight" if kind is SimBa else "embedding.layer.weight"} <= changed
    scheme.close()


def test_an_actor_of_ones_own_may_change_the_hidden_layers() -> None:
    class Scaled(prl.OffPolicyActor):
        def hidden_layers(self, inputs: int, sizes: Any, layers: Any = None) -> nn.Module:
            made_layers = super().hidden_layers(inputs, sizes, layers)
            made_layers.register_forward_hook(lambda module, given, features: 0 * features)
            return made_layers

    critic = critics_of(actor_of(cls=Scaled, body="simba"))[0]
    view = actor_of().view(torch.randn(4, 3))
    assert torch.equal(critic(view, torch.randn(4, 2)).mean, critic.head.layer.bias.expand(4, 1))


# Passes of several networks at once


@NAMES
def test_a_planners_returns_are_those_of_separate_networks(body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planner = prl.planners.RandomShooting(2, 3)
    actor = actor_of(body=body)
    algorithm: Any = prl.PETS.create_factory(ensemble_size=3, planner=planner)("cpu", actor, envs_with(BOX))
    perturb(actor, 1, 0.2)
    obs, actions = torch.randn(2, 3), torch.rand(2, 5, 4, 2) * 2 - 1
    found = algorithm.expected_returns(algorithm.model.rollouts(), obs, actions, torch.Generator().manual_seed(0))
    monkeypatch.setattr(StackedNetworks, "of", lambda networks: None)
    expected = algorithm.expected_returns(algorithm.model.rollouts(), obs, actions, torch.Generator().manual_seed(0))
    assert torch.equal(found, expected)


@NAMES
def test_conservative_losses_over_many_actions_are_those_of_single_passes(body: Any) -> None:
    actor = actor_of(body=body)
    critic = critics_of(actor, 1)[0]
    observation, action, log_density = torch.randn(5, 3), torch.rand(5, 4, 2), torch.randn(5, 4)
    weight = torch.rand(5, 1)
    found = soft_maximum_of_critic(critic, actor.view(observation), action, log_density, weight)
    values = torch.cat([critic(actor.view(observation), action[:, one]).mean for one in range(4)], dim=1)
    torch.testing.assert_close(found, (weight * (values - log_density).logsumexp(1, keepdim=True)).sum())
    assert batched_passes.StackedNetworks.of([critic]) is None


# Users' bodies


@pytest.mark.parametrize(
    "body", [Gated, half, functools.partial(Gated), SimBa, lambda size, sizes: BroNet(size, sizes)]
)
def test_any_module_of_a_users_own_is_a_body(body: Any) -> None:
    actor = actor_of(body=body)
    algorithm: Any = prl.TD3.create_factory()("cpu", actor, envs_with(BOX))
    critic = algorithm.critics[0]
    observation, action = torch.randn(6, 3), torch.randn(6, 2)
    with actor.acting(noisy=False):
        expected = critic.head.layer(critic.joint(torch.cat([observation, action], dim=1)))
        torch.testing.assert_close(critic(actor.view(observation), action).mean, expected)
    assert len({id(network) for network in actor.modules() if type(network) is type(critic.joint)}) > 2


def test_a_users_body_is_named_in_the_configuration() -> None:
    factory = prl.OffPolicyActor.create_factory(body=Gated, per_network={"critics": {"body": half}})
    assert factory.config["hyper_parameters"]["body"] == {"callable": "Gated"}
    assert factory.config["hyper_parameters"]["per_network"]["critics"]["body"] == {"callable": "half"}


class Wrong(nn.Module):
    def forward(self, features: Tensor) -> Any:
        return features, features


class InPlace(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.relu_()


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (lambda size, sizes: 3, TypeError, r"body <lambda> must make a torch.nn.Module of .*, got a int"),
        (lambda size, sizes: Wrong(), TypeError, r"body <lambda> must return a Tensor .* returned a tuple of 2"),
        (lambda size, sizes: nn.Unflatten(1, (size, 1)), ValueError, r"for features \(B, 3\); .* returned \(2, 3, 1\)"),
        (lambda size, sizes: InPlace(), ValueError, "body <lambda> changes the rows of features that it is given"),
    ],
)
def test_a_users_body_that_returns_no_features_is_refused(body: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        actor_of(spaces.Discrete(3), body=body).make("q", prl.heads.Values())


# Runs


def scheme_of(**actor: Any) -> prl.Scheme:
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=2, num_mini_batch=2, test_every=0),
        prl.OnPolicyActor.create_factory(**{"hidden_sizes": (8, 8)} | actor),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory(Noise, num_envs=2),
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("suffix", [".pt2", ".onnx", ".ts"])
@NAMES
def test_an_exported_policy_acts_as_the_network(body: Any, suffix: str, tmp_path: Path) -> None:
    skip_without_onnx(suffix)
    with scheme_of(body=body, normalize_observations=True) as scheme:
        assert scheme.actor.normalization is not None
        scheme.actor.normalization.add(3 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0)) + 1)
        scheme.actor.normalization.use_newest()
        perturb(scheme.actor, 2, 1.0)
        policy = TrainedPolicy(scheme.algorithm)
        path = policy.export(tmp_path / f"policy{suffix}")
        seen = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
        (found,) = exported_actions(path, [torch.from_numpy(seen)])
        expected = policy(seen)
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    assert len(np.unique(expected)) > 1


def test_target_networks_are_copies_and_shared_bodies_are_one() -> None:
    envs = envs_with(spaces.Discrete(3))
    actor = actor_of(spaces.Discrete(3), body="simba", noisy=True)
    algorithm: Any = prl.DQN.create_factory()("cpu", actor, envs)
    assert_equal(algorithm.q_target.body.hidden.state_dict(), algorithm.q.body.hidden.state_dict())
    assert algorithm.q_target.body.hidden.embedding.generator is algorithm.q.body.hidden.embedding.generator
    shared = actor_of(spaces.Discrete(3), body="bronet", shared_body=True)
    ppo: Any = prl.PPO.create_factory()("cpu", shared, envs)
    assert ppo.pi.body is ppo.value.body
