"""From offline to online: a run starts with the weights of another, and mixes its data with new experience."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pytorchrl as prl
from pytorchrl.__main__ import main
from pytorchrl.commands.policies import evaluate
from pytorchrl.commands.train import train as train_command
from pytorchrl.experiments import RunFolder, collect_demonstrations
from pytorchrl.experiments.runs import checkpoint
from storages.transition import OBS, REW, SOURCE_SIZES
from tests.support import warm_interpreter
from tests.support.comparison import assert_equal
from tests.support.data_sets import recorded

PENDULUM = prl.VecEnv.create_factory("Pendulum-v1", env_kwargs={"max_episode_steps": 20})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("data") / "damped.npz", "Pendulum-v1", 200)


def sac(**changes: Any) -> Any:
    return prl.SAC.create_factory(**{"mini_batch_size": 16, "start_steps": 0, "test_every": 0} | changes)


def actor(hidden: int = 16, **changes: Any) -> Any:
    return prl.OffPolicyActor.create_factory(hidden_sizes=(hidden,), **changes)


def offline(data: Path, algorithm: Any = None, **changes: Any) -> prl.Scheme:
    storage = prl.from_dataset(prl.ReplayBuffer.create_factory(size=200), data)
    return prl.Scheme(algorithm or sac(), actor(**changes), storage, test_envs_factory=PENDULUM)


def online(data: Path, algorithm: Any = None, **changes: Any) -> prl.Scheme:
    storage = prl.ReplayBuffer.create_factory(size=200)
    return prl.Scheme(
        algorithm or sac(),
        actor(**changes),
        storage,
        PENDULUM,
        sources={"data": prl.from_dataset(storage, data)},
        mixed={"main": prl.MixedSource({"data": 0.5, "main": 0.5})},
    )


@pytest.fixture(scope="module")
def offline_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    learner = prl.Learner(offline(data), 30, tmp_path_factory.mktemp("runs") / "offline")
    assert learner.run()
    learner.close()
    return learner.log_dir


def test_a_run_of_the_same_algorithm_starts_with_the_learnt_state(data: Path, offline_run: Path) -> None:
    scheme = online(data)
    assert prl.start_from(scheme, offline_run) == ["policy", "critics"]
    saved = checkpoint.load(offline_run / "checkpoint.pt")["scheme"]["algorithm"]
    assert_equal(scheme.algorithm.get_weights(), saved["actor"])
    assert_equal(scheme.algorithm.training.state_dict(), saved["training"])
    assert scheme.algorithm.updates == 30
    assert scheme.steps == 0
    assert scheme.config["started_from"]["steps"] == 30


def test_random_numbers_are_those_of_the_new_run(data: Path, offline_run: Path) -> None:
    scheme, fresh = online(data), online(data)
    prl.start_from(scheme, offline_run)
    for ours, theirs in zip(scheme.algorithm._generators(), fresh.algorithm._generators(), strict=True):
        assert torch.equal(ours.get_state(), theirs.get_state())


def test_from_another_algorithm_only_fitting_networks_are_copied(data: Path, offline_run: Path) -> None:
    scheme = prl.Scheme(
        prl.TD3.create_factory(start_steps=0), actor(), prl.ReplayBuffer.create_factory(size=50), PENDULUM
    )
    before = scheme.algorithm.get_weights()
    assert prl.start_from(scheme, offline_run) == ["critics"], (
        "the policy of SAC has a standard deviation, that of TD3 has none"
    )
    saved = checkpoint.load(offline_run / "checkpoint.pt")["scheme"]["algorithm"]["actor"]
    for key, tensor in scheme.algorithm.get_weights().items():
        assert torch.equal(tensor, saved[key] if "critics" in key else before[key]), key
    target = scheme.algorithm.training.targets["critics"].network.state_dict()
    for key, tensor in target.items():
        assert torch.equal(tensor, saved[f"networks.critics.{key}"])


def test_a_run_can_start_from_a_file_of_weights(data: Path, offline_run: Path, tmp_path: Path) -> None:
    source = offline(data)
    learner = prl.Learner(source, 5, tmp_path / "run")
    learner.run()
    file = learner.save_policy(tmp_path / "weights.pt")
    learner.close()
    scheme = online(data)
    assert prl.start_from(scheme, file) == ["policy", "critics"]
    assert_equal(scheme.algorithm.get_weights(), source.algorithm.get_weights())


def test_the_normalisation_statistics_of_the_data_are_updated_by_collected_steps(data: Path, tmp_path: Path) -> None:
    learner = prl.Learner(offline(data, normalize_observations=True), 5, tmp_path / "run")
    learner.run()
    learner.close()
    scheme = online(data, normalize_observations=True)
    prl.start_from(scheme, tmp_path / "run")
    ours, theirs = scheme.actor.normalization, learner.scheme.actor.normalization
    assert ours is not None
    assert theirs is not None
    assert_equal(ours.state_dict(), theirs.state_dict())
    scheme.collect(4)
    assert int(ours.parts[0].count) > int(theirs.parts[0].count)  # type: ignore[arg-type]


def test_networks_of_other_shapes_and_schemes_that_have_begun_are_refused(data: Path, offline_run: Path) -> None:
    with pytest.raises(prl.CheckpointError, match=r"none of its networks \(policy, critics\) has the name and the sha"):
        prl.start_from(online(data, hidden=8), offline_run)
    scheme = online(data)
    scheme.collect(3)
    with pytest.raises(RuntimeError, match="the scheme has made 1 steps already"):
        prl.start_from(scheme, offline_run)


def test_a_run_whose_actions_had_other_bounds_is_refused_and_both_are_named(offline_run: Path) -> None:
    smaller = ("RescaleAction", {"min_action": np.float32(-1), "max_action": np.float32(1)})
    envs = prl.VecEnv.create_factory("Pendulum-v1", wrappers=[smaller])
    scheme = prl.Scheme(sac(), actor(), prl.ReplayBuffer.create_factory(size=50), envs)
    message = r"learnt actions of Box\(-2.0, 2.0, .*, but these environments have Box\(-1.0, 1.0, "
    before = scheme.algorithm.get_weights()
    with pytest.raises(prl.CheckpointError, match=message):
        prl.start_from(scheme, offline_run)
    assert_equal(scheme.algorithm.get_weights(), before)
    with pytest.raises(prl.CheckpointError, match=message):
        collect_demonstrations(offline_run, envs, path=offline_run / "unwritten.npz", steps=1)


@pytest.mark.quick_share(0.4)
@pytest.mark.parametrize("name", ["IQL", "XQL", "CQL", "AWAC", "TD3", "ReBRAC", "FQL"])
def test_algorithms_that_have_learnt_from_data_continue_with_collected_experience(
    name: str, data: Path, tmp_path: Path
) -> None:
    algorithm = getattr(prl, name).create_factory(mini_batch_size=16, start_steps=0, test_every=0)
    learner = prl.Learner(offline(data, algorithm), 5, tmp_path / "offline")
    assert learner.run()
    learner.close()
    scheme = online(data, algorithm)
    assert "critics" in prl.start_from(scheme, tmp_path / "offline")
    assert scheme.algorithm.updates == 5
    learner = prl.Learner(scheme, 10, tmp_path / "online")
    assert learner.run()
    learner.close()
    assert len(scheme.storage) == 10


def test_half_of_each_batch_comes_from_the_data(data: Path, offline_run: Path) -> None:
    scheme = online(data)
    prl.start_from(scheme, offline_run)
    scheme.collect(40)
    batch = next(iter(scheme.sources["main"].generate_batches(1, 16)))
    assert batch[SOURCE_SIZES].tolist() == [8, 8]


def test_hindsight_relabels_the_goals_of_data(tmp_path: Path) -> None:
    envs = prl.VecEnv.create_factory("pytorchrl/BitFlipping-v0", env_kwargs={"n": 8})
    random = np.random.default_rng(0)
    policy = lambda observations: random.integers(8, size=(1, 1))  # noqa: E731
    collect_demonstrations(policy, envs, path=tmp_path / "flips.npz", episodes=30)
    storage = prl.HERBuffer.create_factory(size=300, her_ratio=1.0, strategy="future")
    scheme = prl.Scheme(
        prl.DQN.create_factory(test_every=0, mini_batch_size=32),
        actor(),
        prl.from_dataset(storage, tmp_path / "flips.npz"),
        test_envs_factory=envs,
    )
    batch = next(iter(scheme.storage.generate_batches(1, 200)))
    reached = (batch[OBS]["desired_goal"] == batch["NextObservation"]["achieved_goal"]).all(-1, keepdim=True)
    assert torch.equal(batch[REW], reached.float() - 1)
    assert 0.2 < float(reached.float().mean()) < 0.9, "random flips rarely reach the original goals"
    list(scheme.update())


def test_evaluations_log_the_normalised_score_of_the_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    prl.make_dataset("Pendulum-v1", "random", Path("random.npz"), transitions=200)
    train(*OFFLINE, "--data", "random.npz", "--steps", "100", "--algorithm.num-test-episodes", "1")
    (record,) = [one for one in prl.read_metrics(Path("runs/offline/seed-1/metrics.jsonl")) if "test/return" in one]
    (score,) = [
        one["test/normalized_score"]
        for one in prl.read_metrics(Path("runs/offline/seed-1/metrics.jsonl"))
        if "test/normalized_score" in one
    ]
    assert score == pytest.approx((record["test/return"] + 1230.7) / 1230.7)
    capsys.readouterr()
    evaluate(Path("runs/offline/seed-1"), episodes=1)
    printed = capsys.readouterr().out
    assert re.search(r"Normalised score: -?\d\.\d{3}, where a return of -1230.7 is 0 and of 0 is 1", printed)
    with pytest.raises(ValueError, match="NormalizedScore: high must be above low, got low=1 and high=1"):
        prl.NormalizedScore(1.0, 1.0)


COMMON = ["--seeds", "1", "--actor.hidden-sizes", "16", "--algorithm.mini-batch-size", "16", "--algorithm.test-every"]
OFFLINE = ["--algorithm", "sac", "--env", "Pendulum-v1", "--no-preset", *COMMON, "100", "--log-dir", "runs/offline"]
ONLINE = ["--from", "runs/offline/seed-1", "--online", "--seeds", "1", "--log-dir", "runs/online"]


def train(*arguments: str) -> None:
    train_command(arguments)


@pytest.mark.long
def test_the_command_line_trains_on_data_and_then_online(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    train(*OFFLINE, "--data", str(data), "--steps", "20", "--select", "SelectEpisodes(best_share=0.5)")
    printed = capsys.readouterr().out
    assert "without collecting" in printed
    assert "0 of 20 updates" in printed
    best_half = prl.from_dataset(
        prl.ReplayBuffer.create_factory(size=100), data, select=prl.SelectEpisodes(best_share=0.5)
    )
    assert RunFolder("runs/offline/seed-1").read_config()["storage"] == best_half.config
    train(*ONLINE, "--data", str(data), "--steps", "30", "--data-share", "0.25")
    printed = capsys.readouterr().out
    assert "From runs/offline/seed-1: policy, critics" in printed
    config = RunFolder("runs/online/seed-1").read_config()
    assert config["algorithm"]["hyper_parameters"]["mini_batch_size"] == 16
    assert config["algorithm"]["hyper_parameters"]["start_steps"] == 0
    assert config["mixed"]["main"]["hyper_parameters"]["shares"] == {"data": 0.25, "main": 0.75}
    assert config["started_from"]["run"] == "runs/offline/seed-1"
    train(*ONLINE, "--data", str(data), "--steps", "40", "--data-share", "0.25")
    assert prl.read_metrics(Path("runs/online/seed-1/metrics.jsonl"))[-1]["steps"] == 40
    monkeypatch.setattr(
        sys, "argv", ["pytorchrl", "resume", "runs/offline/seed-1", "--data", str(data), "--target-steps", "25"]
    )
    main()
    assert "25 of 25 updates" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--online"], "no data set is given for --online; name one by --data"),
        (["--data", "x.npz", "--data-share", "0.5"], "add --online"),
        (["--data", "x.npz", "--online", "--data-share", "1"], "--data-share must lie between 0 and 1, got 1"),
        (["--data", "x.npz", "--select", "0.1"], "--select must be a setting such as 'SelectEpisodes"),
    ],
)
def test_invalid_data_options_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(prl.CompositionError, match=message):
        train(*OFFLINE, *arguments)


ROWS = 200
SMALL = ["--env", "Pendulum-v1", "--actor.hidden-sizes", "8", "--algorithm.test-every", "0", "--log-dir", "runs/shown"]


@pytest.mark.parametrize(
    ("algorithm", "source"), [("gail", "expert"), ("airl", "expert"), ("amp", "expert"), ("ppod", "demonstrations")]
)
def test_the_command_line_gives_demonstrations_beside_rollouts(
    algorithm: str,
    source: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    train("--algorithm", algorithm, *SMALL, "--storage.size", "50", "--data", str(data), "--steps", "100")
    printed = capsys.readouterr().out
    assert f"as the source '{source}'" in printed
    assert "0 of 100 steps" in printed
    config = RunFolder("runs/shown/seed-1").read_config()
    shown = prl.from_dataset(prl.ReplayBuffer.create_factory(size=ROWS), data)
    assert config["sources"][source] == shown.config
    assert config["storage"] == prl.GAEBuffer.create_factory(size=50).config
    others = {name: part for name, part in config["sources"].items() if name not in (source, "main")}
    assert others == ({"repeated": config["storage"]} if algorithm == "ppod" else {})


def test_demonstrations_are_drawn_as_sequences_by_an_actor_with_a_memory(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    memory = ["--actor.memory", "gru", "--actor.memory-size", "8", "--storage.sequence-length", "10"]
    train("--algorithm", "gail", *SMALL, *memory, "--storage.size", "50", "--data", str(data), "--steps", "100")
    storage = RunFolder("runs/shown/seed-1").read_config()["sources"]["expert"]
    assert storage["hyper_parameters"]["sequences"] == prl.Sequences(20, burn_in=10).config


@pytest.mark.parametrize(
    ("algorithm", "arguments", "message"),
    [
        ("gail", [], "GAIL learns from a data set; name one by --data"),
        ("behaviour-cloning", [], "BehaviourCloning learns from a data set; name one by --data"),
        ("gail", ["--data", "x.npz", "--online"], "GAIL always learns from the environments' transitions, too; leave"),
        (
            "behaviour-cloning",
            ["--data", "x.npz", "--online"],
            "BehaviourCloning learns from the data set alone; leave",
        ),
    ],
)
def test_the_data_options_that_an_algorithm_needs_are_named(algorithm: str, arguments: list[str], message: str) -> None:
    with pytest.raises(prl.CompositionError, match=message):
        train("--algorithm", algorithm, *SMALL, *arguments)


@pytest.mark.long
def test_a_run_killed_in_offline_and_online_training_equals_the_run_without_kills(data: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    halves = {
        "offline": [*OFFLINE, "--data", str(data), "--steps", "300", "--checkpoint-every", "30"],
        "online": [*ONLINE, "--data", str(data), "--steps", "300", "--checkpoint-every", "30"],
    }

    def command(half: str) -> list[str]:
        return ["-m", "pytorchrl", "train", *halves[half]]

    def killed(half: str, folder: Path, at: int) -> None:
        process = subprocess.Popen(
            [sys.executable, *command(half)], cwd=folder, stdout=subprocess.DEVNULL, env=environment
        )
        file = folder / "runs" / half / "seed-1" / "checkpoint.pt"
        deadline = time.monotonic() + 120
        while not file.exists() or checkpoint.load(file)["scheme"]["collector"]["steps"] < at:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()

    states: dict[str, Any] = {}
    for name, kills in (("whole", ()), ("killed", (60, 180))):
        folder = tmp_path / name
        folder.mkdir()
        for half in halves:
            for at in kills:
                killed(half, folder, at)
            finished = warm_interpreter.run(command(half), folder)
            assert finished.returncode == 0, finished.stderr
        states[name] = [
            checkpoint.load(folder / "runs" / half / "seed-1" / "checkpoint.pt")["scheme"] for half in halves
        ]
    assert_equal(states["killed"], states["whole"])
