"""Write the report: one HTML file with all data, styles and scripts."""

import base64
import hashlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pytorchrl.comparison.scores import LAST
from pytorchrl.logging.groups import title as title_of
from pytorchrl.logging.run_search import find_runs
from pytorchrl.report.charts import MOST_POINTS, curves_of
from pytorchrl.report.groups import RunGroup, differences_between, groups_of, settings_of
from pytorchrl.report.provenance import Failure, failures_of, provenance_of
from pytorchrl.report.results import evaluations_in, rows_of, statistics_of
from pytorchrl.report.runs import RunRead, Unreadable, read_runs
from pytorchrl.report.storage import NO_CHECKPOINT, read_storage, surprising_of
from pytorchrl.report.videos import videos_of
from pytorchrl.terminal import printable
from pytorchrl.version import VERSION, install_command
from storages.files import replacing

if TYPE_CHECKING:
    from jinja2 import Environment

_SCRIPTS = ("theme.js", "tabs.js", "panels.js", "tables.js")
_SCRIPTS_OF_PARTS = {"curves": "curves.js", "storages": "histograms.js"}
_HEADINGS = {
    "curves": "Result",
    "overview": "Runs",
    "statistics": "Statistics",
    "compositions": "Settings",
    "evaluations": "Evaluations",
    "storages": "Storages",
    "surprising": "Most surprising",
    "videos": "Videos",
    "provenance": "Provenance",
    "errors": "Errors",
}
"""The parts of the page and their headings, in order; a part without content is left out."""


@dataclass(frozen=True)
class Limits:
    """Limits of the large contents of a page."""

    videos: float = 30.0
    """Megabytes of all videos."""
    checkpoint: float = 1_000.0
    """Megabytes of a checkpoint whose storage is still read."""


def write_report(
    paths: Sequence[Path],
    output: Path,
    title: str | None = None,
    limits: Limits | None = None,
    *,
    names: Mapping[str, str] | None = None,
    order: Sequence[str] = (),
) -> Path:
    """Write a self-contained HTML page about runs; no run folder is changed.

    Args:
        paths: run folders, and folders that hold some.
        output: the page, which ends in ".html".
        title: of the page; None names algorithms and environments.
        limits: of the page's size; None takes the defaults.
        names: pairs of a group's own name and the one that is shown, as of figures.
        order: the names, as they are shown, of the groups that come first.

    Returns:
        ``output``.

    Raises:
        FileNotFoundError: a folder is not there, or there is no run.
        RuntimeError: a package is not installed.
        ValueError: ``output`` does not end in .html or .htm; there is no group of a name, or two would have the same.
    """
    output = Path(output)
    if output.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the report is a page; its name must end in .html, got {str(output)!r}")
    _refuse_missing_packages()
    folders = find_runs(paths)
    if not folders:
        raise FileNotFoundError(f"there is no run in {', '.join(map(str, paths)) or 'no folder'}")
    read = list(read_runs(folders))
    groups = groups_of([run for run in read if isinstance(run, RunRead)], names, order)
    page = _page(read, groups, title, limits or Limits())
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as file:
        file.write(page.encode(errors="replace"))
    return output


def _refuse_missing_packages() -> None:
    for package in ("plotly", "jinja2"):
        if importlib.util.find_spec(package) is None:
            raise RuntimeError(f"a report needs the package {package}: {install_command('report')}, or {package} alone")


def _page(read: Sequence[RunRead | Unreadable], groups: Sequence[RunGroup], title: str | None, limits: Limits) -> str:
    from plotly.offline import get_plotlyjs

    # All sections have the runs in the order of the groups.
    runs = [run for group in groups for run in group.runs]
    unreadable = [Failure(run.name, run.reason) for run in read if not isinstance(run, RunRead)]
    storages = [read_storage(run, limits.checkpoint) for run in runs]
    origins, diffs = provenance_of(runs)
    environments = list(dict.fromkeys(group.environment for group in groups))
    by_environment = [[group for group in groups if group.environment == one] for one in environments]
    statistics = [statistics_of(one) for one in by_environment]
    evaluations = [evaluations_in(run) for run in runs]
    surprising = {run.name: found for run in runs if (found := surprising_of(run, limits.checkpoint))}
    videos = videos_of(runs, limits.videos)
    failures = [*failures_of(runs), *unreadable]
    contents = {
        "statistics": any(one.tables or one.notes for one in statistics),
        "evaluations": any(evaluations),
        "storages": any(storage != NO_CHECKPOINT for storage in storages),
        "surprising": surprising,
        "videos": videos,
        "errors": failures,
    }
    parts = {part: heading for part, heading in _HEADINGS.items() if contents.get(part, runs)}
    environment = _environment()
    plotly = get_plotlyjs()
    scripts = [*_SCRIPTS, *(name for part, name in _SCRIPTS_OF_PARTS.items() if part in parts)]
    script = "\n".join(_part(environment, name) for name in scripts)
    data = {"curves": curves_of(groups), "histograms": [getattr(storage, "histograms", []) for storage in storages]}
    return environment.get_template("page.html").render(
        title=title or title_of([group.group for group in groups]) or "Runs",
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=VERSION,
        style=_part(environment, "page.css"),
        plotly=plotly,
        script=script,
        # No script in the data of a run folder is run, and nothing is loaded from a network.
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; media-src data:; "
        f"script-src {_hash_of(plotly)} {_hash_of(script)}",
        data=json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        rows=rows_of(groups),
        last=LAST,
        groups=groups,
        environments=environments,
        differences=[([group.label for group in one], differences_between(one)) for one in by_environment],
        statistics=statistics,
        runs=runs,
        settings=[settings_of(run.config) for run in runs],
        evaluations=evaluations,
        storages=storages,
        surprising=surprising,
        videos=videos,
        video_limit=limits.videos,
        origins=origins,
        diffs=diffs,
        failures=failures,
        parts=parts,
        most_points=MOST_POINTS,
    )


def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("pytorchrl.report"),
        autoescape=True,
        finalize=_as_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _as_text(value: object) -> object:
    """Escape control characters of a text; what templates mark as safe stays as it is."""
    return printable(value) if type(value) is str else value


def _part(environment: "Environment", name: str) -> str:
    """Return the text of a file beside the templates that is no template itself."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _hash_of(script: str) -> str:
    """Return the hash that allows a script in the content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
