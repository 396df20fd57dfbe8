"""The pages of the documentation, and the code in them."""

import io
import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INDENTED = re.compile(r"(?<=\n\n)(?:    .*\n)+")
COLUMNS = 80
"""Longest line of code that a page of the site shows without scrolling, in a window of 1,280 pixels."""


def commands_of(code: str) -> list[str]:
    """The commands of a block, of which a backslash at the end of a line continues one."""
    return re.sub(r"\\\n *", "", code).splitlines()


def lines_of_code(language: str, code: str) -> int:
    """Lines without comments and blank lines; a statement or command that is wrapped counts once."""
    if language == "python":
        tokens = tokenize.generate_tokens(io.StringIO(code).readline)
        return sum(token.type == tokenize.NEWLINE for token in tokens)
    return sum(bool(line.strip()) and not line.startswith("#") for line in commands_of(code))


def too_wide(page: str) -> list[str]:
    """Lines of the code blocks of a page that are longer than its width."""
    code = [block for _, block in BLOCK.findall(page)] + INDENTED.findall(BLOCK.sub("", page))
    # The site removes the indentation of a block.
    lines = [line for block in code for line in block.splitlines()]
    return [line for line in lines if len(line) > COLUMNS]
