"""The site: it builds strictly, needs no network, documents every public name, and works in a browser."""

import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from torch.nn import Module

import pytorchrl as prl
from docs.docstring_roles import declared_by
from docs.equations import displayed
from docs.generated_parts import exported
from docs.reference_pages import pages_of_names
from tests.support.browser import headless_browser, visit
from tests.support.pages import ROOT
from tests.support.profiles import by_profile

DOCS = ROOT / "docs"
PHONE, LAPTOP = 390, 1_280
"""Widths of windows, in pixels."""
SCROLLED = """(selector) => Array.from(document.querySelectorAll(selector))
    .filter((element) => element.scrollWidth > element.clientWidth + 1)
    .map((element) => element.textContent.slice(0, 80))"""
"""Script that lists the elements that are wider than their place."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.long
def test_no_page_loads_files_from_the_network(site: Path) -> None:
    remote = re.compile(r"""(?:<script[^>]*src|<link[^>]*(?:stylesheet|icon)[^>]*href|<img[^>]*src)=["']https?:""")
    assert [page.name for page in site.glob("**/*.html") if remote.search(page.read_text("utf-8"))] == []


@pytest.mark.long
def test_the_reference_gives_types_and_true_defaults_of_hyper_parameters(site: Path) -> None:
    untyped = re.compile(r"<b><code>(\w+)</code></b>\s*\u2013")
    found = {
        page.name: names for page in site.glob("api/*/*.html") if (names := untyped.findall(page.read_text("utf-8")))
    }
    assert found == {}
    page = " ".join((site / "api" / "algorithms" / "PPO.html").read_text("utf-8").split())
    for name, kind, default in (
        ("clip_param", "number ≥ 0, or a schedule", "0.2"),
        # Inherited, with a default of its own.
        ("optimizer", "Optimizer", "Adam(eps=1e-05)"),
    ):
        shown = page.partition(f"<b><code>{name}</code></b>")[2].partition("</li>")[0]
        assert f"<code>{kind}</code>" in shown
        assert f"<code>{default}</code>" in shown


@pytest.mark.long
def test_lists_of_the_reference_lead_to_a_page_for_each_name(site: Path) -> None:
    links = [
        (page.parent / link).resolve()
        for page in site.glob("api/*.html")
        for link in re.findall(r'<td><a href="([\w/]+\.html)"><code>', page.read_text("utf-8"))
    ]
    pages = [site / "api" / path.replace(".md", ".html") for path, _ in pages_of_names()]
    assert sorted(links) == sorted(page.resolve() for page in pages)
    assert all(page.exists() for page in pages)


def test_docstrings_of_the_reference_have_the_declared_defaults() -> None:
    for cls in (prl.PPO, prl.TD3, prl.PERBuffer, prl.EpsilonGreedy, prl.StopAfter):
        declared = declared_by(f"{cls.__module__}.{cls.__name__}")
        assert declared
        assert all(kind for kind, _ in declared.values())
    assert declared_by("pytorchrl.PPO")["clip_param"] == ("number ≥ 0, or a schedule", "0.2")
    assert declared_by("pytorchrl.PERBuffer")["size"][1] is None
    assert declared_by("pytorchrl.unheard.Of") == {}


@pytest.mark.long
@pytest.mark.parametrize(("width", "dark", "every"), [(PHONE, False, by_profile(4, 1, 1)), (LAPTOP, True, 8)])
def test_pages_fit_the_window_and_report_no_error(site: Path, width: int, dark: bool, every: int) -> None:
    pages = sorted(page for page in site.glob("**/*.html") if page.name != "404.html")
    assert len(pages) > 300
    # A phone shows fewer columns of code, which is scrolled there.
    fitting = "div.arithmatex" if width == PHONE else "div.arithmatex, pre > code"
    with headless_browser() as browser, visit(browser, pages[0], width, dark=dark) as opened:
        for page in pages[::every]:
            opened.page.goto(page.as_uri(), wait_until="domcontentloaded")
            opened.assert_fits()
            assert opened.page.evaluate(SCROLLED, fitting) == [], page
        opened.page.wait_for_load_state()
        opened.assert_clean()


@pytest.mark.long
def test_tabs_and_search_lead_to_pages_of_parts_when_opened_as_files(site: Path) -> None:
    with headless_browser() as browser, visit(browser, site / "index.html") as opened:
        page = opened.page
        page.click(".md-tabs >> text=Parts")
        page.click(".md-sidebar--primary >> text=PERBuffer")
        assert page.inner_text("h1").startswith("PERBuffer")
        page.click(".md-header label[for=__palette_1]")
        assert page.get_attribute("body", "data-md-color-scheme") == "slate"
        page.fill("input.md-search__input", "Ornstein")
        page.click(".md-search-result__link[href*=ornstein_uhlenbeck]")
        page.wait_for_url("**/ornstein_uhlenbeck.html*")
        opened.assert_clean()


@pytest.mark.long
def test_equations_are_converted_to_mathml(site: Path) -> None:
    page = (site / "algorithms" / "sac.html").read_text("utf-8")
    assert page.count('class="arithmatex"><span class="equation"><math') == 2
    assert "$$" not in page
    assert r"\(" not in page


@pytest.mark.parametrize(
    ("equation", "pieces"),
    [
        ("a = b + c", ["a", "=b", "+c"]),
        ("a = -b", ["a", "=\u2212b"]),
        (r"f(-b) - c", ["f(\u2212b)", "\u2212c"]),
        (r"\left( a + b + c + d + e \right)^2", ["(a", "+b", "+c", "+d", "+e)2"]),
        (r"a \text{ or } b", ["a", "\xa0or\xa0b"]),
    ],
)
def test_the_line_of_an_equation_may_end_before_operators_and_words(equation: str, pieces: list[str]) -> None:
    assert [re.sub("<[^>]*>", "", piece) for piece in displayed(equation).split("<wbr>")] == pieces


def test_equations_between_wide_spaces_stand_on_lines_of_their_own() -> None:
    assert displayed(r"a = b, \qquad c = d").count('<span class="equation">') == 2


def test_every_public_name_is_in_the_reference_once() -> None:
    pages = {page.stem: page.read_text("utf-8") for page in (DOCS / "api").glob("[!R]*.md")}
    # Modules are sections, and the other pages have rows, or the names themselves.
    modules = re.findall(r"^## (\w+)$", pages.pop("modules"), re.MULTILINE)
    text = "\n".join(pages.values())
    named = re.findall(r"^(?:::: pytorchrl\.(\w+)$|\| `(\w+)` \|)", text, re.MULTILINE)
    assert Counter([*modules, *map("".join, named)]) == Counter(prl.__all__)


def test_every_class_and_function_has_a_page_of_its_own_in_the_reference() -> None:
    pages = [path for path, _ in pages_of_names()]
    assert "algorithms/PPO.md" in pages
    assert "heads/Values.md" in pages
    # Files of some systems do not tell capitals.
    assert max(Counter(path.lower() for path in pages).values()) == 1


@pytest.mark.parametrize(("kind", "folder"), [(prl.Storage, "storages"), (prl.Explorer, "explorers")])
def test_every_storage_and_explorer_has_a_page(kind: type, folder: str) -> None:
    titles = [page.read_text("utf-8").splitlines()[0] for page in (DOCS / folder).glob("*.md")]
    assert sorted(titles) == sorted(f"# {name}" for name in exported(kind))


@pytest.mark.parametrize("page", sorted([*(DOCS / "storages").glob("*.md"), *(DOCS / "explorers").glob("*.md")]))
def test_the_example_of_a_part_composes(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert page.read_text("utf-8").splitlines()[0].removeprefix("# ") in code
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    exec(compile(code, page.name, "exec"), names)  # trusted: a page of this repository
    if isinstance(scheme := names.get("scheme"), prl.Scheme):
        scheme.close()


def exported_heads() -> set[str]:
    heads = {name: getattr(prl.heads, name) for name in prl.heads.__all__}
    specifications = {name for name, each in heads.items() if isinstance(each, type) and not issubclass(each, Module)}
    return specifications - {"Head", "DistributionHead"}


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("schedules", {*exported(prl.Schedule)}),
        ("optimisers", {*exported(prl.Optimizer)}),
        ("callbacks", {*exported(prl.Callback)} - {"Callback"}),
        ("heads", exported_heads()),
    ],
)
def test_a_page_of_parts_lists_each_part_of_its_kind_once(page: str, names: set[str]) -> None:
    text = (DOCS / "parts" / f"{page}.md").read_text("utf-8")
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted(names)


def test_make_docs_builds_the_site_strictly() -> None:
    make = shutil.which("make")
    assert make is not None
    output = subprocess.run([make, "--dry-run", "docs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "mkdocs build --strict" in output
