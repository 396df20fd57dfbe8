"""Writer of metrics, settings and videos to TensorBoard's event files."""

import io
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pytorchrl.logging.run_labels import settings_by_option
from pytorchrl.run_files import RunFiles
from pytorchrl.terminal import on_one_line
from storages.files import refuse_link

_RETURNS = ("test/return", "train/return")
"""Metrics of the tab of hyper-parameters."""
_TO_GIF = (
    "fps='min(source_fps,15)',scale='min(320,iw)':-2,split[frames][same];[same]palettegen[p];[frames][p]paletteuse"
)
"""At most 15 frames per second of 320 pixels' width, with colours chosen for the video."""


class TensorBoardWriter:
    """Writes TensorBoard's event files into ``tensorboard`` of the run folder.

    The tab "hparams" has the settings by the names of ``train``'s options and the returns, "text" all settings, and
    "images" the videos, as animations.

    Args:
        log_dir: the run folder.
        resumed_at: environment transitions at which a resumed run continues; TensorBoard hides earlier records of
            later steps. None where the run is new.
        config: the composition of the run; without one, only metrics are written.
    """

    def __init__(
        self, log_dir: Path, resumed_at: int | None = None, config: Mapping[str, object] | None = None
    ) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow to import, and seldom needed

        folder = RunFiles(log_dir).tensorboard_folder
        refuse_link(folder)
        purge_step = None if resumed_at is None else resumed_at + 1
        self._writer = SummaryWriter(str(folder), purge_step=purge_step)
        if config:
            self._write_settings(config)

    def write(self, steps: int, metrics: Mapping[str, float]) -> None:
        """Add a scalar for each metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, steps)
        self._writer.flush()

    def write_histograms(self, steps: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Add a histogram for each array."""
        for name, array in values.items():
            self._writer.add_histogram(name, array, steps)
        self._writer.flush()

    def write_video(self, steps: int, name: str, path: Path) -> None:
        """Add a video, as an animated image."""
        from PIL import Image
        from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-untyped]

        content = path.read_bytes() if path.suffix == ".gif" else _as_gif(path)
        with Image.open(io.BytesIO(content)) as first:
            width, height = first.size
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=content)
        self._add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), steps)
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()

    def _add_summary(self, summary: Any, steps: int | None = None) -> None:
        # torch's annotation of the attribute is that of its state after `close`.
        file_writer: Any = self._writer.file_writer
        file_writer.add_summary(summary, steps)

    def _write_settings(self, config: Mapping[str, object]) -> None:
        """Write the settings as hyper-parameters, and as a table in the tab of texts."""
        from torch.utils.tensorboard.summary import hparams

        settings = settings_by_option(config)
        given = {name: str(value) if isinstance(value, list) else value for name, value in settings.items()}
        # `SummaryWriter.add_hparams` would write them into another folder than the metrics.
        known = {name: value for name, value in given.items() if value is not None}
        # The function has no annotations.
        for summary in hparams(known, dict.fromkeys(_RETURNS)):  # type: ignore[no-untyped-call]
            self._add_summary(summary)
        rows = "\n".join(f"| `{name}` | `{on_one_line(str(value))}` |" for name, value in settings.items())
        self._writer.add_text("configuration", f"| setting | value |\n| --- | --- |\n{rows}", 0)
        self._writer.flush()


def _as_gif(path: Path) -> bytes:
    """Convert a video to a GIF, with smaller and fewer frames where it is large."""
    # It is installed where such videos are recorded.
    from imageio_ffmpeg import get_ffmpeg_exe  # type: ignore[import-untyped]

    command = [
        get_ffmpeg_exe(),
        "-loglevel",
        "error",
        "-i",
        f"file:{path}",
        "-filter_complex",
        _TO_GIF,
        "-f",
        "gif",
        "-",
    ]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
