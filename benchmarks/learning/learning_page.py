"""Train what a page of the documentation compares, and write the page: ``learning_page.py values --only cartpole``.

A run that was stopped, by Ctrl-C or in any other way, is continued by the same command with the same ``--runs``; one
that has finished is taken as it is. The page holds what has finished, whichever command did it.
"""

import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

# The packages of this checkout, and `benchmarks`.
sys.path.insert(0, str(Path(__file__).parents[2]))

import tyro

from benchmarks.learning import learning_table, staged_runs
from benchmarks.learning.collectors_tasks import COLLECTORS
from benchmarks.learning.imitation_tasks import IMITATION
from benchmarks.learning.learning_runs import PAGES
from benchmarks.learning.online_tasks import ONLINE
from benchmarks.learning.staged_runs import StagedPage

Tasks = Annotated[tuple[str, ...], tyro.conf.arg(metavar="TASK ...")]


def _table_of(name: str) -> Callable[..., None]:
    """Return the command of a page that compares algorithms in tasks."""

    def command(arguments: tyro.conf.OmitArgPrefixes[learning_table.Arguments], only: Tasks = ()) -> None:
        known = PAGES[name].tasks
        _check_tasks(only, known)
        usual = tuple(task for task, settings in known.items() if not settings.on_request)
        learning_table.make_page(name, only or usual, arguments)

    return command


def _stages_of(page: StagedPage) -> Callable[..., None]:
    """Return the command of a page whose runs have stages."""

    def command(arguments: tyro.conf.OmitArgPrefixes[staged_runs.Arguments], only: Tasks = ()) -> None:
        _check_tasks(only, page.tasks)
        staged_runs.make_page(page, only or page.default_tasks or tuple(page.tasks), arguments)

    return command


def _check_tasks(only: Collection[str], known: Collection[str]) -> None:
    unknown = set(only) - set(known)
    if unknown:
        raise SystemExit(f"--only: there is no task {', '.join(sorted(unknown))}; choose from {', '.join(known)}")


PAGE_COMMANDS: dict[str, Callable[..., Any]] = {
    "values": _table_of("values"),
    "policies": _table_of("policy-learning"),
    "mujoco": _table_of("mujoco"),
    "minatar": _table_of("minatar"),
    "million": _table_of("mujoco-million"),
    "atari": _table_of("atari-100k"),
    "strategies": _table_of("replay-strategies"),
    "bodies": _table_of("bodies"),
    "models": _table_of("latent-models"),
    "imitation": _stages_of(IMITATION),
    "online": _stages_of(ONLINE),
    "collectors": _stages_of(COLLECTORS),
}


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict(PAGE_COMMANDS, description=__doc__)
