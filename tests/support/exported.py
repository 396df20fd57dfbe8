"""Exported policies, computed by torch or by onnxruntime."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor


def skip_without_onnx(suffix: str) -> None:
    """Skip a test of ONNX files where the packages that write and run them are missing."""
    if suffix == ".onnx":
        pytest.importorskip("onnxscript", reason="onnx and onnxscript write ONNX files")
        pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files")


def exported_actions(path: Path, inputs: list[Tensor]) -> list[np.ndarray[Any, Any]]:
    """The outputs of an exported policy."""
    if path.suffix == ".pt2":
        found = torch.export.load(path).module()(*inputs)
        return [each.detach().numpy() for each in (found if isinstance(found, tuple) else (found,))]
    session = pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files").InferenceSession(str(path))
    return list(session.run(None, {i.name: v.numpy() for i, v in zip(session.get_inputs(), inputs, strict=True)}))
