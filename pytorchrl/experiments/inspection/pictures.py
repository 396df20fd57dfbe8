"""Images of observations, and marking a step in a video."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey
from storages.transition import OBS

_LEAST_SIDE = 240
"""In pixels; smaller images are enlarged."""
_RED, _GREY, _WHITE = (220, 30, 30), (90, 90, 90), (235, 235, 235)
_BORDER, _BAR = 6, 10
_GREY_CHANNELS, _COLOUR_CHANNELS = 1, 3


def picture_of(observation: Any, stacked: Collection[FieldKey] = ()) -> NDArray[np.uint8] | None:
    """Return the first image in an observation, (height, width, 3); None if there is none.

    An image is uint8 with shape (height, width), (height, width, channels) or (channels, height, width) and one or
    three channels. Of stacked frames, the newest is returned.

    Args:
        observation: (*obs), or a dict of such.
        stacked: paths of the leaves with stacked frames.
    """
    if isinstance(observation, Mapping):
        found = (_picture(part, (OBS, name) in stacked) for name, part in observation.items())
        return next((picture for picture in found if picture is not None), None)
    return _picture(observation, (OBS,) in stacked)


def marked(frames: Sequence[NDArray[np.uint8]], moment: int, frames_per_second: int) -> list[NDArray[np.uint8]]:
    """Return the frames of a video in which a step is marked.

    Its two frames have a red border and are shown for a second each. A progress bar below the image shows
    the position of the step.

    Args:
        frames: (height, width, 3) each, of an episode.
        moment: index of the frame before the step; an index out of range marks nothing.
        frames_per_second: of the video.
    """
    shown = []
    for number, frame in enumerate(frames):
        picture = enlarged(frame)
        is_moment = number in (moment, moment + 1)
        if is_moment:
            picture = _framed(picture)
        picture = np.concatenate([picture, _bar(picture.shape[1], number, moment, len(frames))])
        shown += [picture] * (frames_per_second if is_moment else 1)
    return shown


def enlarged(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image enlarged by an integer factor, if it is small."""
    times = -(-_LEAST_SIDE // min(picture.shape[:2]))
    return picture.repeat(times, axis=0).repeat(times, axis=1)


def _picture(part: Any, is_stack: bool) -> NDArray[np.uint8] | None:
    pixels = np.asarray(part)
    if is_stack and pixels.ndim > 2:
        pixels = pixels[-1]
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        return None
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    elif pixels.shape[-1] not in (_GREY_CHANNELS, _COLOUR_CHANNELS):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.shape[-1] not in (_GREY_CHANNELS, _COLOUR_CHANNELS) or min(pixels.shape[:2]) < 2:
        return None
    height, width = pixels.shape[:2]
    return np.ascontiguousarray(np.broadcast_to(pixels, (height, width, _COLOUR_CHANNELS)))


def _framed(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    framed = picture.copy()
    for edge in (np.s_[:_BORDER], np.s_[-_BORDER:], np.s_[:, :_BORDER], np.s_[:, -_BORDER:]):
        framed[edge] = _RED
    return framed


def _bar(width: int, number: int, moment: int, count: int) -> NDArray[np.uint8]:
    bar = np.full((_BAR, width, _COLOUR_CHANNELS), _WHITE, np.uint8)
    places = [round(place * (width - _BORDER) / max(1, count - 1)) for place in (number, moment)]
    bar[:, : places[0]] = _GREY
    if 0 <= moment < count:
        bar[:, places[1] : places[1] + _BORDER] = _RED
    return bar
