"""Environments that draw from NumPy's, Python's and torch's global generators, in all processes that a run starts."""

import os
import random
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
import storages
from pytorchrl.agent.global_generators import seed_process, seeding_processes, seeds_of_processes
from pytorchrl.commands.sweeps.trials import Trial
from pytorchrl.commands.sweeps.trials import train as train_trial
from tests.support.compositions import dqn_scheme
from tests.support.global_numbers import (
    COMPARED,
    DrawsGlobally,
    assert_seeded_apart,
    disturb_generators,
    drawn_by_processes,
)
from tests.support.hogwild import a3c
from tests.support.toys import Noise
from tests.support.training import train

SOURCES = [Path(package.__file__).parent for package in (prl, storages)]
STARTS_PROCESSES = re.compile(r"\bProcess\(|\bPopen\(|\bray\.remote\(|\bos\.fork\(|\(AsyncVectorEnv\)|PoolExecutor\(")
ENV = """
import gymnasium
from tests.support.global_numbers import DrawsGlobally
# The process that starts trials imports the module of each, as their commands are checked there.
gymnasium.registry.pop("DrawsGlobally-v0", None)
gymnasium.register("DrawsGlobally-v0", DrawsGlobally, kwargs={"folder": FOLDER})
"""


def envs_of(folder: Path, mode: Any = "sync", num_envs: int = 2) -> Any:
    return prl.VecEnv.create_factory(DrawsGlobally, num_envs, mode=mode, env_kwargs={"folder": str(folder)})


def asynchronous(folder: Path, seed: int) -> None:
    train(dqn_scheme(envs=envs_of(folder, "async"), algorithm={"test_every": 0}, seed=seed), 40).close()


def overlapped(folder: Path, seed: int, mode: str) -> None:
    collection = prl.Overlapped(1, processes=2)
    scheme = dqn_scheme(envs=envs_of(folder, mode), collection=collection, algorithm={"test_every": 0}, seed=seed)
    train(scheme, 40).close()


def hogwild(folder: Path, seed: int) -> None:
    # How many steps each process makes depends on its speed.
    scheme = prl.HogwildScheme(**a3c(train_envs_factory=envs_of(folder, num_envs=1)), processes=2, seed=seed)
    while sum(map(len, drawn_by_processes(folder, but=os.getpid()))) < 2 * COMPARED:
        train(scheme, scheme.steps + 40)
    scheme.close()


def evaluation(folder: Path, seed: int) -> None:
    scheme = prl.Scheme(
        prl.DQN.create_factory(),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        prl.ReplayBuffer.create_factory(size=100),
        train_envs_factory=prl.VecEnv.create_factory(Noise),
        test_envs_factory=envs_of(folder, "async"),
        seed=seed,
    )
    scheme.evaluate(2)
    scheme.close()


WAYS: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "asynchronous environments": (asynchronous, 2),
    "overlapped collection": (partial(overlapped, mode="sync"), 2),
    # The collectors make an environment of their own for its spaces.
    "asynchronous environments in overlapped collection": (partial(overlapped, mode="async"), 4),
    "Hogwild": (hogwild, 2),
    "evaluation": (evaluation, 2),
}
"""Makes a run, and the number of its processes."""


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_each_process_draws_numbers_of_its_own_that_follow_from_the_seed_of_the_run(way: str, tmp_path: Path) -> None:
    run, processes = WAYS[way]
    runs = {}
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        disturb_generators()
        folder = tmp_path / name
        folder.mkdir()
        run(folder, seed)
        runs[name] = drawn_by_processes(folder, but=os.getpid())
    assert_seeded_apart(runs, processes)


@pytest.mark.long
def test_trials_of_a_sweep_draw_numbers_that_follow_from_their_seeds(tmp_path: Path) -> None:
    runs = {}
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        folder, module = tmp_path / name, tmp_path / f"{name}.py"
        folder.mkdir()
        module.write_text(ENV.replace("FOLDER", repr(str(folder))))
        options = [f"--import={module}", "--algorithm=DQN", "--env=DrawsGlobally-v0", "--steps=20", "--no-preset"]
        assert train_trial(Trial({}, seed, tmp_path / f"trial-{name}"), [*options, "--algorithm.test-every=0"]) == 0
        runs[name] = drawn_by_processes(folder)
    assert_seeded_apart(runs, processes=1)


def test_environments_without_a_run_follow_from_the_generators_of_their_maker(
    tmp_path: Path,
) -> None:
    def drawn(name: str, seed: int) -> Any:
        folder = tmp_path / name
        folder.mkdir()
        seed_process(np.random.SeedSequence(seed))
        with prl.VecEnv(DrawsGlobally, 2, mode="async", env_kwargs={"folder": str(folder)}) as envs:
            envs.reset(seed=0)
            for _ in range(4):
                envs.step(np.zeros((2, 1), np.int64))
        return drawn_by_processes(folder, but=os.getpid())

    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        one, other = drawn("one", 1), drawn("other", 2)
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
    assert len({draw for run in (one, other) for process in run for draw in process}) == 16


def test_the_generators_of_the_users_process_are_not_drawn_from(tmp_path: Path) -> None:
    before = random.getstate(), str(np.random.get_state()), torch.get_rng_state()  # noqa: NPY002
    with prl.VecEnv("CartPole-v1", 2, mode="async") as envs:
        envs.reset(seed=0)
    after = random.getstate(), str(np.random.get_state()), torch.get_rng_state()  # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def test_groups_of_processes_have_seeds_of_their_own() -> None:
    with seeding_processes(np.random.SeedSequence(3)):
        seeds = [*seeds_of_processes(2), *seeds_of_processes(2)]
    seeds += [*seeds_of_processes(2), *seeds_of_processes(2)]
    assert len({tuple(seed.generate_state(4).tolist()) for seed in seeds}) == 8
    with seeding_processes(np.random.SeedSequence(3)):
        again = seeds_of_processes(2)
    assert [str(seed) for seed in again] == [str(seed) for seed in seeds[:2]]


def test_no_other_module_starts_processes_than_those_whose_processes_are_seeded() -> None:
    found = {
        file.relative_to(folder).as_posix()
        for folder in SOURCES
        for file in folder.rglob("*.py")
        if STARTS_PROCESSES.search(file.read_text().replace("ThreadPoolExecutor(", ""))
    }
    assert found == {
        "agent/envs/copies/processes.py",
        "commands/sweeps/trials.py",
        "scheme/distributed/ray_shards.py",
        "scheme/distributed/workers.py",
        "scheme/overlap/forked_process.py",
    }
