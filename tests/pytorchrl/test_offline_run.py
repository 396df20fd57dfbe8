"""A run without environments to train in counts updates, and is shown, stopped and resumed like any other."""

from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from pytorchrl.experiments import collect_demonstrations
from pytorchrl.experiments.inspection.overview import CheckpointDataset, inspect_storage
from pytorchrl.experiments.runs.composition import load_agent
from pytorchrl.logging.curves import read_run
from pytorchrl.logging.groups import grouped, title, unit
from pytorchrl.scheme import from_dataset
from tests.support.comparison import assert_equal
from tests.support.compositions import ppo_scheme

CLOCKS = ("seconds", "speed/steps_per_second")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "episodes.npz"
    scheme = ppo_scheme()
    collect_demonstrations(scheme.algorithm, scheme.envs, path=path, steps=100)
    scheme.close()
    return path


def cloning(data: Path, directory: Path | None = None, **changes: Any) -> prl.Scheme:
    storage = prl.ReplayBuffer.create_factory(size=200, **({} if directory is None else {"directory": directory}))
    return prl.Scheme(
        prl.BehaviourCloning.create_factory(mini_batch_size=16, test_every=20, num_test_episodes=2),
        prl.OffPolicyActor.create_factory(hidden_sizes=(8,)),
        from_dataset(storage, data),
        test_envs_factory=prl.VecEnv.create_factory("CartPole-v1"),
        **changes,
    )


def records(folder: Path) -> list[dict[str, float]]:
    return [
        {k: v for k, v in record.items() if k not in CLOCKS} for record in prl.read_metrics(folder / "metrics.jsonl")
    ]


def test_the_steps_of_an_offline_run_are_shown_as_updates(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = prl.Learner(cloning(data), 50, tmp_path / "run", log_every=10)
    assert learner.run()
    learner.print_info()
    learner.close()
    printed = capsys.readouterr().out
    assert "50 of 50 updates" in printed
    assert "updates/s" in printed
    assert " steps" not in printed
    measured = records(learner.log_dir)
    assert [record["steps"] for record in measured if "losses/loss" in record] == [10, 20, 30, 40, 50]
    assert [record["steps"] for record in measured if "test/return" in record] == [20, 40, 50]
    assert learner.scheme.algorithm.updates == 50
    run = read_run(learner.log_dir)
    assert unit(grouped([run])) == "updates"
    assert title(grouped([run])) == "BehaviourCloning on CartPole-v1"


def test_a_stopped_offline_run_prints_its_updates_and_how_to_continue(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = prl.Learner(cloning(data), 50, tmp_path / "run", log_every=10)
    monkeypatch.setattr(learner._interruption, "is_requested", lambda: learner.scheme.steps >= 27)
    assert not learner.run()
    learner.close()
    stopped = f"Stopped at 27 of 50 updates; continue with\n  {learner.resume_command}\n"
    assert stopped in capsys.readouterr().out
    resumed = prl.Learner.resume(tmp_path / "run", scheme=cloning(data))
    assert resumed.scheme.steps == 27
    assert resumed.run()
    resumed.close()


def test_an_error_in_an_offline_run_reports_the_number_of_saved_updates(data: Path, tmp_path: Path) -> None:
    learner = prl.Learner(cloning(data), 50, tmp_path / "run")
    while learner.scheme.steps < 10:
        learner.step()
    learner.save_checkpoint()
    learner.scheme.algorithm.losses = lambda rows: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(ZeroDivisionError) as error:
        learner.run()
    learner.close()
    assert any("as of 10 of 50 updates" in note for note in error.value.__notes__)


def test_the_storage_of_an_offline_run_on_disk_is_inspected_and_its_agent_is_loaded(data: Path, tmp_path: Path) -> None:
    learner = prl.Learner(cloning(data, tmp_path / "run" / "replay"), 20, tmp_path / "run")
    learner.run()
    learner.close()
    inspection = inspect_storage(tmp_path / "run")
    assert inspection.steps == inspection.inserted_steps == len(learner.scheme.storage)
    algorithm, envs = load_agent(tmp_path / "run")
    assert type(algorithm) is prl.BehaviourCloning
    assert_equal(algorithm.state_dict(), learner.scheme.algorithm.state_dict())
    assert (algorithm.steps, algorithm.target_steps) == (20, 20)
    assert (envs.num_envs, envs.action_space) == (1, learner.scheme.algorithm.action_space)
    envs.close()


def test_the_command_that_shows_a_runs_data_set_names_its_path(data: Path, tmp_path: Path) -> None:
    moved = tmp_path / "all my data.npz"
    moved.write_bytes(data.read_bytes())
    learner = prl.Learner(cloning(moved), 20, tmp_path / "run")
    learner.run()
    learner.close()
    for reader in (inspect_storage, CheckpointDataset):
        with pytest.raises(RuntimeError, match=f"python -m pytorchrl data show '{moved}'"):
            reader(tmp_path / "run")


@pytest.mark.parametrize(
    ("algorithm", "collects", "warned"),
    [(prl.DQN, False, True), (prl.DQN, True, False), (prl.DiscreteBCQ, False, False), (prl.DiscreteCQL, False, False)],
)
def test_a_run_warns_that_its_algorithm_is_not_made_for_data_alone(
    algorithm: Any, collects: bool, warned: bool, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    envs = prl.VecEnv.create_factory("CartPole-v1")
    scheme = prl.Scheme(
        algorithm.create_factory(mini_batch_size=4, test_every=0),
        prl.OffPolicyActor.create_factory(hidden_sizes=(4,)),
        from_dataset(prl.ReplayBuffer.create_factory(size=200), data),
        envs if collects else None,
    )
    prl.Learner(scheme, 2, tmp_path / "run").close()
    printed = capsys.readouterr().out
    assert ("overestimates actions that the data lack" in printed) == warned
    assert ("DiscreteBCQ or DiscreteCQL keeps to the data; or collect beside them" in printed) == warned


@pytest.mark.parametrize("name", ["SAC", "TD3", "DDPG", "DQN", "QRDQN", "NAF", "MPO", "SACDiscrete"])
def test_plain_algorithms_are_not_taken_for_ones_that_are_made_for_data(name: str) -> None:
    assert not getattr(prl, name).constrained_to_data


@pytest.mark.parametrize("name", ["TD3BC", "IQL", "XQL", "CQL", "CalQL", "AWAC", "CRR", "BCQ", "BEAR", "EDAC", "FQL"])
def test_algorithms_that_are_made_for_data_say_so(name: str) -> None:
    assert getattr(prl, name).constrained_to_data
