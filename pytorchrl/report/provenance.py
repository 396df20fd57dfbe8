"""Provenance of runs: commit, command, machine and uncommitted changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytorchrl.experiments.runs.provenance import command_of
from pytorchrl.report.runs import RunRead

_LONGEST_DIFF = 200_000
"""Largest number of characters of a diff that are shown."""
_LONGEST_ERROR = 20_000


@dataclass(frozen=True)
class Provenance:
    """Provenance of a run."""

    run: str
    facts: Sequence[tuple[str, str]]
    diff: int | None
    """Number of the diff; None where the run folder has none."""


@dataclass(frozen=True)
class Diff:
    """Uncommitted changes that some runs have in common."""

    text: str
    runs: Sequence[str]
    is_cut: bool


@dataclass(frozen=True)
class Failure:
    """An error that ended a run, or keeps it from being read."""

    run: str
    text: str


def provenance_of(runs: Sequence[RunRead]) -> tuple[list[Provenance], list[Diff]]:
    """Return the provenance of each run, and the distinct diffs."""
    by_text: dict[str, list[str]] = {}
    for run in runs:
        if run.diff is not None:
            by_text.setdefault(run.diff, []).append(run.name)
    numbers = {text: number for number, text in enumerate(by_text)}
    origins = [
        Provenance(run.name, list(_facts(run.versions)), None if run.diff is None else numbers[run.diff])
        for run in runs
    ]
    return origins, [Diff(text[:_LONGEST_DIFF], names, len(text) > _LONGEST_DIFF) for text, names in by_text.items()]


def failures_of(runs: Sequence[RunRead]) -> list[Failure]:
    """Return the errors that ended runs; of a long one, the end."""
    return [Failure(run.name, run.error[-_LONGEST_ERROR:]) for run in runs if run.error is not None]


def _facts(versions: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in versions.items():
        if isinstance(value, Mapping):
            yield from _facts(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}".replace("_", " "), _shown(name, value)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list):
        return command_of(value) if name == "command" else ", ".join(map(str, value)) or "none"
    return {True: "yes", False: "no", None: "not known"}.get(value, str(value)) if not isinstance(value, str) else value
