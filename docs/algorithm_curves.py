"""The pictures of what algorithms learn, of those that other pages show."""

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
COMPARISONS = ("values.md", "policy-learning.md", "mujoco.md")
"""Pages that compare algorithms."""


def curves_of(names: set[str]) -> str:
    """The section of a page with the pictures of its algorithms; empty where there are none."""
    pictures = [*_of_examples(names), *_beside_others(names)]
    return "\n\n".join(["## Curve", *pictures]) if pictures else ""


def _of_examples(names: set[str]) -> Iterator[str]:
    """Pictures of ``learning.md``, which has a section for each example."""
    text = (DOCS / "learning.md").read_text(encoding="utf-8")
    for script, picture in re.findall(r"^## `(examples/\w+\.py)`.*\n\n!\[.*\]\((.+)\)$", text, re.MULTILINE):
        code = (DOCS.parent / script).read_text(encoding="utf-8")
        if names & set(re.findall(r"\bprl\.(\w+)\.", code)):
            yield f"![Return over environment steps of the runs of {script}](../{picture})"


def _beside_others(names: set[str]) -> Iterator[str]:
    """Pictures of the pages that compare algorithms."""
    for page, env, picture in _comparisons(names):
        yield f"![Return over environment steps in {env}, beside other algorithms](../{picture})"
        yield f"The settings and figures of {env} are in [{page}](../{page})."


def _comparisons(names: set[str]) -> Iterator[tuple[str, str, str]]:
    """File, environment and picture of what compares any of the algorithms: a section for each environment."""
    for file in COMPARISONS:
        page = DOCS / file
        sections = page.read_text(encoding="utf-8").split("\n## ")[1:] if page.exists() else []
        for section in sections:
            picture = re.search(r"^!\[.*\]\((.+)\)$", section, re.MULTILINE)
            if picture is not None and names & _finished(section):
                yield file, section.splitlines()[0], picture[1]


def _finished(section: str) -> set[str]:
    """The algorithms of a table of which a seed has finished; "double DQN" is DQN."""
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    seeds = [number for number, title in enumerate(header) if title.startswith("seed ")]
    return {row[0].strip("`").split()[-1] for row in rows if any(row[number] != "missing" for number in seeds)}


def pages_of(names: set[str]) -> list[str]:
    """The pages, beside this file, that show what any of the algorithms learnt."""
    compared = dict.fromkeys(page for page, _, _ in _comparisons(names))
    return [*compared, *(["learning.md"] if any(_of_examples(names)) else [])]
