"""What holds files or processes is closed by ``with``, and as a whole even if a part of it cannot be closed."""

from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

import pytorchrl as prl
from pytorchrl.logging import MetricsWriter
from tests.support.compositions import dqn_scheme
from tests.support.toys import Counter


class Noted(Counter):
    """An environment that notes that it was closed; one whose connection was lost cannot be."""

    def __init__(self, closed: list[Any], *, is_connected: bool = True) -> None:
        super().__init__(length=5)
        self.closed, self.is_connected = closed, is_connected

    def close(self) -> None:
        self.closed.append(id(self))
        if not self.is_connected:
            raise ConnectionError("the simulator does not answer")


def on_disk(directory: Path) -> Any:
    return prl.ReplayBuffer.create_factory(size=500, directory=directory)


def steps_in(directory: Path) -> int:
    with on_disk(directory)("cpu", None, None, None) as storage:
        return len(storage)


def learner_in(folder: Path, callbacks: Any = (), log_to: Any = (), **changes: Any) -> prl.Learner:
    scheme = dqn_scheme(storage=on_disk(folder / "storage"), algorithm={"test_every": 0}, **changes)
    return prl.Learner(scheme, target_steps=60, log_dir=folder / "run", callbacks=callbacks, log_to=log_to)


def test_a_storage_is_committed_and_free_at_the_end_of_its_with_statement(tmp_path: Path) -> None:
    scheme = dqn_scheme(storage=on_disk(tmp_path / "storage"))
    with scheme.storage as storage:
        scheme.collect(60)
    # The storage still exists, and would keep its directory if it were open.
    assert steps_in(tmp_path / "storage") == len(storage) > 0
    scheme.close()


def test_a_run_is_closed_if_an_exception_ends_its_with_statement(tmp_path: Path) -> None:
    def fail(learner: prl.Learner) -> None:
        raise ArithmeticError("of a callback")

    learner = learner_in(tmp_path, callbacks=[fail])
    with pytest.raises(ArithmeticError), learner:
        learner.run()
    assert steps_in(tmp_path / "storage") == learner.scheme.steps > 0
    # Its folder is not locked any more.
    prl.Learner(dqn_scheme(), target_steps=60, log_dir=tmp_path / "run", overwrite=True).close()


def test_an_environment_that_cannot_be_closed_does_not_keep_the_rest_of_a_run_open(tmp_path: Path) -> None:
    closed: list[Any] = []
    logger = create_autospec(MetricsWriter, instance=True)
    envs = prl.VecEnv.create_factory(lambda: Noted(closed, is_connected=False), num_envs=2)
    learner = learner_in(tmp_path, envs=envs, log_to=[logger])
    learner.step()
    with pytest.raises(ConnectionError, match="does not answer"):
        learner.close()
    assert len(closed) == len(set(closed)) == 2
    logger.close.assert_called_once_with()
    assert steps_in(tmp_path / "storage") == learner.scheme.steps > 0
    prl.Learner(dqn_scheme(), target_steps=60, log_dir=tmp_path / "run", overwrite=True).close()


def test_environments_and_schemes_are_closed_by_with() -> None:
    closed: list[Any] = []
    factory = prl.VecEnv.create_factory(lambda: Noted(closed), num_envs=2)
    with factory() as envs:
        envs.reset(0)
    assert len(closed) == len(set(closed)) == 2
    closed.clear()
    with dqn_scheme(envs=factory) as scheme:
        scheme.collect(1)
    assert len(closed) == len(set(closed)) == 2
    scheme.close()
    assert len(closed) == 2, "a second call does nothing"
