"""A run whose environments leave files open until no others can be opened."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from storages import Storage
from storages.component.factory import Factory
from tests.support.compositions import dqn_scheme
from tests.support.open_files import files_left
from tests.support.toys import Counter


class Leaks(Counter):
    """Opens a file in each step, until it is repaired."""

    opened: list[int] = []  # noqa: RUF012 - of all copies, as they are left open
    is_repaired = False

    def step(self, action: Any) -> Any:
        if not Leaks.is_repaired:
            Leaks.opened.append(os.open(os.devnull, os.O_RDONLY))
        return super().step(action)

    @staticmethod
    def repair() -> None:
        Leaks.is_repaired = True
        while Leaks.opened:
            os.close(Leaks.opened.pop())


STORAGES: dict[str, Callable[[Path], Factory[Storage]]] = {
    "memory": lambda _: prl.ReplayBuffer.create_factory(size=100),
    "write-ahead log": lambda path: prl.ReplayBuffer.create_factory(size=100, directory=path / "run/replay"),
    "episodes": lambda path: prl.PersistentEpisodicBuffer.create_factory(size=100, directory=path / "run/replay"),
}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
@pytest.mark.parametrize("storage", STORAGES)
def test_the_error_names_the_limit_and_the_run_is_saved_and_resumes(storage: str, tmp_path: Path) -> None:
    def scheme() -> prl.Scheme:
        return dqn_scheme(
            envs=prl.VecEnv.create_factory(Leaks, env_kwargs={"length": 7}),
            storage=STORAGES[storage](tmp_path),
            algorithm={"test_every": 0},
        )

    # Modules that are imported on first use are files, too.
    Leaks.is_repaired = True
    with prl.Learner(dqn_scheme(), 20, tmp_path / "before") as learner:
        learner.run()
    Leaks.is_repaired = False
    learner = prl.Learner(scheme(), 200, tmp_path / "run")
    try:
        with files_left(60), pytest.raises(OSError, match="Too many open files") as caught:
            learner.run()
        notes = "\n".join(caught.value.__notes__)
        assert "raise that by `ulimit -n" in notes
        assert "The run is saved" in notes
    finally:
        Leaks.repair()
    steps = learner.scheme.steps
    learner.close()
    with prl.Learner.resume(tmp_path / "run", scheme=scheme()) as again:
        assert again.scheme.steps == steps > 30
        assert again.run()
