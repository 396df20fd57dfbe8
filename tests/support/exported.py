"""Exported policies, computed by torch or by onnxruntime."""

import warnings
from collections.abc import Callable
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


Policy = Callable[[list[Tensor]], list[np.ndarray[Any, Any]]]


def loaded_policy(path: Path) -> Policy:
    """An exported policy; the random numbers of ONNX files begin anew whenever one is loaded."""
    if path.suffix in (".pt2", ".ts"):
        module = torch.export.load(path).module() if path.suffix == ".pt2" else loaded_script(path)

        def call(inputs: list[Tensor]) -> list[np.ndarray[Any, Any]]:
            found = module(*inputs)
            return [each.detach().numpy() for each in (found if isinstance(found, tuple) else (found,))]

        return call
    session = pytest.importorskip("onnxruntime", reason="onnxruntime runs ONNX files").InferenceSession(str(path))
    names = [each.name for each in session.get_inputs()]
    return lambda inputs: list(session.run(None, {n: v.numpy() for n, v in zip(names, inputs, strict=True)}))


def loaded_script(path: Path, extra: dict[str, Any] | None = None) -> Any:
    """A TorchScript file as a module; contents of extra files are written into the dict."""
    with warnings.catch_warnings(action="ignore"):
        return torch.jit.load(str(path), _extra_files=extra)  # type: ignore[no-untyped-call]


def exported_actions(path: Path, inputs: list[Tensor]) -> list[np.ndarray[Any, Any]]:
    """The outputs of an exported policy."""
    return loaded_policy(path)(inputs)
