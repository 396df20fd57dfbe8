"""The pages of the API reference: one for each kind of public name, which lists the names, and one for each name.

``python docs/generated_parts.py`` writes the lists. The site alone has the pages of names (:func:`pages_of_names`),
which its lists link to (:func:`with_links`).
"""

import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium

import pytorchrl as prl
from docs.algorithm_parameters import plain_text

DOCS = Path(__file__).parent
KINDS: tuple[tuple[str, Any], ...] = (
    ("algorithms", prl.Algorithm),
    ("storages", prl.Storage),
    ("explorers", (prl.Explorer, prl.Schedule)),
    ("actors", prl.Actor),
    ("callbacks", prl.Callback),
    ("optimisers", prl.Optimizer),
    ("environments", (gymnasium.Env, gymnasium.Wrapper)),
    ("errors", Exception),
)
"""Pages, and the classes whose children are on them."""
OTHERS = {
    "storages": (
        *(
            "Episodes",
            "LocalShards",
            "MixedSource",
            "MixedStorage",
            "RandomIntensity",
            "RandomShift",
            "RateLimit",
            "ReplayShard",
        ),
        *("Sequences", "ShardGroup", "ShardedReplay", "SliceWriter", "factory_of_shard", "from_dataset"),
    ),
    "environments": ("LearntReward", "RewardFunction", "VecEnv", "VecStep", "atari_envs"),
    "algorithms": (
        *("ActingStep", "EveryEpisodes", "EveryRollout", "EveryTransitions"),
        *("Losses", "Needs", "Result", "Rows", "UpdatePlan", "View"),
    ),
    "explorers": ("Exploration",),
}
FIRST = ("Scheme", "Learner", "VecEnv", "Storage", "ReplayBuffer", "Callback", "Actor", "Optimizer", "Explorer")
"""What a page begins with; the rest is in alphabetical order."""
ON_ONE_PAGE = ("errors", "fields")
"""Kinds of which all names fit on one page."""
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
PAGE_OF_NAME = """---
title: {name}
search:
  boost: 0.5
---

# {name}

{where}

::: pytorchrl.{path}
    options:
      show_root_heading: false
      heading_level: 2
"""


def reference(page: str) -> str:
    """The list of the names of a page; where all are on one page, they themselves, for the plugin for references."""
    if page in ON_ONE_PAGE:
        return "\n\n".join(f"::: pytorchrl.{name}" for name in _names_of(page))
    if page == "modules":
        return "\n\n".join(_section(name) for name in _names_of(page))
    return _table({name: getattr(prl, name) for name in _names_of(page)})


def pages_of_names() -> Iterator[tuple[str, str]]:
    """Path below the folder of the reference, and Markdown, of each page of a name."""
    for kind in dict.fromkeys(_page_of(name) for name in prl.__all__):
        if kind in ON_ONE_PAGE:
            continue
        title = (DOCS / "api" / f"{kind}.md").read_text("utf-8").splitlines()[0].removeprefix("# ")
        for name in _names_of(kind):
            # A module is a section of its page, and has pages of its members.
            for path in [f"{name}.{each}" for each in _members(name)] if kind == "modules" else [name]:
                where = f"[API](../README.md) / [{title}](../{kind}.md) / `prl.{path}`"
                if page := _page_with(path.rpartition(".")[2]):
                    where += (
                        f". An example and more: [{title} / {page.stem}](../../{page.relative_to(DOCS).as_posix()})"
                    )
                yield _file_of(kind, path), PAGE_OF_NAME.format(name=path.split(".")[-1], where=where, path=path)


def with_links(page: str, markdown: str) -> str:
    """The list of a page, of which each name leads to its page."""
    if page != "modules":
        return ROW.sub(lambda row: f"| [`{row[1]}`]({_file_of(page, row[1])}) |", markdown)
    sections = re.split(r"^## ", markdown, flags=re.MULTILINE)
    linked = [ROW.sub(rf"| [`\1`]({section.splitlines()[0]}/\1.md) |", section) for section in sections[1:]]
    return "## ".join([sections[0], *linked])


def own_line(cls: type[Any]) -> str | None:
    """What a class is, from the line "Name: what it is." in the docstring of its module, if there is one."""
    lines = (inspect.getdoc(inspect.getmodule(cls)) or "").splitlines()
    own = next((line for line in lines if line.startswith(f"{cls.__name__}: ")), None)
    return own and own.split(": ", 1)[1].rstrip(".")


def _names_of(page: str) -> list[str]:
    names = [name for name in prl.__all__ if _page_of(name) == page]
    return sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name.lower()))


def _page_of(name: str) -> str:
    each = getattr(prl, name)
    if isinstance(each, str):
        return "fields"
    if inspect.ismodule(each):
        return "modules"
    if inspect.isclass(each):
        for page, bases in KINDS:
            if issubclass(each, bases):
                return page
    return next((page for page, names in OTHERS.items() if name in names), "learner")


def _file_of(kind: str, path: str) -> str:
    return f"{path.replace('.', '/')}.md" if kind == "modules" else f"{kind}/{path}.md"


def _section(name: str) -> str:
    module = getattr(prl, name)
    purpose = plain_text(inspect.getdoc(module) or "").partition("\n\n")[0]
    return f"## {name}\n\n{purpose}\n\n{_table(_members(name))}"


def _members(name: str) -> dict[str, Any]:
    """The public members of a module that have no page as members of the package."""
    module: ModuleType = getattr(prl, name)
    return {each: getattr(module, each) for each in module.__all__ if each not in prl.__all__}


def _table(named: dict[str, Any]) -> str:
    rows = [f"| `{name}` | {_line(each)} |" for name, each in named.items()]
    return "\n".join(["| name | description |", "| --- | --- |", *rows])


def _line(each: Any) -> str:
    line = (own_line(each) if inspect.isclass(each) else None) or (inspect.getdoc(each) or "").partition("\n")[0]
    line = plain_text(line).rstrip(".").replace("|", r"\|")
    return line[:1].upper() + line[1:]


@functools.cache
def _described() -> dict[str, Path]:
    """Pages with the hyper-parameters of classes, by the names of these."""
    marker = re.compile(r"<!-- generated: hyper-parameters of ([\w, ]+) -->")
    pages = [*sorted(DOCS.glob("algorithms/*.md")), *sorted(DOCS.glob("storages/*.md"))]
    found = [(marker.search(page.read_text("utf-8")), page) for page in pages]
    return {name: page for names, page in found if names for name in names[1].split(", ")}


def _page_with(name: str) -> Path | None:
    return _described().get(name)
