"""Offline algorithms reach higher returns than their data, which mixes good and bad episodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from examples import bcq_pendulum
from pytorchrl.experiments import collect_demonstrations
from pytorchrl.scheme.evaluation import evaluate
from storages.datasets import open_dataset, return_of
from tests.support.data_sets import balance
from tests.support.profiles import FULL
from tests.support.training import train

PENDULUM: dict[str, tuple[Any, dict[str, Any]]] = {
    "TD3BC": (prl.TD3BC, {"alpha": 1.0}),
    "ReBRAC": (prl.ReBRAC, {"policy_penalty": 0.2, "critic_penalty": 0.5}),
    "FQL": (prl.FQL, {"lr_flow": 1e-3, "alpha": 1.0}),
    "CQL": (prl.CQL, {"num_samples": 3, "conservative_weight": 1.0}),
    "CQL, Lagrange multiplier": (prl.CQL, {"num_samples": 3, "lagrange_threshold": 1.0}),
    "CalQL": (prl.CalQL, {"num_samples": 3, "conservative_weight": 1.0}),
    "IQL": (prl.IQL, {"lr_value": 1e-3, "inverse_temperature": 1.0}),
    "XQL": (prl.XQL, {"lr_value": 1e-3, "inverse_temperature": 1.0}),
    "AWAC": (prl.AWAC, {"temperature": 1.0, "mini_batch_size": 256}),
    "CRR": (prl.CRR, {}),
    "CRR, binary": (prl.CRR, {"weighting": "binary"}),
    "EDAC": (prl.EDAC, {"num_critics": 4, "lr_alpha": 1e-3}),
}

RESEMBLING = ("CQL, Lagrange multiplier", "CalQL", "CRR, binary", "XQL", "AWAC", "EDAC")
"""Variants of others, or with another weighting of the same data; quick runs leave them out."""


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    arguments = bcq_pendulum.Arguments(log_dir=tmp_path_factory.mktemp("data"))
    return bcq_pendulum.data_of(arguments)


def mean_return(scheme: prl.Scheme, env: str) -> float:
    envs = prl.VecEnv.create_factory(env, num_envs=20)()
    evaluation = evaluate(scheme.algorithm, envs, 20, np.random.SeedSequence(7))
    envs.close()
    return evaluation.mean_return


def behaviour_return(data: Path) -> float:
    return float(np.mean([return_of(episode) for episode in open_dataset(data)]))


@pytest.mark.quick_share(0, long=0.5)
@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param(name, marks=FULL) if name in RESEMBLING else name for name in PENDULUM])
def test_returns_on_the_pendulum_are_higher_than_those_of_the_data(name: str, pendulum: Path) -> None:
    cls, settings = PENDULUM[name]
    common = {"lr_pi": 1e-3, "lr_q": 1e-3, "mini_batch_size": 128, "test_every": 0}
    scheme = prl.Scheme(
        cls.create_factory(**common | settings),
        prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64)),
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=20_000), pendulum),
        test_envs_factory=prl.VecEnv.create_factory("Pendulum-v1"),
        seed=1,
    )
    train(scheme, 3_000)
    # Returns are costs, below 0.
    assert mean_return(scheme, "Pendulum-v1") > 0.7 * behaviour_return(pendulum)


@pytest.mark.long
def test_discrete_cql_balances_a_pole_that_the_data_drops(tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def half_random(obs: Any) -> Any:
        # Half of the actions are random.
        return np.where(random.random((len(obs), 1)) < 0.5, random.integers(0, 2, (len(obs), 1)), balance(obs))

    envs, data = prl.VecEnv.create_factory("CartPole-v1"), tmp_path / "data.npz"
    collect_demonstrations(half_random, envs, path=data, steps=5_000, seed=0)
    scheme = prl.Scheme(
        prl.DiscreteCQL.create_factory(lr=1e-3, mini_batch_size=128, test_every=0, conservative_weight=0.5),
        prl.OffPolicyActor.create_factory(hidden_sizes=(64, 64)),
        prl.from_dataset(prl.ReplayBuffer.create_factory(size=6_000), data),
        test_envs_factory=envs,
        seed=1,
    )
    train(scheme, 3_000)
    assert mean_return(scheme, "CartPole-v1") > 2 * behaviour_return(data)
