"""Runs in several threads of one process, as Optuna's ``n_jobs`` makes them."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import gymnasium as gym
import pytest
import torch
import torch.distributions as td
from torch import Tensor, nn

import pytorchrl as prl
import storages
from pytorchrl.agent.global_generators import random_functions
from tests.support.comparison import assert_equal
from tests.support.training import train

ROUNDS = 3
SETS_GENERATORS = re.compile(
    r"set_rng_state|torch\.(random\.|cuda\.)?(manual_seed|seed|initial_seed)\(|fork_rng|default_generator"
    r"|np\.random\.(seed|set_state)|\brandom\.(seed|setstate)\("
)


class Dropout(nn.Module):
    """A network of a user, which draws from torch's global generator in updates."""

    def __init__(self, space: gym.Space[Any]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.5))

    def forward(self, observation: Tensor) -> Tensor:
        features: Tensor = self.layers(observation)
        return features


class Student(prl.heads.DistributionHead):
    """A policy with a distribution of torch, which takes no generator."""

    def build(self, features: int, actor: Any) -> nn.Module:
        return _Student(actor.linear(features, 1))


class _Student(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> prl.outputs.TorchDistribution:
        return prl.outputs.TorchDistribution(td.Independent(td.StudentT(3.0, self.layer(features)), 1))


def ppo(seed: int, distribution: Any = None, **actor: Any) -> prl.Scheme:
    chosen = {} if distribution is None else {"distribution": distribution}
    return prl.Scheme(
        prl.PPO.create_factory(num_epochs=2, num_mini_batch=2, test_every=0, **chosen),
        prl.OnPolicyActor.create_factory(hidden_sizes=(8,), **actor),
        prl.GAEBuffer.create_factory(size=16),
        prl.VecEnv.create_factory("Pendulum-v1"),
        seed=seed,
    )


def sac(seed: int) -> prl.Scheme:
    return prl.Scheme(
        prl.SAC.create_factory(start_steps=20, mini_batch_size=8, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,), dropout=0.1),
        prl.ReplayBuffer.create_factory(size=100),
        prl.VecEnv.create_factory("Pendulum-v1"),
        seed=seed,
    )


MADE: dict[str, Callable[[int], prl.Scheme]] = {
    "sac": sac,
    "beta": lambda seed: ppo(seed, prl.heads.BetaPolicy()),
    "distribution of torch": lambda seed: ppo(seed, Student()),
    "dropout of torch": lambda seed: ppo(seed, feature_extractor=Dropout),
}


def result_of(made: Callable[[int], prl.Scheme], seed: int) -> Any:
    with made(seed) as scheme:
        before = {name: value.clone() for name, value in scheme.algorithm.get_weights().items()}
        return before, train(scheme, 64).algorithm.get_weights()


@pytest.fixture
def often_interrupted() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.long
@pytest.mark.usefixtures("often_interrupted")
@pytest.mark.parametrize("name", MADE)
def test_runs_in_threads_are_those_of_their_seeds(name: str) -> None:
    made, seeds = MADE[name], (1, 2, 3)
    alone = {seed: result_of(made, seed) for seed in seeds}
    of_user = torch.get_rng_state()
    for _ in range(ROUNDS):
        found: dict[int, Any] = {}
        start = Barrier(len(seeds))

        def run(seed: int, found: dict[int, Any] = found, start: Barrier = start) -> None:
            start.wait()
            found[seed] = result_of(made, seed)

        threads = [Thread(target=run, args=(seed,)) for seed in seeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert_equal(found, alone)
    assert torch.equal(torch.get_rng_state(), of_user)


def test_global_generators_are_set_under_one_lock_or_in_processes_of_a_run() -> None:
    found = {
        file.name
        for package in (prl, storages)
        for file in Path(package.__file__).parent.rglob("*.py")
        if SETS_GENERATORS.search(file.read_text())
    }
    assert found == {"global_generators.py"}


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "mps", "xpu:0"])
def test_functions_of_each_kind_of_device_take_the_arguments_given(device: str) -> None:
    functions, where = random_functions(torch.device(device))
    inspect.signature(functions.get_rng_state).bind(*where)
    inspect.signature(functions.set_rng_state).bind(torch.empty(0), *where)
