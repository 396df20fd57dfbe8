"""The pictures of what algorithms learn, of those that other pages show."""

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent


def curves_of(names: set[str]) -> str:
    """The section of a page with the pictures of its algorithms; empty where there are none."""
    pictures = [*_of_examples(names), *_beside_others(names)]
    return "\n\n".join(["## Curve", *pictures]) if pictures else ""


def _of_examples(names: set[str]) -> Iterator[str]:
    """Pictures of ``learning.md``, which has a section for each example."""
    text = (DOCS / "learning.md").read_text(encoding="utf-8")
    for script, picture in re.findall(r"^## `(examples/\w+\.py)`\n\n!\[.*\]\((.+)\)$", text, re.MULTILINE):
        code = (DOCS.parent / script).read_text(encoding="utf-8")
        if names & set(re.findall(r"\bprl\.(\w+)\.", code)):
            yield f"![Return over environment steps of the runs of {script}](../{picture})"


def _beside_others(names: set[str]) -> Iterator[str]:
    """Pictures of ``values.md``, which has a section for each environment, with a row for each algorithm."""
    page = DOCS / "values.md"
    sections = page.read_text(encoding="utf-8").split("\n## ")[1:] if page.exists() else []
    for section in sections:
        # "double DQN" is DQN; a row whose cells hold no number has not been run.
        rows = {row[1].split()[-1] for row in re.finditer(r"^\| `(.+?)` \|.*\d.*$", section, re.MULTILINE)}
        picture = re.search(r"^!\[.*\]\((.+)\)$", section, re.MULTILINE)
        if picture is not None and names & rows:
            env = section.splitlines()[0]
            yield f"![Return over environment steps in {env}, beside other algorithms](../{picture[1]})"
            yield f"The settings and figures of {env} are in [values.md](../values.md)."
