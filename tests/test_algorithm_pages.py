"""Pages of the algorithms: each algorithm has one, its tables match the classes, its example composes the algorithm."""

import re
from pathlib import Path
from typing import Any

import pytest

import pytorchrl as prl
from docs import algorithm_curves, generated_parts
from docs.algorithm_parameters import argument_texts
from docs.generated_parts import DOCS, PAGES, documented, exported
from storages.component.declared import hyper_parameters_of

NAMES = list(exported(prl.Algorithm))
PAGES_OF_ALGORITHMS = [page for page in sorted(PAGES.glob("*.md")) if page.name != "README.md"]
SECTIONS = ["When to use it", "Example", "Composition", "Hyper-parameters", "Curve", "Pitfalls", "Source"]


def test_every_exported_algorithm_has_a_page_that_lists_its_hyper_parameters() -> None:
    listed = [name for page in PAGES_OF_ALGORITHMS for name in documented(page)]
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.parametrize("page", sorted(DOCS.glob("**/*.md")), ids=lambda page: page.stem)
def test_the_generated_parts_of_a_page_are_up_to_date(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert generated_parts.rewritten(text) == text, "python docs/generated_parts.py writes them anew"
    assert text.count("<!-- generated:") == len(generated_parts.BLOCK.findall(text)) == text.count("<!-- end -->")


@pytest.mark.parametrize("name", NAMES)
def test_every_hyper_parameter_is_described_once(name: str) -> None:
    cls = getattr(prl, name)
    described = [each for base in cls.__mro__ if issubclass(base, prl.Algorithm) for each in argument_texts(base)]
    assert sorted(set(described)) == sorted(described)
    assert set(hyper_parameters_of(cls)) <= set(described)
    assert set(argument_texts(cls)) <= set(hyper_parameters_of(cls)), "a described hyper-parameter does not exist"


@pytest.mark.parametrize("page", PAGES_OF_ALGORITHMS, ids=lambda page: page.stem)
def test_the_example_of_a_page_composes_its_algorithm(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": page.stem}
    exec(compile(code, page.name, "exec"), names)  # trusted: a page of this repository
    scheme = names["scheme"]
    try:
        assert type(scheme.algorithm).__name__ in documented(page)
    finally:
        scheme.close()


def test_every_example_script_is_named_on_a_page_of_an_algorithm() -> None:
    named = {
        name for page in PAGES_OF_ALGORITHMS for name in re.findall(r"`examples/(\w+\.py)`", page.read_text("utf-8"))
    }
    scripts = {script.name for script in (PAGES.parents[1] / "examples").glob("*.py")}
    # It is of no single algorithm, and has a guide.
    assert named == scripts - {"own_loop.py", "serve_policy.py"}


def test_the_page_of_exploration_lists_every_explorer_and_schedule() -> None:
    text = (PAGES.parent / "exploration.md").read_text(encoding="utf-8")
    assert [name for name in exported(prl.Explorer) | exported(prl.Schedule) if f"| `{name}(" not in text] == []


@pytest.mark.parametrize("page", PAGES_OF_ALGORITHMS, ids=lambda page: page.stem)
def test_a_page_has_an_equation_and_its_sections_in_order(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == [section for section in SECTIONS if section in headings]
    assert set(SECTIONS) - set(headings) <= {"Curve"}
    assert "$$" in text
    assert ("## Curve" in text) == ("![" in text)
    assert re.search(r"\]\(https://", text[text.index("## Source") :]), "the source has no link"


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_equations_contain_no_markdown_syntax(page: Path) -> None:
    for equation in re.findall(r"\$\$(.*?)\$\$|\$(.*?)\$", page.read_text(encoding="utf-8"), re.DOTALL):
        text = "".join(equation)
        assert not re.search(r"\\[^A-Za-z]", text), f"Markdown removes the backslash in {text}"
        assert not re.search(r"[^A-Za-z0-9]_|[*<>|]", text), f"Markdown interprets a character in {text}"
        assert text.count("{") == text.count("}"), text


def test_a_description_of_several_lines_is_read_completely() -> None:
    class Documented(prl.DQN):
        """A title.

        Args:
            lr: learning rate; see
                https://arxiv.org: it falls.
            double: two
                lines.

        Raises:
            ValueError: not a hyper-parameter.
        """

    assert argument_texts(Documented) == {
        "lr": "learning rate; see https://arxiv.org: it falls.",
        "double": "two lines.",
    }


def test_curves_of_an_algorithm_come_from_pages_that_have_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm_curves, "DOCS", tmp_path / "docs")
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "some.py").write_text("algorithm = prl.DQN.create_factory()")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "learning.md").write_text("# Learning\n\n## `examples/some.py`\n\n![Runs](some.png)\n")
    assert algorithm_curves.curves_of({"DQN"}).count("](../some.png)") == 1
    assert algorithm_curves.curves_of({"AL", "PAL"}) == ""
    rows = "| algorithm | seed 1 |\n| --- | ---: |\n| `double DQN` | 450 |\n| `AL` | missing |\n| `PAL` | 1.5 |\n"
    values = f"# Values\n\n## Task-v1\n\nAll have 2 layers.\n\n{rows}\n![Curves](values-task.png)\n"
    (tmp_path / "docs" / "values.md").write_text(values)
    assert algorithm_curves.curves_of({"DQN"}).count("![") == 2
    assert "](../values-task.png)" in algorithm_curves.curves_of({"AL", "PAL"})
    assert algorithm_curves.curves_of({"AL"}) == ""
