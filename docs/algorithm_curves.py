"""The pictures of what algorithms learn, of those that other pages show."""

import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
COMPARISONS = ("values.md", "policy-learning.md", "mujoco.md")
"""Pages that compare algorithms, with a picture for each environment."""
TABLES = ("imitation.md", "offline-learning.md", "offline-to-online.md")
"""Pages that compare algorithms in tables alone, or in pictures of data sets."""
_NOT_MADE = ("missing", "not run", "-")


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
        for section in _sections(file):
            picture = re.search(r"^!\[.*\]\((.+)\)$", section, re.MULTILINE)
            if picture is not None and names & _finished(section):
                yield file, section.splitlines()[0], picture[1]


def _sections(file: str) -> list[str]:
    page = DOCS / file
    return re.split(r"^##? ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:] if page.exists() else []


def _finished(section: str) -> set[str]:
    """The algorithms that the rows name of which a run has finished; "double DQN" is DQN."""
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    header, *rows = table or [[]]
    runs = [number for number, title in enumerate(header) if title.startswith("seed ") or title == "ours"]
    made = [row for row in rows[1:] if any(row[number] not in _NOT_MADE for number in runs)]
    # Of a peer, the name of ours is followed by "of stable-baselines3".
    return {word for row in made if " of s" not in row[0] for cell in row for word in re.findall(r"\w+", cell)}


def pages_of(names: set[str]) -> list[str]:
    """The pages, beside this file, that show what any of the algorithms learnt."""
    compared = dict.fromkeys(page for page, _, _ in _comparisons(names))
    in_tables = [file for file in TABLES if any(names & _finished(section) for section in _sections(file))]
    return [*compared, *(["learning.md"] if any(_of_examples(names)) else []), *in_tables]
