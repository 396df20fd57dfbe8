"""Algorithms refuse settings out of range, changes of what is fixed, and actions that they cannot take."""

import re
from typing import Any

import pytest

import pytorchrl as prl
from tests.support.by_hand import envs_with
from tests.support.every_algorithm import ACTIONS, OFF_POLICY, ON_POLICY, WITH_MEMORY
from tests.support.toys import continuous

OUT_OF_RANGE: list[tuple[Any, dict[str, Any], str]] = [
    (prl.AL, {"alpha": 1.5}, "alpha must lie in [0, 1], got 1.5"),
    (prl.DoublePAL, {"alpha": -0.5}, "alpha must lie in [0, 1], got -0.5"),
    (prl.DPP, {"eta": 0.0}, "eta must be greater than 0, got 0.0"),
    (prl.DPP, {"operator": "mean"}, "operator must be one of"),
    (prl.DQN, {"huber_threshold": 0.0}, "huber_threshold must be greater than 0, got 0.0"),
    (prl.ResidualDQN, {"grad_scale": 1.5}, "grad_scale must lie in [0, 1], got 1.5"),
    (prl.R2D2, {"rescaling": -1.0}, "rescaling must be at least 0, got -1"),
    (prl.IQN, {"num_quantiles": 0}, "num_quantiles must be at least 1, got 0"),
    (prl.IQN, {"kappa": 0.0}, "kappa must be greater than 0, got 0"),
    (prl.IQN, {"risk": 0.25}, "risk must be a RiskMeasure, got 0.25"),
    (prl.IQN, {"quantile_layers": (0,)}, "quantile_layers holds a value that must be at least 1"),
    (prl.MunchausenDQN, {"temperature": 0.0}, "temperature must be greater than 0, got 0"),
    (prl.MunchausenIQN, {"clip_min": 0.5}, "clip_min must be at most 0, got 0.5"),
    (prl.SACDiscrete, {"target_entropy_share": 1.1}, "target_entropy_share must"),
    (prl.SACDiscrete, {"initial_alpha": 0.0}, "initial_alpha must"),
    (prl.SACDiscrete, {"num_critics": 0}, "num_critics must be at least 1"),
    (prl.DDPG, {"polyak": 1.5}, "polyak must lie in"),
    (prl.DroQ, {"dropout": 1.0}, "dropout must be less than 1, got 1.0"),
    (prl.MMESAC, {"alpha_q": -1.0}, "alpha_q must be at least 0, got -1"),
    (prl.QRSAC, {"num_quantiles": 0}, "num_quantiles must be at least 1, got 0"),
    (prl.ACER, {"truncation": 0.0}, "truncation must"),
    (prl.ACER, {"trust_region": -1.0}, "trust_region must"),
    (prl.ACER, {"replay_ratio": -1.0}, "replay_ratio must"),
    (prl.ACERContinuous, {"num_advantage_samples": 0}, "num_advantage_samples must"),
    (prl.PCL, {"tau": 0.0}, "tau must"),
    (prl.UnifiedPCL, {"path_length": 0}, "path_length must"),
    (prl.PPO, {"dual_clip": 1.0}, "dual_clip must be greater than 1, got 1.0"),
    (prl.PPO, {"value_clip_param": -0.1}, "value_clip_param must be at least 0, got -0.1"),
    (prl.PPO, {"desired_kl": 0.0}, "desired_kl must be greater than 0, got 0.0"),
    (prl.PPO, {"normalize_advantages": "epoch"}, "normalize_advantages must be a bool, or must be one of 'rollout'"),
    (prl.RND, {"predictor_share": 0.0}, "predictor_share must be greater than 0, got 0.0"),
    (prl.RND, {"intrinsic_gamma": 2.0}, "intrinsic_gamma must lie in [0, 1], got 2.0"),
    (prl.A2C, {"value_loss_coef": -1.0}, "value_loss_coef must be at least 0, got -1"),
    (prl.IMPALA, {"entropy_coef": -1.0}, "entropy_coef must be at least 0, got -1"),
    (prl.TRPOSinglePath, {"max_kl": -0.1}, "max_kl must be at least 0, got -0.1"),
    (prl.BEAR, {"kernel": "linear"}, "kernel must be one of 'gaussian', 'laplacian', got 'linear'"),
    (prl.XQL, {"value_temperature": 0.0}, "value_temperature must be"),
    (prl.XQL, {"max_clip": -1.0}, "max_clip must be"),
]


@pytest.mark.parametrize(("cls", "given", "message"), OUT_OF_RANGE, ids=str)
def test_a_value_out_of_its_range_is_refused_by_name(cls: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(f"{cls.__name__}: {message}")):
        cls.create_factory(**given)


def made(name: str, kind: str) -> Any:
    cls, settings, _ = (OFF_POLICY | ON_POLICY)[name]
    envs = envs_with({**ACTIONS, "half-bounded": continuous(low=-1.0, high=float("inf"))}[kind])
    actor = prl.OnPolicyActor if name in ON_POLICY else prl.OffPolicyActor
    memory = {"memory": "gru"} if cls in WITH_MEMORY else {}
    expert = {"expert": lambda seen: seen} if cls is prl.DAgger else {}
    return cls.create_factory(**settings, **expert)(
        "cpu", actor.create_factory(hidden_sizes=(4,), **memory)("cpu", envs), envs
    )


FIXED = {
    "IQN": ("num_quantiles", "num_target_quantiles", "num_cosines", "quantile_layers", "kappa", "risk"),
    "QRDQN": ("num_quantiles", "kappa"),
    "QRSAC": ("num_quantiles",),
    "CategoricalDQN": ("num_atoms", "v_min", "v_max"),
    "DQN": ("huber_threshold",),
    "NAF": ("squash",),
    "SACDecomposed": ("reward_components",),
}


@pytest.mark.parametrize("name", FIXED)
def test_what_networks_were_made_of_cannot_be_changed(name: str) -> None:
    cls = (OFF_POLICY | ON_POLICY)[name][0]
    algorithm = made(name, "bounded" if cls.actions == "bounded" else "discrete")
    for fixed in FIXED[name]:
        with pytest.raises(ValueError, match=f"{name}: {fixed} is fixed"):
            algorithm.update_algorithm_parameter(fixed, 7)


@pytest.mark.parametrize("name", [name for name in OFF_POLICY | ON_POLICY if "," not in name])
def test_actions_that_an_algorithm_cannot_take_are_refused_by_its_name(name: str) -> None:
    cls, _, kinds = (OFF_POLICY | ON_POLICY)[name]
    others = set(ACTIONS) - set(kinds) - ({"hybrid"} if "bounded" in kinds else set())
    for kind in sorted(others | ({"half-bounded"} if kinds == ["bounded"] else set())):
        with pytest.raises(prl.UnsupportedSpaceError, match=cls.__name__):
            made(name, kind)


def test_the_error_names_algorithms_or_a_wrapper_that_support_the_actions() -> None:
    named = {
        ("SAC", "discrete"): "SAC needs a Box action space.*DQN and PPO",
        ("SAC", "half-bounded"): "SAC needs finite bounds",
        ("DQN", "bounded"): "DQN needs a Discrete action space.*SAC and PPO",
        ("HyAR", "bounded"): r"HyAR needs actions of discrete choices .*wrappers=\['JoinActions'\]",
        ("HyAR", "discrete"): "HyAR needs actions of discrete choices .*DQN and PPO choose",
    }
    for (name, kind), message in named.items():
        with pytest.raises(prl.UnsupportedSpaceError, match=message):
            made(name, kind)


@pytest.mark.parametrize("normalisation", ["layer_norm", "batch_norm"])
def test_normalisation_of_hidden_layers_that_no_network_has_is_refused(normalisation: str) -> None:
    envs = envs_with(ACTIONS["bounded"])

    def made_with(**settings: Any) -> prl.Algorithm:
        actor = prl.OffPolicyActor.create_factory(**settings)("cpu", envs)
        return prl.SAC.create_factory()("cpu", actor, envs)

    with pytest.raises(ValueError, match=rf"{normalisation}=True normalises hidden layers .*hidden_sizes=\(\)"):
        made_with(hidden_sizes=(), **{normalisation: True})
    made_with(hidden_sizes=(), per_network={"critics": {"hidden_sizes": (8,)}}, **{normalisation: True})
