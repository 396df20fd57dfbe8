"""Collectors that die are replaced; exceptions of collectors are shown."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import pytorchrl as prl
from storages.transition import DONE, OBS, OBS2
from tests.support.toys import Counter
from tests.support.training import train

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def dqn(communication: Any, env: Any = "CartPole-v1") -> prl.RayScheme:
    return prl.RayScheme(
        algo_factory=prl.DQN.create_factory(start_steps=24, update_every=8, mini_batch_size=8, test_every=0),
        actor_factory=prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        storage_factory=prl.ReplayBuffer.create_factory(size=4_000),
        train_envs_factory=prl.VecEnv.create_factory(env),
        num_collectors=2,
        communication=communication,
        slice_steps=10,
    )


def process_of(worker: Any) -> int:
    return os.getpid()


class Breaks(Counter):
    def step(self, action: Any) -> Any:
        if self.count == 7:
            raise ZeroDivisionError("the engine has stopped")
        return super().step(action)


class FailsAtStep(Counter):
    """Fails in its 35th step, in the first workers to make it, until it is repaired."""

    def __init__(self, marks: str, failing: int) -> None:
        super().__init__(length=9)
        self.marks, self.failing, self.steps = Path(marks), failing, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 35 and not (self.marks / "repaired").exists() and self._is_among_the_first():
            raise ConnectionError("the game server has gone")
        return super().step(action)

    def _is_among_the_first(self) -> bool:
        for number in range(self.failing):
            with suppress(FileExistsError):
                (self.marks / f"failed-{number}").touch(exist_ok=False)
                return True
        return False


def fails_to_be_made(marks: str) -> Counter:
    if Path(marks).exists():
        raise FileNotFoundError("there is no level 3")
    Path(marks).touch()
    return Counter()


@pytest.mark.parametrize("communication", ["synchronous", "asynchronous"])
def test_a_killed_collector_is_replaced_and_the_run_reports_it(
    communication: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(dqn(communication), target_steps=400, log_dir=tmp_path, log_every=100)
    scheme = learner.scheme
    assert isinstance(scheme, prl.RayScheme)
    while scheme.steps < 100:
        learner.step()
    os.kill(scheme.ask_worker(1, process_of), signal.SIGKILL)
    before = len(scheme.storage)
    assert learner.run()
    assert "collector 1 died and was replaced" in capsys.readouterr().out
    assert learner.get_metrics()["train/workers_replaced"] == 1
    data = scheme.storage.get_all_buffer_data()
    learner.close()
    assert len(data[OBS]) * scheme.storage.num_envs >= 400 > before, "no inserted transition is lost"


def test_the_episode_of_a_killed_collector_is_cut_at_its_last_step(tmp_path: Path) -> None:
    scheme = dqn("synchronous", env=lambda: Counter(length=1_000))
    train(scheme, 60)
    os.kill(scheme.ask_worker(1, process_of), signal.SIGKILL)
    train(scheme, 120)
    data = scheme.storage.get_all_buffer_data()
    scheme.close()
    count = data[OBS][:, :, 0].numpy()
    assert np.array_equal(count[:, 0], np.arange(60)), "the other collector continues its episode"
    assert np.array_equal(count[:, 1], np.r_[np.arange(30), np.arange(30)]), (
        "the replaced collector starts a new episode"
    )
    assert data[DONE][30].flatten().tolist() == [0, 1]
    assert data[OBS2][29, 1, 0] == 30, "the next observation of the last step is known"


@pytest.mark.parametrize("communication", ["synchronous", "asynchronous"])
def test_an_exception_of_an_environment_ends_the_run_with_its_traceback(communication: Any, tmp_path: Path) -> None:
    learner = prl.Learner(dqn(communication, env=lambda: Breaks(length=9)), target_steps=400, log_dir=tmp_path)
    with pytest.raises(ZeroDivisionError, match=r"(?s)in step\n.*the engine has stopped"):
        learner.run()
    learner.close()


@pytest.mark.parametrize(
    "workers",
    [
        {"num_collectors": 2},
        {"num_collectors": 2, "communication": "asynchronous"},
        {"num_gradient_workers": 2},
        {"num_gradient_workers": 2, "communication": "asynchronous"},
    ],
    ids=str,
)
@pytest.mark.parametrize("failing", [1, 2])
def test_a_run_is_saved_however_many_workers_fail_and_resumes(
    workers: dict[str, Any], failing: int, tmp_path: Path
) -> None:
    def scheme() -> prl.RayScheme:
        return prl.RayScheme(
            prl.IMPALA.create_factory(test_every=0),
            prl.OnPolicyActor.create_factory(hidden_sizes=(8,)),
            prl.VTraceBuffer.create_factory(size=10),
            prl.VecEnv.create_factory(FailsAtStep, env_kwargs={"marks": str(tmp_path), "failing": failing}),
            **workers,
        )

    learner = prl.Learner(scheme(), 400, tmp_path / "run")
    with pytest.raises(ConnectionError, match="the game server has gone") as caught:
        learner.run()
    assert "The run is saved" in "\n".join(caught.value.__notes__)
    steps = learner.scheme.steps
    learner.close()
    (tmp_path / "repaired").touch()
    again = prl.Learner.resume(tmp_path / "run", scheme=scheme())
    assert again.scheme.steps >= steps >= 20
    assert again.run()
    again.close()


def test_environments_that_cannot_be_created_end_the_run_with_their_traceback(tmp_path: Path) -> None:
    scheme = dqn("asynchronous", env=lambda: fails_to_be_made(str(tmp_path / "one")))
    with pytest.raises(prl.WorkerDiedError, match=r"(?s)could not be made.*there is no level 3"):
        train(scheme, 40)
    scheme.close()


MODULE_OF_THE_SCRIPT = """
import pytorchrl as prl
from tests.support.toys import Counter

class Homemade(Counter):
    pass

class OwnBuffer(prl.ReplayBuffer):
    pass
"""


@pytest.fixture
def homemade(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that only this process can import."""
    module = ModuleType("homemade")
    monkeypatch.setitem(sys.modules, "homemade", module)
    exec(MODULE_OF_THE_SCRIPT, vars(module))
    return module


@pytest.mark.parametrize("kind", ["num_collectors", "num_gradient_workers", "num_replay_shards"])
def test_a_module_that_workers_cannot_import_is_named_with_the_way_out(kind: str, homemade: ModuleType) -> None:
    of_storage = kind == "num_replay_shards"
    with pytest.raises(RuntimeError) as caught:
        train(
            prl.RayScheme(
                prl.DQN.create_factory(start_steps=24, update_every=8, mini_batch_size=8, test_every=0),
                prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
                (homemade.OwnBuffer if of_storage else prl.ReplayBuffer).create_factory(size=4_000),
                prl.VecEnv.create_factory(Counter if of_storage else homemade.Homemade),
                **{kind: 1},
            ),
            40,
        )
    message = str(caught.value)
    assert "cannot import the module 'homemade'" in message
    assert " on machine " in message
    assert "PYTHONPATH" in message
    assert 'runtime_env={"py_modules": [homemade]}' in message
    assert len(message) < 500, "without the traceback of Ray, which is that of the cause"
