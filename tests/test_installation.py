"""Installation instructions name this package as an index does, where ``pytorchrl`` is another project's."""

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

from pytorchrl.version import VERSION

ROOT = Path(__file__).resolve().parents[1]
EXTRAS_UNDER_TEST = ("atari", "tensorboard", "video", "onnx", "optuna", "report", "data", "envpool", "ray", "serve")
DEVELOPMENT_TOOLS = {
    *("build", "import-linter", "mypy", "ruff", "types-pyyaml", "setuptools", "pygame", "playwright"),
    *("latex2mathml", "mkdocs-material", "mkdocstrings"),
}
"""Packages that only developers install, whose oldest versions are not tested."""
OF_ANOTHER_PROJECT = re.compile(r"""\bpytorchrl\[|pip3? install (-\S+ )*["']?pytorchrl\b(?!-toolkit)""")


def test_no_file_recommends_installing_the_package_of_another_project() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split() or [str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*.py")]
    files = [ROOT / name for name in names if Path(name).suffix in {".py", ".md", ".toml", ".txt", ""}]
    assert len(files) > 100
    wrong = [
        file
        for file in files
        if file != Path(__file__) and file.is_file() and OF_ANOTHER_PROJECT.search(file.read_text())
    ]
    assert not wrong


def test_the_oldest_versions_under_test_are_those_that_the_package_allows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    tested = [*project["dependencies"], *(each for name in EXTRAS_UNDER_TEST for each in extras[name]), *extras["dev"]]
    tested = [each for each in tested if not each.startswith(f"{project['name']}[")]
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


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.compile(r"pytorchrl-toolkit\[([\w,]+)\]|install_command\([\"'](\w+)[\"']\)")
    files = [ROOT / "pyproject.toml", *(ROOT / "docs").rglob("*.md"), *(ROOT / "pytorchrl").rglob("*.py")]
    found = {one or other for file in files for one, other in named.findall(file.read_text("utf-8"))}
    assert {"mujoco", "report", "optuna", "ray"} <= found
    assert {name for names in found for name in names.split(",")} <= set(extras)


def test_the_version_is_that_of_the_citation_file() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_atari_extra_installs_opencv_for_the_preprocessing_of_frames() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {re.split(r"[><=;\[ ]", each)[0] for each in requires("gymnasium") or [] if "cv" in each}
    assert any("opencv" in package for package in needed)
    assert any(package.startswith("opencv-python") for package in extras["atari"])
