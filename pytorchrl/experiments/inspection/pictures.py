"""Pictures of observations, and of moments in videos."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from storages.core.ring.layout import FieldKey
from storages.transition import OBS

_LEAST_SIDE = 240
"""Pixels; smaller pictures are enlarged."""
_RED, _GREY, _WHITE = (220, 30, 30), (90, 90, 90), (235, 235, 235)
_BORDER, _BAR = 6, 10
_GREY_CHANNELS, _COLOUR_CHANNELS = 1, 3


def picture_of(observation: Any, stacked: Collection[FieldKey] = ()) -> NDArray[np.uint8] | None:
    """(height, width, 3): the first part of an observation that is a picture; None where none is.

    A picture is uint8 and (height, width), (height, width, channels) or (channels, height, width), of one or three
    channels. Of a stack of frames, the newest is taken.

    Args:
        observation: (*obs), or a dict of such.
        stacked: paths of the leaves that are stacks of frames.
    """
    if isinstance(observation, Mapping):
        found = (_picture(part, (OBS, name) in stacked) for name, part in observation.items())
        return next((picture for picture in found if picture is not None), None)
    return _picture(observation, (OBS,) in stacked)


def marked(frames: Sequence[NDArray[np.uint8]], moment: int, frames_per_second: int) -> list[NDArray[np.uint8]]:
    """Frames of a video in which a step is easily found: it has a red frame and is shown for two seconds.

    A bar below says how far the video has come, and where the step is.

    Args:
        frames: (height, width, 3) each, of an episode.
        moment: the frame before the step; one that is not there marks nothing.
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
    """The same picture, each pixel repeated where it is small."""
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
