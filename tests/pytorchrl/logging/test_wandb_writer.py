"""wandb: the user's settings apply, a run never waits for a login or a server, and logged values arrive."""

import json
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import wandb

import pytorchrl as prl
from pytorchrl.logging import WandbWriter, make_writers
from pytorchrl.logging import wandb_writer as module
from tests.support.compositions import dqn_scheme
from tests.support.reported_runs import GIF
from tests.support.run_folders import composition
from tests.support.wandb_files import config_of, history, recorded, run_files, start, summary_of, tables_of

pytestmark = pytest.mark.usefixtures("no_wandb_settings")

KEY = "0123456789" * 4


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "cartpole"
    folder.mkdir()
    return folder


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(url: str, **_: object) -> None:
        pytest.fail(f"{url} was asked")

    monkeypatch.setattr(module, "urlopen", refuse)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A server of the user that answers only with errors; yields the requested paths."""
    asked: list[str] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Refusing) as http:
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{http.server_port}")
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield asked
        finally:
            http.shutdown()
            thread.join()


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes in which runs would be started; instead, all are started in the disabled mode."""
    started: list[str] = []
    start: Callable[..., wandb.Run] = wandb.init

    def init(**arguments: Any) -> wandb.Run:
        started.append(arguments["mode"])
        return start(**arguments | {"mode": "disabled"})

    monkeypatch.setattr(wandb, "init", init)
    return started


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of the package to the user, without the log of wandb."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("pytorchrl") and record.levelno >= logging.WARNING
    ]


@pytest.mark.long
def test_without_settings_a_run_is_logged_into_its_folder_without_network(
    log_dir: Path, no_network: None, caplog: pytest.LogCaptureFixture
) -> None:
    (writer,) = make_writers(["wandb"], log_dir, {"seed": 3, "algorithm": {"name": "DQN", "hyper_parameters": {}}})
    writer.write(100, {"train/return": 1.5, "losses/q": 0.25})
    # Training and evaluation log at the same step, and a resumed run at earlier ones.
    writer.write(100, {"test/return": 2.5})
    writer.write(50, {"train/return": 3.5})
    writer.close()
    (path,) = run_files(log_dir)
    assert history(path) == [
        {"steps": 100, "train/return": 1.5, "losses/q": 0.25},
        {"steps": 100, "test/return": 2.5},
        {"steps": 50, "train/return": 3.5},
    ]
    run = start(path)
    assert run.display_name == "DQN-seed-3"
    assert run.run_id == (log_dir / "wandb_run_id.txt").read_text().strip()
    assert config_of(path) == {"seed": 3, "algorithm": "DQN"}
    metrics = [record.metric for record in recorded(path) if record.WhichOneof("record_type") == "metric"]
    assert ("*", "steps") in [(metric.glob_name, metric.step_metric) for metric in metrics]
    assert warnings(caplog) == []


@pytest.mark.long
def test_a_run_has_a_project_a_group_of_its_seeds_a_name_and_tags(tmp_path: Path) -> None:
    runs = []
    for seed, lr in ((1, 0.1), (2, 0.1), (3, 0.2)):
        folder = tmp_path / f"seed-{seed}"
        folder.mkdir()
        config = composition("PPO", env="CartPole-v1", storage="GAEBuffer", seed=seed, settings={"lr": lr})
        WandbWriter(folder, config, options={"tags": ("first",)}).close()
        (path,) = run_files(folder)
        runs.append(start(path))
    assert [run.display_name for run in runs] == [f"PPO-CartPole-v1-seed-{seed}" for seed in (1, 2, 3)]
    assert {run.project for run in runs} == {"pytorchrl"}
    assert [list(run.tags) for run in runs] == [["first", "PPO", "CartPole-v1", "GAEBuffer"]] * 3
    groups = [run.run_group for run in runs]
    assert groups[0] == groups[1] != groups[2]
    assert all(group.startswith("PPO-CartPole-v1-") for group in groups)


def test_names_in_wandbs_own_settings_are_kept(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"PROJECT": "mine", "RUN_GROUP": "night", "NAME": "one", "TAGS": "long,old"}
    for name, value in settings.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    wandb.teardown()
    WandbWriter(log_dir, composition("DQN")).close()
    (path,) = run_files(log_dir)
    run = start(path)
    assert (run.project, run.run_group, run.display_name) == ("mine", "night", "one")
    assert list(run.tags)[:3] == ["long", "old", "DQN"]


def test_the_commit_of_the_working_directory_is_recorded(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = log_dir.parent / "code"
    repository.mkdir()
    monkeypatch.chdir(repository)
    for command in ("init -q", "-c user.name=me -c user.email=me@here commit -q --allow-empty -m first"):
        subprocess.run(["git", *command.split()], check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    WandbWriter(log_dir, {}).close()
    (path,) = run_files(log_dir)
    assert start(path).git.commit == commit


def test_the_summary_of_a_return_has_its_largest_value(log_dir: Path) -> None:
    with closing(WandbWriter(log_dir, {})) as writer:
        for steps, value in ((100, 1.0), (200, 3.0), (300, 2.0)):
            writer.write(steps, {"test/return": value, "test/windy/return": -value, "losses/q": value})
    (path,) = run_files(log_dir)
    summary = summary_of(path)
    assert summary["test/return"] == {"max": 3.0, "last": 2.0}
    assert summary["test/windy/return"]["max"] == -1.0
    assert summary["losses/q"] == 2.0


@pytest.mark.long
def test_a_resumed_run_keeps_its_id_and_its_chosen_name(log_dir: Path) -> None:
    for steps in (100, 200):
        with closing(WandbWriter(log_dir, {}, run_name="my run")) as writer:
            writer.write(steps, {"train/return": steps / 4})
    first, second = run_files(log_dir)
    assert history(first) == [{"steps": 100, "train/return": 25.0}]
    assert history(second) == [{"steps": 200, "train/return": 50.0}]
    assert start(first).run_id == start(second).run_id
    assert start(second).display_name == "my run"


@pytest.mark.long
def test_the_summary_of_a_resumed_run_keeps_the_largest_return_of_the_whole_run(log_dir: Path) -> None:
    records = [{"steps": 100, "test/return": 18.9}, {"steps": 200, "test/return": 7.0, "train/return": 3.0}]
    # What a run measured after its last checkpoint, it measures again.
    records.append({"steps": 300, "test/return": 99.0})
    (log_dir / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (writer,) = make_writers(["wandb"], log_dir, {}, resumed_at=200)
    writer.write(300, {"test/return": 18.1})
    writer.write(400, {"train/return": 5.0, "test/windy/return": 1.0})
    writer.close()
    (path,) = run_files(log_dir)
    summary = summary_of(path)
    assert summary["test/return"] == {"max": 18.9, "last": 18.1}
    assert summary["train/return"] == {"max": 5.0, "last": 5.0}
    assert summary["test/windy/return"] == {"max": 1.0, "last": 1.0}


@pytest.mark.long
def test_a_resumed_run_stays_in_the_project_with_the_labels_in_which_it_began(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {"PROJECT": "paper", "RUN_GROUP": "night", "NAME": "one", "TAGS": "long,old"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    wandb.teardown()
    config = composition("DQN")
    for writer in make_writers([prl.Wandb(entity="team")], log_dir, config):
        writer.close()
    for name in ("PROJECT", "RUN_GROUP", "NAME", "TAGS"):
        monkeypatch.setenv(f"WANDB_{name}", f"other {name}")
    wandb.teardown()
    for writer in make_writers([prl.Wandb(project="elsewhere", run_name="two")], log_dir, config, resumed_at=0):
        writer.close()
    first, second = map(start, run_files(log_dir))
    assert first.run_id == second.run_id
    assert [(run.entity, run.project, run.run_group) for run in (first, second)] == [("team", "paper", "night")] * 2
    # A name that is given with the logger is a new one.
    assert (first.display_name, second.display_name) == ("one", "two")
    assert list(second.tags) == list(first.tags) == ["long", "old", "DQN", "CartPole-v1", "ReplayBuffer"]
    (warning,) = warnings(caplog)
    assert "the run stays in the project paper, not elsewhere; without " in warning


@pytest.mark.parametrize("content", ["{", "[]", '{"project": 3, "tags": "all"}'])
def test_damaged_labels_of_a_run_are_not_used(content: str, log_dir: Path, modes: list[str]) -> None:
    for name in ("wandb_run.json", "wandb_run_id.txt"):
        (log_dir / name).write_text(content if name.endswith("json") else "id1")
    WandbWriter(log_dir, composition("DQN"), resumed_at=0).close()
    assert modes == ["offline"]


def test_a_resumed_run_that_measures_nothing_logs_nothing(log_dir: Path) -> None:
    (log_dir / "metrics.jsonl").write_text('{"steps": 100, "test/return": 18.9}\n')
    WandbWriter(log_dir, {}, resumed_at=100).close()
    (path,) = run_files(log_dir)
    assert history(path) == []


def test_an_offline_run_says_by_which_command_it_is_uploaded(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = log_dir / "a b"
    folder.mkdir()
    monkeypatch.chdir(log_dir)
    WandbWriter(Path("a b"), {}).close()
    command = capsys.readouterr().out.strip().removeprefix("wandb: logged offline; upload it by: wandb sync ")
    found = subprocess.run(f"ls -d {command}", shell=True, check=True, capture_output=True, text=True).stdout
    assert found.startswith("a b/wandb/offline-run-")


@pytest.mark.long
def test_two_runs_of_one_process_are_logged_separately(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (WandbWriter(folder, {"device": folder.name}) for folder in folders)
    one.write(1, {"train/return": 1.0})
    two.write(2, {"train/return": 2.0})
    one.close()
    two.write(3, {"train/return": 3.0})
    two.close()
    written = [history(path) for folder in folders for path in run_files(folder)]
    assert written == [
        [{"steps": 1, "train/return": 1.0}],
        [{"steps": 2, "train/return": 2.0}, {"steps": 3, "train/return": 3.0}],
    ]
    assert len({(folder / "wandb_run_id.txt").read_text() for folder in folders}) == 2


@pytest.mark.parametrize("mode", ["offline", "dryrun", "disabled"])
def test_modes_without_a_server_are_used_as_configured(
    mode: str,
    log_dir: Path,
    modes: list[str],
    no_network: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    WandbWriter(log_dir, {}).close()
    assert modes == ["disabled" if mode == "disabled" else "offline"]
    assert warnings(caplog) == []


def test_the_disabled_mode_writes_no_wandb_files_to_the_run_folder(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "disabled")
    with closing(WandbWriter(log_dir, {})) as writer:
        writer.write(1, {"train/return": 1.0})
    assert not (log_dir / "wandb").exists()


@pytest.mark.parametrize("mode", ["online", "run", "shared"])
def test_without_a_key_the_online_mode_becomes_offline_with_a_warning(
    mode: str,
    log_dir: Path,
    modes: list[str],
    no_network: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("WANDB_MODE", mode)
    WandbWriter(log_dir, {}).close()
    assert modes == ["offline"]
    asked_for = "online" if mode == "run" else mode
    assert warnings(caplog) == [f"wandb: mode is {asked_for}, but no API key is configured; logging offline"]


@pytest.mark.parametrize(
    "login",
    [
        "machine elsewhere.example login user password " + KEY,
        "machine 127.0.0.1:9 login user password",
        "machine 127.0.0.1:9 login user",
    ],
    ids=["of another server", "damaged", "without a key"],
)
def test_a_login_file_without_a_valid_key_for_the_server_is_ignored(
    login: str, log_dir: Path, modes: list[str], no_network: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    Path(os.environ["NETRC"]).write_text(login)
    WandbWriter(log_dir, {}).close()
    assert modes == ["offline"]


@pytest.mark.parametrize("where", ["variable", "named login file", "login file at home"])
def test_the_online_mode_is_used_with_a_key_if_the_server_answers(
    where: str,
    log_dir: Path,
    modes: list[str],
    server: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    if where == "variable":
        monkeypatch.setenv("WANDB_API_KEY", KEY)
    else:
        machine = os.environ["WANDB_BASE_URL"].removeprefix("http://")
        login_file = Path(os.environ["NETRC"])
        login_file.write_text(f"machine {machine} login user password {KEY}\n")
        login_file.chmod(0o600)
    if where == "login file at home":
        monkeypatch.delenv("NETRC")
    WandbWriter(log_dir, {}).close()
    assert modes == ["online"]
    assert server == ["/"]
    assert warnings(caplog) == []


def test_the_mode_in_wandbs_settings_file_is_used(log_dir: Path, modes: list[str], no_network: None) -> None:
    settings = Path(os.environ["WANDB_CONFIG_DIR"]) / "settings"
    settings.parent.mkdir()
    settings.write_text("[default]\nmode = disabled\n")
    WandbWriter(log_dir, {}).close()
    assert modes == ["disabled"]


@pytest.mark.quick_share(0.5)
@pytest.mark.parametrize(
    "failure", [URLError(ConnectionRefusedError()), URLError(TimeoutError()), TimeoutError(), ConnectionResetError()]
)
def test_the_online_mode_becomes_offline_if_the_server_does_not_answer(
    failure: OSError,
    log_dir: Path,
    modes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    timeouts: list[float] = []

    def urlopen(url: str, timeout: float) -> None:
        assert url == "http://127.0.0.1:9"
        timeouts.append(timeout)
        raise failure

    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(module, "urlopen", urlopen)
    WandbWriter(log_dir, {}).close()
    assert modes == ["offline"]
    assert timeouts[0] <= 5.0
    assert warnings(caplog) == ["wandb: mode is online, but http://127.0.0.1:9 does not answer; logging offline"]


def test_the_online_mode_becomes_offline_if_the_server_refuses_the_run(
    log_dir: Path, server: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with closing(WandbWriter(log_dir, {})) as writer:
        writer.write(100, {"train/return": 1.5})
    assert "/graphql" in server
    (warning,) = warnings(caplog)
    assert warning.startswith("wandb: no online run could be started, logging offline: ")
    assert "\n" not in warning
    (path,) = run_files(log_dir)
    assert history(path) == [{"steps": 100, "train/return": 1.5}]
    assert start(path).run_id == (log_dir / "wandb_run_id.txt").read_text().strip()


@pytest.mark.long
def test_a_wandb_run_that_the_script_has_started_is_used_and_stays_open(log_dir: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.mkdir()
    with wandb.init(mode="offline", dir=script, config={"lr": 0.5}) as run:
        with closing(WandbWriter(log_dir, {"device": "cpu"})) as writer:
            writer.write(100, {"train/return": 1.5})
        run.log({"mine": 2.0})
        assert (log_dir / "wandb_run_id.txt").read_text().strip() == run.id
        other = tmp_path / "other"
        other.mkdir()
        with closing(WandbWriter(other, {})) as writer:
            writer.write(200, {"train/return": 2.5})
    (path,) = run_files(script)
    assert history(path) == [{"steps": 100, "train/return": 1.5}, {"steps": 100, "mine": 2.0}]
    assert config_of(path) == {"lr": 0.5, "device": "cpu"}
    # A wandb run belongs to one run folder.
    assert [history(path) for path in run_files(other)] == [[{"steps": 200, "train/return": 2.5}]]


def test_a_process_of_a_sweep_agent_logs_to_the_run_that_the_agent_has_named(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep1")
    monkeypatch.setenv("WANDB_RUN_ID", "trial1")
    wandb.teardown()
    with closing(WandbWriter(log_dir, {"seed": 1})) as writer:
        writer.write(100, {"train/return": 1.5})
        writer.write(200, {"train/return": 0.5})
    (path,) = run_files(log_dir)
    assert start(path).run_id == "trial1"
    assert start(path).sweep_id == "sweep1"
    # The search of a sweep reads numbers, and none that are nested.
    assert summary_of(path)["train/return"] == 0.5
    assert (log_dir / "wandb_run_id.txt").read_text().strip() == "trial1"
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ValueError, match=r"the sweep's run trial1 already logs .*cartpole.*one run per process"):
        WandbWriter(other, {})


def test_a_run_of_a_sweep_is_online_by_default(
    log_dir: Path, modes: list[str], server: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID"):
        monkeypatch.setenv(name, "one")
    wandb.teardown()
    WandbWriter(log_dir, {}).close()
    assert modes == ["online"]


def test_videos_and_a_table_of_all_evaluations_are_logged(log_dir: Path) -> None:
    video = log_dir / "videos" / "steps-000000100.gif"
    video.parent.mkdir()
    video.write_bytes(GIF)
    records = [
        {"steps": 100, "seconds": 1.0, "test/return": 5.0, "test/episodes": 2},
        {"steps": 200, "seconds": 2.0, "train/return": 1.0, "test/windy/return": 3.0},
        {"steps": 300, "seconds": 3.0, "test/return": 7.0, "test/episodes": 2},
    ]
    (log_dir / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with closing(WandbWriter(log_dir, {})) as writer:
        writer.write_video(100, "test/video", video)
    (path,) = run_files(log_dir)
    logged = history(path)
    assert [row for row in logged if "test/video/_type" in row or "test/video" in row]
    (copy,) = log_dir.glob("wandb/offline-run-*/files/media/videos/test/video*.gif")
    assert copy.read_bytes() == GIF
    tables = {file.name.partition("_")[0]: json.loads(file.read_text()) for file in tables_of(log_dir)}
    assert tables["evaluations"]["columns"][:4] == ["steps", "seconds", "episodes", "mean"]
    assert [row[:4] for row in tables["evaluations"]["data"]] == [[100, 1.0, 2, 5.0], [300, 3.0, 2, 7.0]]
    assert [row[3] for row in tables["windy"]["data"]] == [3.0]


def test_a_run_logs_its_composition_its_videos_and_its_evaluations(tmp_path: Path) -> None:
    pytest.importorskip("imageio")
    run = tmp_path / "run"
    callbacks = [prl.RecordVideos(longest=2, suffix=".gif")]
    learner = prl.Learner(dqn_scheme(), 100, run, log_to=["wandb"], callbacks=callbacks)
    learner.run()
    learner.close()
    (path,) = run_files(run)
    config = config_of(path)
    assert (config["algorithm"], config["algorithm.lr"], config["env"], config["steps"]) == (
        "DQN",
        0.001,
        "CartPole-v1",
        100,
    )
    assert len(list(run.glob("wandb/offline-run-*/files/media/videos/test/video*.gif"))) == 1
    (table,) = tables_of(run)
    assert [row[0] for row in json.loads(table.read_text())["data"]] == [100]


@pytest.mark.long
def test_images_are_logged_to_the_wandb_run_of_a_learner(tmp_path: Path) -> None:
    def show(learner: prl.Learner) -> None:
        assert learner.wandb_run is not None
        with pytest.raises(ValueError, match=r"'image' must be a number, got .*; wandb takes others by learner"):
            learner.log({"image": np.zeros(1)})  # type: ignore[dict-item]
        image = wandb.Image(np.zeros((4, 4), np.uint8))
        learner.wandb_run.log({"image": image, "steps": learner.scheme.steps})

    with prl.Learner(dqn_scheme(), 4, tmp_path / "run", log_to=["wandb"], callbacks=[show]) as learner:
        learner.run()
    (path,) = run_files(tmp_path / "run")
    images = [row["steps"] for row in history(path) if any(name.startswith("image") for name in row)]
    assert images == [4]
    with prl.Learner(dqn_scheme(), 4, tmp_path / "other") as learner:
        assert learner.wandb_run is None


def test_an_offline_run_that_cannot_be_started_is_an_error(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise wandb.errors.UsageError("the disk is full")

    monkeypatch.setattr(wandb, "init", init)
    with pytest.raises(wandb.errors.UsageError, match="the disk is full"):
        WandbWriter(log_dir, {})
