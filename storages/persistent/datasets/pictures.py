"""Pictures that Minari kept as JPEG. Nothing is written so, because it is not what was seen."""

import io
from collections.abc import Iterable

import numpy as np

from storages.persistent.datasets.dataset import needs_package
from storages.persistent.errors import DatasetError
from storages.transition import Array


def from_jpeg(pictures: Iterable[bytes], where: str) -> Array:
    """(L, height, width, ...) uint8.

    Raises:
        DatasetError: one of them is no JPEG.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise needs_package("pillow", where) from None
    try:
        return np.stack([np.array(Image.open(io.BytesIO(picture), formats=["JPEG"]), np.uint8) for picture in pictures])
    except (OSError, ValueError) as error:
        raise DatasetError(f"{where}: a picture cannot be read: {error}") from error
