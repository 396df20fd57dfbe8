"""The comparison of features with other libraries: a test covers each feature of this library."""

import ast
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "beside-others.md").read_text(encoding="utf-8")
LIBRARIES = 6


def rows(heading: str) -> list[list[str]]:
    """Cells of the numbered rows of the first table below a heading."""
    table = PAGE.partition(f"# {heading}\n")[2].partition("\n## ")[0]
    numbered = re.findall(r"^\| (\d+ \|.*) \|$", table, re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in numbered]


FEATURES = rows("Comparison of features")
TESTS = rows("Tests")


def text_of(cell: str) -> str:
    """The text of a cell without its link."""
    return re.sub(r"\[(.*)\]\(.*\)", r"\1", cell)


def test_features_are_numbered_and_compared() -> None:
    assert [int(row[0]) for row in FEATURES] == list(range(1, 35))
    assert len({feature for _, feature, *_ in FEATURES}) == len(FEATURES)
    for _, feature, *cells in FEATURES:
        assert len(cells) == LIBRARIES, feature
        assert {text_of(cell) for cell in cells} <= {"yes", "partly", "no", "?"}, feature
        assert text_of(cells[0]) != "?", feature


def test_each_feature_of_this_library_has_a_test() -> None:
    ours = {number for number, _, cell, *_ in FEATURES if text_of(cell) != "no"}
    assert ours == {number for number, *_ in TESTS}


@pytest.mark.parametrize("cell", [cell for _, cell in TESTS])
def test_each_listed_test_exists(cell: str) -> None:
    found = re.fullmatch(r"\[(\w+\.py)\]\((\S+)\) `(test_\w+)`", cell)
    assert found is not None, cell
    shown, link, name = found.groups()
    file = DOCS / link
    assert file.name == shown
    module = ast.parse(file.read_text(encoding="utf-8"))
    assert name in {node.name for node in module.body if isinstance(node, ast.FunctionDef)}


def test_each_feature_marked_partly_has_an_explanation() -> None:
    partial = {number for number, _, *cells in FEATURES if "partly" in map(text_of, cells)}
    assert partial == {number for number, *_ in rows("Partial features")}
