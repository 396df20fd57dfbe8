"""Algorithms learn the best policy of a chain of states, fully and partly observed.

The chain pays in the middle and at its end, where episodes end or an endless chain begins again. All combinations, with
three seeds each, take an hour and a half: ``HYPOTHESIS_PROFILE=nightly`` runs them, other profiles run one per
algorithm.
"""

import itertools
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, get_args

import pytest

import pytorchrl as prl
from tests.support.chains import GAMMA, Chain, Ends, Seen, mistakes
from tests.support.profiles import FULL, is_nightly
from tests.support.training import train

SEEDS = (0, 1, 2) if is_nightly() else (0,)
STEPS: dict[Seen, int] = {"fully": 2_000, "partly": 4_000}
FALLING = prl.LinearSchedule(1e-2, 0.0)
COMMON = {"gamma": GAMMA, "start_steps": 600, "update_every": 4, "test_every": 0, "polyak": 0.95}
EPSILON = prl.LinearSchedule(1.0, 0.2, fraction=0.7)
VALUES = COMMON | {"lr": FALLING, "epsilon": EPSILON}
# Each update of the target network is one iteration of the operators of these algorithms.
BY_ITERATION = VALUES | {"polyak": 0.0, "target_update_interval": 20}
# Values are a step function of actions here, which noise around a peak on the wrong side does not reveal. Before the
# cue is remembered, both actions have equal values; without the bound, values would become flat permanently.
OF_QUADRATICS = COMMON | {"lr": FALLING, "explorer": prl.EpsilonGreedy(EPSILON), "min_log_diagonal": -1.5}
OF_WEIGHTED_ACTIONS = COMMON | {"lr_pi": FALLING, "lr_q": FALLING, "num_critics": 1, "target_update_interval": 1}
# The policy's entropy is that of actions within [-1, 1], at most log 2.
SOFT = COMMON | {"lr_pi": FALLING, "lr_q": FALLING, "lr_alpha": 1e-3, "initial_alpha": 0.1, "target_entropy": 0.0}
SEVERAL_UPDATES = SOFT | {"num_mini_batch": 2, "policy_delay": 2}
ATOMS = {"v_min": -1.0, "v_max": 3.0}
FRACTIONS = {"num_quantiles": 8, "num_target_quantiles": 8, "num_action_quantiles": 16}


@dataclass(frozen=True)
class Variant:
    cls: Any
    algorithm: dict[str, Any]
    actor: dict[str, Any] = field(default_factory=dict)
    needs_memory: bool = False
    has_memory: bool = True
    times: int = 1
    """Factor on the number of steps of its training."""


VARIANTS = {
    "DQN": Variant(prl.DQN, VALUES | {"double": False}),
    "double DQN": Variant(prl.DQN, VALUES),
    "DiscreteBCQ": Variant(prl.DiscreteBCQ, VALUES | {"threshold": 0.1}),
    "dueling DQN": Variant(prl.DQN, VALUES, {"dueling": True}),
    "noisy DQN": Variant(prl.DQN, VALUES, {"noisy": True}),
    "NAF": Variant(prl.NAF, OF_QUADRATICS, times=2),
    "dueling NAF": Variant(prl.NAF, OF_QUADRATICS, {"dueling": True}, times=2),
    "QtOpt": Variant(prl.QtOpt, VALUES | {"num_samples": 16, "num_elites": 4, "lag": 20}, times=3),
    "SACDiscrete": Variant(
        prl.SACDiscrete,
        COMMON
        | {"lr_pi": FALLING, "lr_q": FALLING, "lr_alpha": 1e-3, "initial_alpha": 0.1, "target_entropy_share": 0.3},
    ),
    "MPO": Variant(prl.MPO, OF_WEIGHTED_ACTIONS, times=2),
    "MPODiscrete": Variant(prl.MPODiscrete, OF_WEIGHTED_ACTIONS),
    "SAC": Variant(prl.SAC, SOFT),
    "SACWithValue": Variant(
        prl.SACWithValue,
        COMMON | {"lr_pi": FALLING, "lr_q": FALLING, "lr_value": FALLING, "reward_scale": 10.0},
        times=2,
    ),
    "MMESAC": Variant(
        prl.MMESAC,
        COMMON | {"lr_pi": FALLING, "lr_q": FALLING, "lr_value": FALLING, "reward_scale": 10.0, "alpha_q": 0.2},
        times=2,
    ),
    "DEMMESAC": Variant(
        prl.DEMMESAC,
        COMMON | {"lr_pi": FALLING, "lr_q": FALLING, "lr_value": FALLING, "reward_scale": 10.0, "alpha_q": 0.2},
        times=2,
    ),
    "REDQ": Variant(prl.REDQ, SEVERAL_UPDATES | {"num_critics": 3}),
    "DroQ": Variant(prl.DroQ, SEVERAL_UPDATES),
    "SACDecomposed": Variant(prl.SACDecomposed, SOFT | {"reward_components": ("middle", "last")}, times=2),
    "QRSAC": Variant(prl.QRSAC, SOFT | {"num_quantiles": 8}, times=2),
    "TQC": Variant(prl.TQC, SOFT | {"num_critics": 2, "num_quantiles": 8, "num_dropped": 1}, times=2),
    "CrossQ": Variant(
        prl.CrossQ,
        {key: value for key, value in SOFT.items() if key != "polyak"} | {"policy_delay": 2},
        times=2,
        has_memory=False,
    ),
    "QRDQN": Variant(prl.QRDQN, VALUES | {"num_quantiles": 8}),
    # Sharp distributions need large logits: 16 features, each within [-1, 1], saturate before they hold the cue.
    "CategoricalDQN": Variant(prl.CategoricalDQN, VALUES | ATOMS, {"memory_size": 64}),
    "IQN": Variant(prl.IQN, VALUES | FRACTIONS),
    "MunchausenDQN": Variant(prl.MunchausenDQN, VALUES),
    "MunchausenIQN": Variant(prl.MunchausenIQN, VALUES | FRACTIONS),
    "SARSA": Variant(prl.SARSA, VALUES),
    "ResidualDQN": Variant(prl.ResidualDQN, {key: value for key, value in VALUES.items() if key != "polyak"}),
    "AL": Variant(prl.AL, BY_ITERATION),
    "PAL": Variant(prl.PAL, BY_ITERATION),
    "DoublePAL": Variant(prl.DoublePAL, BY_ITERATION),
    # The softer the average over actions, the slower preferences grow.
    "DPP": Variant(prl.DPP, BY_ITERATION | {"eta": 0.1}),
    "Rainbow": Variant(
        prl.Rainbow,
        COMMON | ATOMS | {"lr": FALLING, "target_update_interval": 1},
        # At first, the cue is a small part of the features, which noise hides if there are few features.
        {"memory_size": 128, "dueling": True, "noisy": True},
    ),
    "R2D2": Variant(
        # By default, only one of the four environments would explore.
        prl.R2D2,
        VALUES | {"explorer": prl.EpsilonGreedy(EPSILON), "target_update_interval": 1, "optimizer": prl.Adam()},
        needs_memory=True,
    ),
}

RESEMBLING = (
    "DQN",
    "dueling DQN",
    "noisy DQN",
    "dueling NAF",
    "SACWithValue",
    "MMESAC",
    "DroQ",
    "MunchausenIQN",
    "AL",
    "PAL",
)
"""Variants that quick runs leave out, since the others contain what they do."""

IN_SEGMENTS: dict[str, Any] = {
    "ACER": (prl.ACER, {}),
    "ACERContinuous": (prl.ACERContinuous, {}),
    "PCL": (prl.PCL, {"lr_value": FALLING, "tau": 0.1}),
    "UnifiedPCL": (prl.UnifiedPCL, {"tau": 0.1, "value_loss_coef": 5.0}),
}

Combination: TypeAlias = tuple[Seen, Ends, int, bool]
"""How a chain is seen and ends, the steps of windows, and whether they are prioritised."""


def combinations_of(variant: Variant) -> list[Combination]:
    if is_nightly():
        seen: tuple[Seen, ...] = ("fully",) * (not variant.needs_memory) + ("partly",) * variant.has_memory
        return list(itertools.product(seen, get_args(Ends), (1, 3), (False, True)))
    return [("partly", "episodic", 3, True) if variant.needs_memory else ("fully", "endless", 3, True)]


def scheme_of(variant: Variant, seen: Seen, ends: Ends, n_step: int, prioritised: bool, seed: int) -> prl.Scheme:
    has_memory = variant.has_memory and (seen == "partly" or variant.needs_memory)
    # In an endless chain, what has to be remembered may lie before the sequence.
    sequences = prl.Sequences(8, burn_in=4) if ends == "endless" else prl.Sequences(6)
    settings: dict[str, Any] = {
        "size": 1_000,
        "n_step": n_step,
        "sequences": sequences if has_memory else None,
    }
    if prioritised:
        storage = prl.PERBuffer.create_factory(alpha=0.6, beta=0.4, epsilon=0.01, **settings)
    else:
        storage = prl.NStepReplayBuffer.create_factory(**settings)
    batch = {"mini_batch_size": 32 if has_memory else 64}
    return prl.Scheme(
        variant.cls.create_factory(**variant.algorithm, **batch),
        prl.OffPolicyActor.create_factory(
            hidden_sizes=(32,), memory="gru" if has_memory else None, **{"memory_size": 16, **variant.actor}
        ),
        storage,
        envs_of(seen, ends, real=variant.cls.actions == "bounded"),
        seed=seed,
    )


def envs_of(seen: Seen, ends: Ends, real: bool = False) -> Any:
    return prl.VecEnv.create_factory(Chain, 4, env_kwargs={"seen": seen, "ends": ends, "real": real})


def check(scheme: prl.Scheme, seen: Seen, ends: Ends, steps: int) -> None:
    train(scheme, steps)
    assert mistakes(scheme.algorithm, seen, ends) == 0
    scheme.close()


def test_double_dqn_solves_an_endless_chain() -> None:
    scheme = scheme_of(VARIANTS["double DQN"], "fully", "endless", 3, True, seed=0)
    check(scheme, "fully", "endless", STEPS["fully"])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "combination"),
    [
        pytest.param(name, combination, marks=FULL if name in RESEMBLING else ())
        for name, variant in VARIANTS.items()
        for combination in combinations_of(variant)
    ],
)
def test_every_seed_solves_every_chain(name: str, combination: Combination) -> None:
    seen, ends, n_step, prioritised = combination
    variant = VARIANTS[name]
    for seed in SEEDS:
        scheme = scheme_of(variant, seen, ends, n_step, prioritised, seed)
        check(scheme, seen, ends, variant.times * STEPS[seen])


@pytest.mark.quick_share(0, long=0.5)
@pytest.mark.long
@pytest.mark.parametrize("ends", get_args(Ends) if is_nightly() else ["episodic"])
# Recurrent actors do not learn from segments of one step, since no gradient flows back to earlier steps.
@pytest.mark.parametrize(
    ("cls", "settings", "seen", "segment"),
    [
        (prl.NStepQLearning, {"target_update_interval_steps": 50}, "fully", 1),
        (prl.NStepQLearning, {"target_update_interval_steps": 50}, "fully", 4),
        (prl.NStepQLearning, {"target_update_interval_steps": 50}, "partly", 4),
        (prl.PQN, {"num_mini_batch": 1}, "fully", 4),
        (prl.PQN, {"num_mini_batch": 1}, "partly", 4),
    ],
)
def test_every_seed_solves_every_chain_from_rollouts(
    cls: Any, settings: dict[str, Any], segment: int, ends: Ends, seen: Seen
) -> None:
    for seed in SEEDS:
        scheme = prl.Scheme(
            cls.create_factory(gamma=GAMMA, lr=FALLING, epsilon=EPSILON, test_every=0, **settings),
            prl.OnPolicyActor.create_factory(
                hidden_sizes=(32,),
                memory="gru" if seen == "partly" else None,
                memory_size=16,
                layer_norm=cls is prl.PQN,
            ),
            (prl.LambdaReturnBuffer if cls is prl.PQN else prl.VanillaOnPolicyBuffer).create_factory(size=segment),
            envs_of(seen, ends),
            seed=seed,
        )
        check(scheme, seen, ends, 4 * STEPS[seen])


@pytest.mark.quick_share(0, long=0.4)
@pytest.mark.long
@pytest.mark.parametrize("ends", get_args(Ends) if is_nightly() else ["episodic"])
@pytest.mark.parametrize("seen", get_args(Seen))
@pytest.mark.parametrize("name", IN_SEGMENTS)
def test_every_seed_solves_every_chain_from_new_and_replayed_segments(name: str, seen: Seen, ends: Ends) -> None:
    cls, settings = IN_SEGMENTS[name]
    for seed in SEEDS:
        scheme = prl.Scheme(
            # New segments are long enough for what has to be remembered, wherever they begin.
            cls.create_factory(
                gamma=GAMMA, lr=FALLING, update_every=64, start_steps=200, replay_ratio=8.0, test_every=0, **settings
            ),
            prl.OnPolicyActor.create_factory(
                hidden_sizes=(32,), memory="gru" if seen == "partly" else None, memory_size=16
            ),
            prl.ReplayBuffer.create_factory(size=1_000, sequences=prl.Sequences(16, across_episodes=True)),
            envs_of(seen, ends, real=cls is prl.ACERContinuous),
            seed=seed,
        )
        check(scheme, seen, ends, 8_000)


@pytest.mark.long
def test_a_policy_without_a_memory_does_not_solve_a_partly_observed_chain() -> None:
    without_memory = replace(VARIANTS["double DQN"], has_memory=False)
    scheme = scheme_of(without_memory, "partly", "episodic", 1, False, seed=0)
    train(scheme, STEPS["partly"])
    assert mistakes(scheme.algorithm, "partly", "episodic") == 1, "after one of the two cues"
    scheme.close()
