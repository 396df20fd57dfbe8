"""Pictures that Minari kept as JPEG. Nothing is written so, because it is not what was seen."""

import io
import math
from collections.abc import Sequence

import numpy as np

from storages.datasets.budget import MemoryBudget
from storages.datasets.dataset import needs_package
from storages.errors import DatasetError
from storages.transition import Array


def from_jpeg(pictures: Sequence[bytes], shape: tuple[int, ...], budget: MemoryBudget, where: str) -> Array:
    """(L, *shape) uint8.

    Raises:
        DatasetError: one of them is no JPEG, or of another shape.
    """
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise needs_package("pillow", where) from None
    budget.take(len(pictures) * math.prod(shape), "the pictures")
    decoded = []
    try:
        for picture in pictures:
            image = Image.open(io.BytesIO(picture), formats=["JPEG"])
            # What it would be decoded to is not known to fit before.
            if (image.height, image.width) != shape[:2]:
                raise ValueError(f"it is {image.height} x {image.width}, the space says {shape}")
            decoded.append(np.array(image, np.uint8))
        return np.stack(decoded)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DatasetError(f"{where}: a picture cannot be read: {error}") from error
