"""The documentation: every code block is run, every file that is linked to is there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TRAINS = re.compile(r"prl\.Learner|^python ", re.MULTILINE)
"""What a block says that takes seconds: it trains an agent, or starts commands."""
BLOCKS = [
    pytest.param(language, code, id=f"{page.name}-{number}", marks=[pytest.mark.long] if TRAINS.search(code) else [])
    for page in PAGES
    for number, (language, code) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1)
]


@pytest.mark.parametrize(("language", "code"), BLOCKS)
def test_a_code_block_does_what_it_says(language: str, code: str, tmp_path: Path) -> None:
    if language == "python":
        run([sys.executable, "-W", "error", "-c", code], tmp_path)
        return
    assert language == "bash", f"a block in {language or 'no language'} is run by no test"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for line in code.splitlines():
        command = shlex.split(line)
        if command[0] == "make":
            # What the targets do is what this run, and continuous integration, do already.
            run(["make", "--dry-run", *command[1:]], ROOT)
        else:
            assert command[0] == "python", f"{line!r} is run by no test"
            run([sys.executable, *command[1:]], tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", BLOCK.sub("", page.read_text(encoding="utf-8")))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


def run(command: list[str], directory: Path) -> None:
    finished = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr
