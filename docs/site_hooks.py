"""What the site does beyond MkDocs.

Equations become MathML; each name of the API has a page; links to source files, which the site has not, become text;
the navigation may name a folder.
"""

import html
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from docs import equations, reference_pages

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAYED = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
SOURCE_FILE = re.compile(
    r"\[([^\]]*)\]\((?:\.\./)+(?:SECURITY\.md|pytorchrl/[\w./-]+\.md|(?!docs/)[\w./-]+\.(?:py|toml))\)"
)
"""A link to a file outside of the site, which a reader of the repository can follow."""


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add a page for each name of the API."""
    for path, markdown in reference_pages.pages_of_names():
        files.append(File.generated(config, f"api/{path}", content=markdown))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave the text of links to source files, and link names of the API to their pages."""
    folder, _slash, name = page.file.src_uri.rpartition("/")
    if folder == "api":
        markdown = reference_pages.with_links(name.removesuffix(".md"), markdown)
    return SOURCE_FILE.sub(r"\1", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Draw the equations of a page."""
    content = INLINE.sub(lambda found: equations.inline(html.unescape(found[1])), content)
    return DISPLAYED.sub(
        lambda found: f'<div class="arithmatex">{equations.displayed(html.unescape(found[1]))}</div>', content
    )


def on_config(config: Any, **_: Any) -> Any:
    """List the pages of a folder where the navigation names it: ``- Algorithms: algorithms/``."""
    config["nav"] = _expanded(config["nav"], Path(config["docs_dir"]))
    return config


def _expanded(entries: list[Any], docs: Path) -> list[Any]:
    expanded: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            ((title, inside),) = entry.items()
            if isinstance(inside, list) or inside.endswith("/"):
                inside = _expanded(inside if isinstance(inside, list) else [inside], docs)
            expanded.append({title: inside})
        elif entry.endswith("/"):
            pages = sorted((docs / entry).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
            expanded += [page.relative_to(docs).as_posix() for page in pages]
        else:
            expanded.append(entry)
    return expanded
