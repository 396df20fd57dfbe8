"""ONNX files: written by torch, with metadata and a name of the batch axis."""

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from storages.files import write_atomically

BATCH = "batch"
"""Name of the axis of observations that are given at once."""
_MOST_BYTES_OF_ONE_FILE = 2**30
"""Half of the most that an ONNX file may have, which has the graph, too."""


def write_onnx(
    program: Any, path: Path, inputs: Sequence[str], outputs: Sequence[str], metadata: Mapping[str, str]
) -> None:
    """Write a traced network; one file, unless it would be larger than the format allows.

    Args:
        program: as of ``torch.export.export``, in which the first axis of each input is that of the batch.
        path: of the file.
        inputs: their names.
        outputs: their names.
        metadata: of the file, by name.
    """
    size = sum(each.numel() * each.element_size() for each in program.state_dict.values())
    with _without_notes_of_the_exporter():
        torch.onnx.export(
            program,
            (),
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamo=True,
            external_data=size > _MOST_BYTES_OF_ONE_FILE,
            verbose=False,
        )
    _describe(path, metadata)


def _describe(path: Path, metadata: Mapping[str, str]) -> None:
    """Write metadata into a file, and the name of the batch axis, which torch gives a number."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    onnx.helper.set_model_props(model, dict(metadata))
    graph = model.graph
    old = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if old and size.dim_param:
                # The size of an axis may be an expression of that of the batch.
                size.dim_param = re.sub(rf"\b{re.escape(old)}\b", BATCH, size.dim_param)
    write_atomically(path, model.SerializeToString())


@contextmanager
def _without_notes_of_the_exporter() -> Iterator[None]:
    """Hide torch's notes on its own internals, such as operators of packages that no policy uses."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
