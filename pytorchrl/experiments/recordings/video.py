"""Writing rendered frames to video files."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.files import refuse_link

_SUFFIXES = (".mp4", ".gif")
_BLOCK = 2
"""Encoders require widths and heights that are multiples of it."""


def refuse_missing_encoder(suffix: str, file: Path | None = None) -> None:
    """Check that videos with a file suffix can be written.

    Args:
        suffix: of the file.
        file: named in the error, where it is known.

    Raises:
        ImportError: a package is not installed.
        ValueError: the suffix is not supported.
    """
    if suffix not in _SUFFIXES:
        raise ValueError(
            f"a video is written to a file that ends in {' or '.join(_SUFFIXES)}, got {str(file or suffix)!r}"
        )
    packages = ("imageio", "imageio_ffmpeg") if suffix == ".mp4" else ("imageio",)
    for package in packages:
        if find_spec(package) is None:
            raise ImportError(
                f"a video that ends in {suffix} needs the package {package}: pip install 'imageio[ffmpeg]'"
            )


def write_video(path: Path, frames: Iterable[Any], frames_per_second: int) -> Path:
    """Write a video atomically; frames are streamed, one in memory at a time.

    Args:
        path: of the file, which ends in ".mp4" or ".gif"; its folder is created if it does not exist.
        frames: (height, width, 3) uint8 each.
        frames_per_second: of the video.

    Raises:
        ValueError: there is no frame, or a frame is not an image because the environment does not render.
    """
    refuse_missing_encoder(path.suffix, path)
    import imageio.v2 as imageio  # slow to import and rarely needed

    refuse_link(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".unfinished-{path.name}")
    if path.suffix == ".mp4":
        # By default, imageio resizes frames to multiples of 16.
        arguments: dict[str, Any] = {"fps": frames_per_second, "macro_block_size": _BLOCK}
    else:
        arguments = {"duration": 1_000 / frames_per_second, "loop": 0}
    try:
        written = 0
        writer: Any
        with imageio.get_writer(unfinished, mode="I", **arguments) as writer:
            for frame in frames:
                writer.append_data(_even(frame, path))
                written += 1
        if not written:
            raise ValueError(f"{path}: there is no frame to write")
        return unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _even(frame: Any, path: Path) -> NDArray[np.uint8]:
    picture = np.asarray(frame)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
        raise ValueError(
            f"{path}: a frame must be a picture (height, width, 3) of uint8, got {type(frame).__name__} "
            f"{picture.shape} {picture.dtype}; does the environment render with render_mode='rgb_array'?"
        )
    height, width = (size - size % _BLOCK for size in picture.shape[:2])
    return np.ascontiguousarray(picture[:height, :width])
