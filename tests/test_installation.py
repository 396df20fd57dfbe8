"""Installation instructions never name this package on an index, where the name belongs to another project."""

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BY_NAME = re.compile(r"""pytorchrl\[|pip3? install (-\S+ )*["']?pytorchrl\b""")


def test_no_file_recommends_installing_this_package_from_an_index() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.split() or [str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*.py")]
    files = [ROOT / name for name in names if Path(name).suffix in {".py", ".md", ".toml", ".txt", ""}]
    assert len(files) > 100
    wrong = [file for file in files if file != Path(__file__) and file.is_file() and BY_NAME.search(file.read_text())]
    assert not wrong


def test_the_atari_extra_installs_opencv_for_the_preprocessing_of_frames() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {re.split(r"[><=;\[ ]", each)[0] for each in requires("gymnasium") or [] if "cv" in each}
    assert any("opencv" in package for package in needed)
    assert any(package.startswith("opencv-python") for package in extras["atari"])
