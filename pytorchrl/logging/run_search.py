"""Find and read the runs below folders."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from pytorchrl.logging.curves import EVALUATION, TRAINING, Run, read_run
from pytorchrl.logging.groups import Group, grouped, named_groups
from pytorchrl.run_files import RunFiles

_BACKUP = re.compile(r"\.backup-\d+$")
"""Suffix of the folder that an overwritten run was moved to."""


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Find the run folders among paths and below them, each once; seed 2 comes before seed 10.

    Overwritten runs, folders within a run, and what is below a symbolic link are left out.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: a single path was given instead of a list.
    """
    found: dict[Path, Path] = {}
    for path in _listed(paths):
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist: expected a run folder, or a folder with runs below it")
        for folder in sorted(_below(path), key=_in_counting_order):
            # A relative and an absolute path may name the same folder.
            found.setdefault(folder.resolve(), folder)
    return list(found.values())


def read_runs(paths: Iterable[str | os.PathLike[str]], metric: str | None = None) -> tuple[list[Run], list[str]]:
    """Read the runs among paths and below them that have measured a metric.

    Args:
        paths: run folders, and folders with runs below them.
        metric: what they must have measured; a return, of evaluations or of training, where left out.

    Returns:
        The runs, and a line with the reason for each that was found below a folder and cannot be used.

    Raises:
        FileNotFoundError: a path does not exist, or there is no run that can be used.
        ValueError: a run that was named itself cannot be read, or a single path was given instead of a list.
    """
    named = _listed(paths)
    themselves = {path.resolve() for path in named}
    runs, left_out = [], []
    for folder in find_runs(named):
        try:
            run = read_run(folder)
            refuse_without(run, metric)
            runs.append(run)
        except (OSError, ValueError) as error:
            if folder.resolve() in themselves:
                raise
            # The folder is named once.
            reason = re.sub(f"^{re.escape(str(folder))} ", "it ", str(error))
            left_out.append(f"{folder} is left out: {reason}")
    if not runs:
        places = ", ".join(map(str, named)) or "no folder"
        raise FileNotFoundError("\n".join([f"there is no run with measurements in {places}", *left_out]))
    return runs, left_out


def read_groups(
    paths: Iterable[str | os.PathLike[str]] | Mapping[str, Iterable[str | os.PathLike[str]]], metric: str | None = None
) -> tuple[list[Group], list[str]]:
    """Read the runs among paths and below them in groups, and name those that have no names of the user's.

    Args:
        paths: as for :func:`read_runs`, or such lists by the names of groups.
        metric: as for :func:`read_runs`.

    Returns:
        The groups, and a line for each run that cannot be used.

    Raises:
        FileNotFoundError: as :func:`read_runs`.
        ValueError: as :func:`read_runs`.
    """
    if not isinstance(paths, Mapping):
        found, left_out = read_runs(paths, metric)
        return grouped(found), left_out
    read = {name: read_runs(of_name, metric) for name, of_name in paths.items()}
    groups = named_groups({name: found for name, (found, _) in read.items()})
    return groups, [line for _, lines in read.values() for line in lines]


def is_backup(folder: Path) -> bool:
    """Whether a folder is one that an overwritten run was moved to, or lies in one."""
    return any(_BACKUP.search(part) for part in folder.parts)


def refuse_without(run: Run, metric: str | None) -> None:
    """Raise an error for a run that has not measured a metric; see :func:`read_runs`.

    Raises:
        ValueError: it has not.
    """
    if any(len(run.curve(name)) for name in ((EVALUATION, TRAINING) if metric is None else (metric,))):
        return
    if metric is None:
        raise ValueError(f"{run.folder} has not measured a return yet: no episode has ended, no evaluation was made")
    logged = sorted({name for record in run.records for name in record} - {"steps", "seconds"})
    close = get_close_matches(metric, logged, n=1)
    hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(logged)}"
    raise ValueError(f"{run.folder} has not logged {metric!r}; {hint}")


def _listed(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return paths as a list; a single one, which would be taken as a list of its characters, is refused."""
    if isinstance(paths, str | os.PathLike):
        name = os.fspath(paths)
        raise ValueError(f"runs must be a list of paths, got the single path {name!r}; write [{name!r}]")
    return [Path(path) for path in paths]


def _below(path: Path) -> Iterator[Path]:
    if not path.is_dir() or _is_run(path):
        # A path that is no run folder is refused where it is read.
        yield path
        return
    for folder, subfolders, files in os.walk(path):
        if _BACKUP.search(folder):
            subfolders.clear()
        elif _is_run_of(files):
            subfolders.clear()
            yield Path(folder)


def _is_run(path: Path) -> bool:
    return _is_run_of(entry.name for entry in path.iterdir() if entry.is_file())


def _is_run_of(files: Iterable[str]) -> bool:
    run = RunFiles("")
    return bool({run.metrics_file.name, run.config_file.name} & set(files))


def _in_counting_order(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]
