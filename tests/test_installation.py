"""Installation instructions never name this package on an index, where the name belongs to another project."""

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS_UNDER_TEST = ("atari", "tensorboard", "video", "onnx", "optuna", "report", "data", "envpool", "ray")
DEVELOPMENT_TOOLS = {
    *("import-linter", "mypy", "ruff", "types-pyyaml", "setuptools", "pygame", "playwright"),
    *("latex2mathml", "mkdocs-material", "mkdocstrings"),
}
"""Packages that only developers install, whose oldest versions are not tested."""
BY_NAME = re.compile(r"""pytorchrl\[|pip3? install (-\S+ )*["']?pytorchrl\b""")


def test_no_file_recommends_installing_this_package_from_an_index() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split() or [str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*.py")]
    files = [ROOT / name for name in names if Path(name).suffix in {".py", ".md", ".toml", ".txt", ""}]
    assert len(files) > 100
    wrong = [file for file in files if file != Path(__file__) and file.is_file() and BY_NAME.search(file.read_text())]
    assert not wrong


def test_the_oldest_versions_under_test_are_those_that_the_package_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tested = [*project["dependencies"], *(each for name in EXTRAS_UNDER_TEST for each in extras[name]), *extras["dev"]]
    allowed = {(package, oldest) for package, _, oldest in (each.partition(">=") for each in tested)}
    lines = (ROOT / "lowest-versions.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    for package, oldest in allowed:
        name = package.partition("[")[0].lower()
        if name in pinned:
            assert pinned.pop(name) == oldest, name
        else:
            assert name in DEVELOPMENT_TOOLS, name
    assert not pinned, "pyproject.toml does not require them"


def test_the_atari_extra_installs_opencv_for_the_preprocessing_of_frames() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {re.split(r"[><=;\[ ]", each)[0] for each in requires("gymnasium") or [] if "cv" in each}
    assert any("opencv" in package for package in needed)
    assert any(package.startswith("opencv-python") for package in extras["atari"])
