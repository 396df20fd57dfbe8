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
from docs.generated_parts import exported
from tests.support.browser import NARROW, WIDE, headless_browser, visit
from tests.support.profiles import by_profile

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


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
def test_the_reference_gives_types_and_defaults_of_hyper_parameters(site: Path) -> None:
    required = re.compile(
        r"<code>(\w+)</code>\s*</td>\s*<td>\s*</td>\s*<td>(?:(?!</tr>).)*?<em>required</em>", re.DOTALL
    )
    untyped = {
        page.name: found for page in site.glob("api/*.html") if (found := required.findall(page.read_text("utf-8")))
    }
    assert untyped == {}
    page = " ".join((site / "api" / "algorithms.html").read_text("utf-8").split())
    clip = page.partition("<code>clip_param</code>")[2].partition("</tr>")[0]
    assert "number ≥ 0, or a schedule" in clip
    assert "<code>0.2</code>" in clip


def test_docstrings_of_the_reference_have_the_declared_defaults() -> None:
    for cls in (prl.PPO, prl.TD3, prl.PERBuffer, prl.EpsilonGreedy, prl.StopAfter):
        declared = declared_by(f"{cls.__module__}.{cls.__name__}")
        assert declared
        assert all(kind for kind, _ in declared.values())
    assert declared_by("pytorchrl.PPO")["clip_param"] == ("number ≥ 0, or a schedule", "0.2")
    assert declared_by("pytorchrl.PERBuffer")["size"][1] is None
    assert declared_by("pytorchrl.unheard.Of") == {}


@pytest.mark.long
@pytest.mark.parametrize(("width", "dark", "every"), [(NARROW, False, by_profile(4, 1, 1)), (WIDE, True, 8)])
def test_pages_fit_the_window_and_report_no_error(site: Path, width: int, dark: bool, every: int) -> None:
    pages = sorted(page for page in site.glob("**/*.html") if page.name != "404.html")
    assert len(pages) > 100
    with headless_browser() as browser, visit(browser, pages[0], width, dark=dark) as opened:
        for page in pages[::every]:
            opened.page.goto(page.as_uri(), wait_until="domcontentloaded")
            opened.assert_fits()
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
    assert page.count('display="block"') == 2
    assert "$$" not in page
    assert r"\(" not in page


def test_every_public_name_is_in_the_reference_once() -> None:
    text = "\n".join(page.read_text("utf-8") for page in (DOCS / "api").glob("*.md"))
    named = Counter(re.findall(r"^::: pytorchrl\.(\w+)$", text, re.MULTILINE))
    assert named == Counter(prl.__all__)


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
