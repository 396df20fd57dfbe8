"""The documentation: every code block runs, and every internal link leads to an existing place."""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_interpreter
from tests.support.pages import BLOCK, COLUMNS, PAGES, ROOT, commands_of, lines_of_code, too_wide

ALGORITHMS = ROOT / "docs" / "algorithms"
TRAINS = re.compile(r"prl\.Learner|^python ", re.MULTILINE)
"""Found in blocks that take many seconds: they train an agent or start commands."""
FILE = re.compile(r"\A# (\w+)\.py$", re.MULTILINE)
"""First line of a block that other blocks of its page import: a reader saves the block as this file."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


PACKAGES = {
    "atari_envs": ("ale_py",),
    "MinAtar": ("minatar",),
    "--trials": ("optuna",),
    "import optuna": ("optuna",),
    "onnxruntime": ("onnx", "onnxscript", "onnxruntime"),
    "stable_baselines3": ("stable_baselines3",),
    "VecVideoRecorder": ("moviepy",),
    "prl.RayScheme": ("ray",),
}
"""Words in blocks, and the optional packages that these blocks need; without them, the blocks are skipped."""


OF_OTHER_TESTS = ("clusters.md", "journeys.md", "logs-to-policy.md")
"""Pages whose blocks depend on each other, or on a scheduler; they have tests of their own."""


def blocks() -> Iterator[Any]:
    """Language and code of each block, and the modules of its page that the code imports.

    The examples of algorithms, storages and explorers are excluded: other tests run them in one process, which takes
    far less time.
    """
    for page in PAGES:
        if page.parent.name in ("algorithms", "storages", "explorers") or page.name in OF_OTHER_TESTS:
            continue
        found = BLOCK.findall(page.read_text(encoding="utf-8"))
        modules = {name[1]: code for _, code in found if (name := FILE.match(code))}
        for number, (language, code) in enumerate(found, start=1):
            imported = {
                name: module for name, module in modules.items() if re.search(rf"(from|--import) {name}\b", code)
            }
            is_short = language == "python" and page == ROOT / "README.md" and not TRAINS.search(code)
            marks = [] if is_short else [pytest.mark.ray] if "prl.RayScheme" in code else [pytest.mark.long]
            yield pytest.param(language, code, imported, id=f"{name_of(page)}-{number}", marks=marks)


@pytest.mark.parametrize(("language", "code", "modules"), list(blocks()))
def test_a_code_block_runs_without_an_error(language: str, code: str, modules: dict[str, str], tmp_path: Path) -> None:
    for package in (package for word, needed in PACKAGES.items() if word in code for package in needed):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    for name, module in modules.items():
        (tmp_path / f"{name}.py").write_text(module, encoding="utf-8")
    if language == "python":
        # A block that imports a module of its page runs twice: the second run continues the first.
        for _ in range(2 if modules else 1):
            interpret(["-c", code], tmp_path, strict=True)
        return
    if language == "yaml":
        # The configuration of a run, of which only the first steps are trained.
        (tmp_path / "run.yaml").write_text(code, encoding="utf-8")
        train = ["-m", "pytorchrl", "train", "--config", "run.yaml", "--steps", "50", "--seeds", "1"]
        interpret(train, tmp_path)
        return
    assert language == "bash", f"a block in {language or 'no language'} is run by no test"
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for line in commands_of(code):
        command = shlex.split(line)
        if command[0] == "make":
            # The tests and continuous integration run the targets already, so a dry run is enough.
            subprocess.run(["make", "--dry-run", *command[1:]], cwd=ROOT, capture_output=True, check=True)
        else:
            assert command[0] == "python", f"{line!r} is run by no test"
            interpret(command[1:], tmp_path)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 70


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_is_read_without_scrolling(page: Path) -> None:
    assert too_wide(page.read_text("utf-8")) == []


def test_the_python_of_pages_is_formatted_to_the_width_of_a_page() -> None:
    settings = ["--config", "docs/pages.toml", "README.md", "docs"]
    command = [sys.executable, "-m", "ruff", "format", "--check", *settings]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
    assert f"line-length = {COLUMNS}\n" in (ROOT / "docs" / "pages.toml").read_text("utf-8")


def test_every_page_of_an_algorithm_is_in_the_table_of_curves() -> None:
    _, table, _ = re.split(r"<!-- (?:generated: algorithms|end) -->", (ALGORITHMS / "README.md").read_text("utf-8"))[
        -3:
    ]
    pages = re.findall(r"^\| \[[^]]+\]\((\w+\.md)\)", table, re.MULTILINE)
    assert sorted(pages) == sorted(page.name for page in ALGORITHMS.glob("[!R]*.md"))


def test_five_common_tasks_take_no_more_lines_than_in_other_libraries() -> None:
    page = (ROOT / "docs" / "five-tasks.md").read_text(encoding="utf-8")
    stated = dict(re.findall(r"^\| ([a-z ,]+) \| ([\d| -]+) \|$", page, re.MULTILINE))
    sections = [section.partition("\n") for section in re.split("^## ", page, flags=re.MULTILINE)[1:]]
    assert [title.lower() for title, _, _ in sections] == list(stated)
    for title, _, section in sections:
        ours_and_theirs = BLOCK.findall(section)
        ours_and_theirs += [("", code) for code in re.findall(r"(?:^    .*\n)+", BLOCK.sub("", section), re.MULTILINE)]
        lines = [lines_of_code(language, code) for language, code in ours_and_theirs]
        if FILE.match(ours_and_theirs[0][1]):
            # A file and the command that reads it count together.
            lines = [lines[0] + lines[1], *lines[2:]]
        ours, *others = stated[title.lower()].split(" | ")
        assert [ours, *(number for number in others if number != "-")] == [str(number) for number in lines], title
        assert all(int(ours) <= int(number) for number in others if number != "-")


def test_each_custom_part_of_the_guide_takes_at_most_twenty_lines() -> None:
    code = BLOCK.findall((ROOT / "docs" / "extending.md").read_text(encoding="utf-8"))
    lines = [lines_of_code(language, block) for language, block in code]
    assert len(lines) == 15
    assert max(lines) <= 20
    assert not any(re.search(r"[\s.](?!__init__)_\w", block) for _, block in code), "a block uses a private name"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_internal_links_of_a_page_lead_to_existing_files_and_headings(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]*)(#[^)]*)?\)", BLOCK.sub("", page.read_text(encoding="utf-8")))
    inside = [(page.parent / link if link else page, anchor) for link, anchor in links if "://" not in link]
    missing = [str(file) for file, anchor in inside if not file.exists() or (anchor and anchor not in anchors(file))]
    assert not missing


def anchors(page: Path) -> list[str]:
    """The link targets of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return ["#" + re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def interpret(arguments: list[str], directory: Path, strict: bool = False) -> None:
    finished = warm_interpreter.run(arguments, directory, strict=strict)
    assert finished.returncode == 0, finished.stderr
