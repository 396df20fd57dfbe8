"""The built wheel works in an empty environment in which its folder is read-only."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.notices import without_compilation

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    *("storages", "pytorchrl", "examples", "benchmarks", "tests", "docs", "pyproject.toml", "README.md", "LICENSE"),
    *("MANIFEST.in", "CHANGELOG.md", "CITATION.cff", "Makefile", "constraints.txt", "mkdocs.yml"),
)
USE = """
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytorchrl as prl
import storages
from storages.transition import ACT, DONE, DONE2, ERRORS, OBS, OBS2, REW, TRUNC2

factory = {
    "PERBuffer": prl.PERBuffer.create_factory(size=50, n_step=3, alpha=0.6, epsilon=0.01),
    "NStepReplayBuffer": prl.NStepReplayBuffer.create_factory(size=50, n_step=3),
}[sys.argv[1]]
storage = factory("cpu", None, SimpleNamespace(gamma=0.5), None)
flag = np.zeros((1, 1), np.float32)
for step in range(20):
    storage.insert_transition({
        OBS: np.full((1, 2), step, np.float32), OBS2: np.full((1, 2), step + 1, np.float32),
        ACT: np.zeros((1, 1), np.float32), REW: np.ones((1, 1), np.float32),
        DONE: flag + (step == 0), DONE2: flag, TRUNC2: flag,
    })
(batch,) = storage.generate_batches(1, 8)
storage.after_gradients(batch, {ERRORS: batch[REW]})
print(json.dumps({
    "files": [prl.__file__, storages.__file__],
    "steps": (batch[OBS2] - batch[OBS])[:, 0].tolist(),
    "rewards": batch[REW][:, 0].tolist(),
}))
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, as building leaves files beside them."""
    pytest.importorskip("setuptools", "77")
    folder = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def built(kind: str, sources: Path, folder: Path) -> Path:
    build = f"import setuptools.build_meta as backend; backend.build_{kind}({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=sources, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", sources, tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel, which also sees the other packages of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", wheel], check=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    for package in ("pytorchrl", "storages"):
        for directory in [site_packages / package, *(site_packages / package).rglob("*/")]:
            # The superuser ignores permissions, but cannot create a directory in place of a file.
            (directory / "__pycache__").touch()
            directory.chmod(0o555)
    return folder


@pytest.mark.long
def test_the_wheel_contains_only_the_two_typed_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    metadata = {name.split("/")[0] for name in names if ".dist-info/" in name}
    assert {name.split("/")[0] for name in names} == {"storages", "pytorchrl", *metadata}
    assert {"storages/py.typed", "pytorchrl/py.typed"} < set(names)
    kept = {
        str(path.relative_to(ROOT)) for package in ("storages", "pytorchrl") for path in ROOT.glob(f"{package}/**/*.py")
    }
    assert {name for name in names if name.endswith(".py")} == kept
    templates = ROOT / "pytorchrl" / "report" / "templates"
    assert {name for name in names if "/templates/" in name} == {str(f.relative_to(ROOT)) for f in templates.iterdir()}


@pytest.mark.long
def test_the_source_distribution_contains_tests_pages_and_examples(sources: Path, tmp_path: Path) -> None:
    with tarfile.open(built("sdist", sources, tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ("tests", "docs", "examples", "benchmarks", "pytorchrl", "storages")
    for package in needed:
        files = {str(path.relative_to(sources)) for path in (sources / package).rglob("*") if path.is_file()}
        assert {name for name in files if "__pycache__" not in name} <= names
    assert {"Makefile", "constraints.txt", "CITATION.cff", "mkdocs.yml"} <= names


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="looks for the folders of a POSIX environment")
@pytest.mark.parametrize(
    ("cache_state", "storage"),
    # Without a cache, fewer kernels are compiled.
    [("writable cache", "PERBuffer"), ("unwritable cache", "NStepReplayBuffer")],
)
def test_kernels_work_if_the_folder_of_the_package_is_read_only(
    cache_state: str, storage: str, environment: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    if cache_state == "unwritable cache":
        cache.write_text("a file, in place of a directory")
    used = used_in(environment, tmp_path, cache, storage)
    assert all(Path(file).is_relative_to(environment) for file in used["files"])
    discounted = {1: 1.0, 2: 1.5, 3: 1.75}
    assert len(used["steps"]) == 8
    assert used["rewards"] == [discounted[steps] for steps in used["steps"]]
    assert bool(list(cache.rglob("*.kernel"))) == (cache_state == "writable cache")
    assert not list(environment.rglob("*.kernel"))


def used_in(environment: Path, folder: Path, cache: Path, storage: str) -> Any:
    """The output of the script, which must not warn."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
    finished = subprocess.run(
        [environment / "bin" / "python", "-I", "-W", "always", "-c", USE, storage],
        cwd=folder,
        env=kept | {"HOME": str(folder), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
    )
    assert (finished.returncode, without_compilation(finished.stderr)) == (0, "")
    return json.loads(finished.stdout)
