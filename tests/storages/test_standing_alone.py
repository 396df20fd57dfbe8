"""``storages`` works without ``pytorchrl`` installed."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import storages

SCRIPT = """
import importlib, importlib.abc, pkgutil, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        absent = ("pytorchrl", "gymnasium", "wandb", "matplotlib", "rich", "tyro", "minari", "h5py", "pyarrow", "PIL")
        if name.split(".")[0] in absent:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import storages
modules = [module.name for module in pkgutil.walk_packages(storages.__path__, "storages.")]
for module in modules:
    importlib.import_module(module)
assert len(modules) > 10
assert not [name for name in sys.modules if name.split(".")[0] == "pytorchrl"]

from tests.support.model import Stream, assert_slice_is, replay_buffer
from tests.support.rollouts import SummingActor, buffer, step
import numpy as np
replay, stream = replay_buffer(10), Stream(2, "dict", True, np.random.default_rng(0))
for _ in range(25):
    sample = stream.step()
    replay.insert_transition(sample)
assert_slice_is(replay.get_data_slice(9, 10), [sample])
print(len(next(iter(replay.generate_batches(1, 8)))["Reward"]))
rollout = buffer(storages.GAEBuffer, 3)
for obs in (1, 2, 3):
    rollout.insert_transition(step(obs, obs + 1, reward=1))
rollout.before_gradients()
print(len(next(iter(rollout.generate_batches(1)))["Advantage"]))
"""
ROOT = Path(storages.__file__).parent


def imported_by(file: Path) -> Iterator[str]:
    """The top-level packages that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").split(".")[0]


@pytest.mark.long
def test_storages_imports_and_works_with_pytorchrl_absent() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT.parent)},
        timeout=120,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout == "8\n3\n"


@pytest.mark.parametrize("file", sorted(ROOT.rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_every_file_of_storages_imports_only_allowed_packages(file: Path) -> None:
    installed = {"numpy", "numba", "llvmlite", "torch", "zarr", "numcodecs", "google_crc32c"}
    allowed = {"storages"} | installed | sys.stdlib_module_names
    if file.parent.name == "datasets":
        # Only the functions that need these packages import them.
        allowed |= {"h5py", "pyarrow", "PIL"}
    assert set(imported_by(file)) <= allowed
    assert "import_module" not in file.read_text()


@pytest.mark.long
def test_importing_storages_does_not_import_zarr_h5py_pyarrow_or_minari() -> None:
    script = "import sys; from storages import *; print({'zarr', 'h5py', 'pyarrow', 'minari'} & set(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT.parent)
    assert finished.stdout == "set()\n", finished.stderr
