"""Single networks and parameter groups have settings and optimisers of their own."""

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import nn

import pytorchrl as prl
from tests.support.comparison import assert_equal
from tests.support.lessons import Wandering
from tests.support.toys import continuous

DISCRETE = gym.spaces.Discrete(3)


def made(cls: Any, actions: Any, per_network: Any = None, algorithm: Any = None, **actor: Any) -> Any:
    envs = prl.VecEnv(Wandering, 1, env_kwargs={"actions": actions})
    on_policy = issubclass(cls, prl.PPO | prl.TRPO)
    kind: Any = prl.OnPolicyActor if on_policy else prl.OffPolicyActor
    made_actor = kind.create_factory(hidden_sizes=(6,), per_network=per_network, **actor)("cpu", envs)
    return cls.create_factory(**algorithm or {})("cpu", made_actor, envs)


def widths(network: nn.Module) -> set[int]:
    return {layer.out_features for layer in network.modules() if isinstance(layer, nn.Linear)}


def test_a_network_has_its_own_layers_and_others_keep_the_actors() -> None:
    algorithm = made(prl.SAC, continuous(), {"critics": {"hidden_sizes": (9, 7), "activation": "tanh"}})
    assert {9, 7} <= widths(algorithm.critics)
    assert {9, 7} <= widths(algorithm.target_critics)
    assert widths(algorithm.pi) & {6, 9, 7} == {6}
    activations = {name: network.joint.activation for name, network in (("critic", algorithm.critics[0]),)}
    assert activations == {"critic": "tanh"}
    assert algorithm.pi.body.hidden.activation == "relu"


@pytest.mark.parametrize(
    ("cls", "actions", "network", "attribute"),
    [
        (prl.DQN, DISCRETE, "q", "q"),
        (prl.TD3, continuous(), "policy", "pi"),
        (prl.PPO, DISCRETE, "value", "value"),
        (prl.IQL, continuous(), "value", "value"),
        (prl.BCQ, continuous(), "critics", "critics"),
        (prl.MPO, continuous(), "policy", "pi"),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_every_kind_of_algorithm_has_them(cls: Any, actions: Any, network: str, attribute: str) -> None:
    algorithm = made(cls, actions, {network: {"hidden_sizes": (11,)}})
    assert 11 in widths(getattr(algorithm, attribute))
    others = [other for name, other in algorithm.actor.networks.items() if name != network]
    assert not any(11 in widths(other) for other in others)


def test_recurrent_networks_have_them_too() -> None:
    algorithm = made(prl.SAC, continuous(), {"policy": {"hidden_sizes": (9,)}}, memory="gru", memory_size=4)
    assert 9 in widths(algorithm.pi)
    assert 9 not in widths(algorithm.critics)


@pytest.mark.parametrize(
    ("per_network", "message"),
    [
        (
            {"critic": {"hidden_sizes": (9,)}},
            "per_network of SAC: unknown network 'critic'; did you mean 'critics'\\? There are policy, critics",
        ),
        (
            {"critics": {"hidden_size": (9,)}},
            r"per_network\['critics'\]: there is no setting 'hidden_size'; did you mean",
        ),
        (
            {"critics": {"normalize_observations": True}},
            r"per_network\['critics'\]: normalize_observations is of all networks together",
        ),
        ({"critics": {"memory": "gru"}}, r"per_network\['critics'\]: memory='gru', but all networks have a memory or"),
        ({"critics": {"dropout": 1.5}}, r"per_network\['critics'\]: dropout must lie in \[0, 1\], got 1.5"),
    ],
)
def test_settings_that_no_network_can_have_are_refused(per_network: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(prl.SAC, continuous(), per_network)


def test_a_late_action_beyond_a_networks_own_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="late_action must be at most the number of hidden_sizes, 1, got 2"):
        made(prl.SAC, continuous(), {"critics": {"late_action": 2}})


def test_networks_with_one_body_are_refused_settings_of_their_own() -> None:
    with pytest.raises(ValueError, match="with shared_body=True all networks have one body; leave out per_network"):
        prl.OnPolicyActor.create_factory(shared_body=True, per_network={"value": {"hidden_sizes": (9,)}})


def test_an_algorithm_that_refuses_noise_refuses_that_of_one_network() -> None:
    with pytest.raises(ValueError, match="noisy changes at each call"):
        made(prl.TRPO, DISCRETE, {"policy": {"noisy": True}})


def test_a_group_has_its_own_optimiser() -> None:
    decay = {"critics": prl.AdamW(weight_decay=0.5)}
    algorithm = made(prl.DDPG, continuous(), algorithm={"optimizers": decay, "lr_q": 0.1, "lr_pi": 0.1})
    before = {name: weight.clone() for name, weight in algorithm.actor.state_dict().items()}
    for group in algorithm.training.groups.values():
        for parameter in group.parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        group.step(algorithm)
    for name, weight in algorithm.actor.state_dict().items():
        factor = 1 - 0.1 * 0.5 if name.startswith("networks.critics") else 1
        torch.testing.assert_close(weight, factor * before[name])


def test_optimisers_of_groups_that_there_are_not_are_refused() -> None:
    with pytest.raises(
        ValueError,
        match="optimizers: unknown parameter group 'critic'; did you mean 'critics'\\? There are policy, critics",
    ):
        made(prl.DDPG, continuous(), algorithm={"optimizers": {"critic": prl.AdamW()}})


def test_networks_and_groups_of_other_names_are_answered_with_the_known_ones() -> None:
    algorithm = made(prl.SAC, continuous())
    with pytest.raises(KeyError, match=r"actor.networks: unknown network 'polcy'; did you mean 'policy'\?"):
        algorithm.actor.networks["polcy"]
    with pytest.raises(
        KeyError, match=r"training.groups: unknown parameter group 'alpha'; there are policy, critics, "
    ):
        algorithm.training.groups["alpha"]
    with pytest.raises(AttributeError, match=r"algorithm.actor.networks has the networks by name"):
        algorithm.networks["policy"]
    assert [name in algorithm.actor.networks for name in ("policy", "polcy")] == [True, False]
    assert list(copy.deepcopy(algorithm.training.groups)) == ["policy", "critics", "log_alpha"]


def test_a_run_with_both_resumes_from_its_folder(tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return prl.Scheme(
            prl.SAC.create_factory(
                start_steps=8, mini_batch_size=4, test_every=0, optimizers={"critics": prl.AdamW(weight_decay=1e-2)}
            ),
            prl.OffPolicyActor.create_factory(hidden_sizes=(6,), per_network={"critics": {"hidden_sizes": (9, 7)}}),
            prl.ReplayBuffer.create_factory(size=50),
            prl.VecEnv.create_factory("Pendulum-v1", 1),
            seed=1,
        )

    with prl.Learner(scheme(), 30, tmp_path / "whole") as whole:
        whole.run()
        expected = whole.scheme.algorithm.state_dict()
    with prl.Learner(scheme(), 20, tmp_path / "run") as learner:
        learner.run()
    with prl.Learner.resume(tmp_path / "run", target_steps=30) as learner:
        learner.run()
        assert_equal(learner.scheme.algorithm.state_dict(), expected)
    policy = prl.load_policy(tmp_path / "run")
    assert {9, 7} <= widths(policy.algorithm.critics)


def test_a_group_is_refused_what_is_no_optimiser() -> None:
    with pytest.raises(ValueError, match=r"SAC: optimizers\['critics'\] must be an optimiser, such as .* got 'AdamW'"):
        prl.SAC.create_factory(optimizers={"critics": "AdamW"})  # type: ignore[dict-item]
