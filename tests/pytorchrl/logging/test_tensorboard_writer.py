"""TensorBoard shows metrics, settings and videos of a run."""

import io
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData  # type: ignore[import-untyped]

import pytorchrl as prl
from pytorchrl.experiments.recordings.video import write_video
from pytorchrl.logging import TensorBoardWriter, make_writers
from tests.support.compositions import dqn_scheme
from tests.support.run_folders import composition


def events_of(log_dir: Path) -> Any:
    events = EventAccumulator(str(log_dir / "tensorboard"))
    events.Reload()
    return events


def scalars(log_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """Steps and values by name, as TensorBoard reads them from a run folder."""
    events = events_of(log_dir)
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_tensorboard_shows_each_metric_over_environment_steps_during_the_run(tmp_path: Path) -> None:
    (writer,) = make_writers(["tensorboard"], tmp_path / "new" / "run", {})
    writer.write(100, {"train/return": 1.5, "losses/q": 0.25})
    writer.write(200, {"train/return": 2.5})
    shown = scalars(tmp_path / "new" / "run")
    writer.close()
    assert shown == {"train/return": [(100, 1.5), (200, 2.5)], "losses/q": [(100, 0.25)]}


def test_tensorboard_discards_events_after_the_checkpoint_from_which_a_run_resumes(tmp_path: Path) -> None:
    first = TensorBoardWriter(tmp_path)
    for steps in (100, 200, 201, 300):
        first.write(steps, {"train/return": -steps})
    first.close()
    (events,) = (tmp_path / "tensorboard").iterdir()
    # TensorBoard reads event files by name, which begins with the second in which they were made.
    events.rename(events.with_name("events.out.tfevents.0000000001.earlier"))
    (second,) = make_writers(["tensorboard"], tmp_path, {}, resumed_at=200)
    second.write(300, {"train/return": 3.0})
    second.close()
    assert scalars(tmp_path) == {"train/return": [(100, -100.0), (200, -200.0), (300, 3.0)]}


def test_a_new_run_keeps_existing_events(tmp_path: Path) -> None:
    for steps in (300, 100):
        writer = TensorBoardWriter(tmp_path)
        writer.write(steps, {"train/return": 1.0})
        writer.close()
    assert sorted(scalars(tmp_path)["train/return"]) == [(100, 1.0), (300, 1.0)]


def hyper_parameters(log_dir: Path) -> tuple[dict[str, Any], set[str]]:
    """The hyper-parameters of a run and the metrics beside them, as the tab "hparams" reads them."""
    events = events_of(log_dir)
    start, experiment = (
        HParamsPluginData.FromString(events.SummaryMetadata(f"_hparams_/{name}").plugin_data.content)
        for name in ("session_start_info", "experiment")
    )
    values = {
        name: getattr(value, str(value.WhichOneof("kind"))) for name, value in start.session_start_info.hparams.items()
    }
    return values, {info.name.tag for info in experiment.experiment.metric_infos}


def test_the_settings_of_a_run_are_hyper_parameters_beside_its_returns(tmp_path: Path) -> None:
    schedule = {"name": "LinearSchedule", "hyper_parameters": {"initial": 1.0, "final": 0.0}}
    settings = {"lr": 0.5, "double": True, "epsilon": schedule, "explorer": None, "sizes": [8, 4]}
    (writer,) = make_writers(["tensorboard"], tmp_path, composition("DQN", seed=3, settings=settings))
    writer.close()
    values, metrics = hyper_parameters(tmp_path)
    expected = {"algorithm": "DQN", "algorithm.lr": 0.5, "algorithm.double": True, "env": "CartPole-v1", "seed": 3}
    assert expected.items() <= values.items()
    assert values["algorithm.epsilon"] == "LinearSchedule(initial=1.0, final=0.0)"
    assert values["algorithm.sizes"] == "[8, 4]"
    assert metrics == {"test/return", "train/return"}
    assert len(list((tmp_path / "tensorboard").iterdir())) == 1, "a second file would hide the metrics of the first"


def test_the_configuration_is_shown_as_a_table_of_texts(tmp_path: Path) -> None:
    (writer,) = make_writers(["tensorboard"], tmp_path, composition("DQN", settings={"explorer": None}))
    writer.close()
    (event,) = events_of(tmp_path).Tensors("configuration/text_summary")
    rows = event.tensor_proto.string_val[0].decode().splitlines()
    assert rows[:3] == ["| setting | value |", "| --- | --- |", "| `algorithm` | `DQN` |"]
    assert "| `algorithm.explorer` | `None` |" in rows


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_videos_are_shown_as_moving_images(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    frames = [np.full((64, 640, 3), 20 * number, np.uint8) for number in range(10)]
    video = write_video(tmp_path / f"film{suffix}", frames, 30)
    with closing(TensorBoardWriter(tmp_path)) as writer:
        writer.write_video(100, "test/video", video)
    (event,) = events_of(tmp_path).Images("test/video")
    assert event.step == 100
    with Image.open(io.BytesIO(event.encoded_image_string)) as shown:
        assert (shown.format, shown.size) == ("GIF", (event.width, event.height))
        seconds = sum(_duration(shown, number) for number in range(shown.n_frames))  # type: ignore[attr-defined]
        # Of a film, every second frame is left out, and a frame has half the width.
        assert (shown.n_frames, shown.width) == ((10, 640) if suffix == ".gif" else (5, 320))  # type: ignore[attr-defined]
    assert seconds == pytest.approx(1 / 3, abs=0.05)


def _duration(picture: Image.Image, frame: int) -> float:
    picture.seek(frame)
    return float(picture.info["duration"]) / 1_000


@pytest.mark.long
def test_a_run_and_its_continuation_write_settings_and_videos(tmp_path: Path) -> None:
    pytest.importorskip("imageio")
    run = tmp_path / "run"
    callbacks = [prl.RecordVideos(longest=2, suffix=".gif")]
    with prl.Learner(dqn_scheme(), 100, run, log_to=["tensorboard"], callbacks=callbacks) as learner:
        learner.run()
    assert hyper_parameters(run)[0]["steps"] == 100
    with prl.Learner.resume(run, target_steps=200) as learner:
        learner.run()
    assert {event.step for event in events_of(run).Images("test/video")} == {100, 200}
    assert json.loads((run / "config.json").read_text())["log_to"] == ["tensorboard"]
