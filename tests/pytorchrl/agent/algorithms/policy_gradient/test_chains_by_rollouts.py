"""Policy-gradient algorithms learn the best policy of a chain, fully or partly observed, with all kinds of actions.

All combinations, with three seeds, take half an hour: ``HYPOTHESIS_PROFILE=nightly`` runs them, other profiles run one
per algorithm, and PPO with multi-discrete actions and a memory.
"""

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import pytest

import pytorchrl as prl
from tests.support.chains import GAMMA, Chain, Ends, Seen, mistakes
from tests.support.profiles import is_nightly
from tests.support.training import train

Acts: TypeAlias = Literal["discrete", "multi-discrete", "continuous"]
SEEDS = (0, 1, 2) if is_nightly() else (0,)
STEPS: dict[Seen, int] = {"fully": 6_000, "partly": 14_000}
FALLING = prl.LinearSchedule(1e-2, 0.0)
COMMON = {"gamma": GAMMA, "test_every": 0}
BY_GRADIENT = COMMON | {"lr": FALLING, "entropy_coef": 0.02}
BY_PPO = BY_GRADIENT | {"num_mini_batch": 2, "num_epochs": 4}
BY_TRUST_REGION = COMMON | {"max_kl": 0.05, "damping": 0.01}


@dataclass(frozen=True)
class Variant:
    cls: Any
    algorithm: dict[str, Any]
    storage: Any
    for_continuous: prl.heads.DistributionHead = field(default_factory=prl.heads.SquashedGaussianPolicy)
    """The distribution of continuous actions."""
    times: int = 1
    """Factor on the number of steps of its training."""


VARIANTS = {
    "A2C": Variant(prl.A2C, BY_GRADIENT, prl.GAEBuffer.create_factory(size=16)),
    # Each option learns from its own steps alone.
    "OptionCritic": Variant(
        prl.OptionCritic,
        BY_GRADIENT | {"num_options": 2, "option_epsilon": prl.LinearSchedule(0.2, 0.0)},
        prl.GAEBuffer.create_factory(size=16),
        times=3,
    ),
    "IMPALA": Variant(prl.IMPALA, BY_GRADIENT | {"entropy_coef": 0.05}, prl.VTraceBuffer.create_factory(size=16)),
    "PPO": Variant(prl.PPO, BY_PPO, prl.GAEBuffer.create_factory(size=32)),
    "RND": Variant(prl.RND, BY_PPO | {"num_features": 16}, prl.GAEBuffer.create_factory(size=32)),
    "REINFORCE": Variant(
        prl.REINFORCE, BY_GRADIENT, prl.VanillaOnPolicyBuffer.create_factory(size=64), prl.heads.GaussianPolicy()
    ),
    "TRPO": Variant(
        prl.TRPO, BY_TRUST_REGION | {"lr_value": 1e-2, "value_epochs": 10}, prl.GAEBuffer.create_factory(size=32)
    ),
    "TRPOSinglePath": Variant(
        # Returns without a baseline: minus their mean, the returns of the first actions would be negative, since worse
        # episodes, which stay at the beginning until they are truncated, are dropped.
        prl.TRPOSinglePath,
        BY_TRUST_REGION,
        prl.VanillaOnPolicyBuffer.create_factory(size=64, cut_episodes="drop"),
    ),
}
Combination: TypeAlias = tuple[str, Seen, Acts]
ALL: list[Combination] = [
    (name, seen, acts) for name in VARIANTS for seen, acts in itertools.product(get_args(Seen), get_args(Acts))
]
SOME: list[Combination] = [*((name, "fully", "discrete") for name in VARIANTS), ("PPO", "partly", "multi-discrete")]


@pytest.mark.long
@pytest.mark.parametrize(("name", "seen", "acts"), ALL if is_nightly() else SOME)
def test_every_seed_solves_every_chain(name: str, seen: Seen, acts: Acts) -> None:
    ends: Ends = "episodic"
    variant = VARIANTS[name]
    distribution = {"distribution": variant.for_continuous} if acts == "continuous" else {}
    memory = {"memory": "gru", "memory_size": 16} if seen == "partly" else {}
    arguments = {"seen": seen, "ends": ends, "real": acts == "continuous", "several": acts == "multi-discrete"}
    for seed in SEEDS:
        scheme = prl.Scheme(
            variant.cls.create_factory(**variant.algorithm, **distribution),
            prl.OnPolicyActor.create_factory(hidden_sizes=(32,), **memory),
            variant.storage,
            prl.VecEnv.create_factory(Chain, 4, env_kwargs=arguments),
            seed=seed,
        )
        train(scheme, variant.times * STEPS[seen])
        assert mistakes(scheme.algorithm, seen, ends) == 0
        scheme.close()
