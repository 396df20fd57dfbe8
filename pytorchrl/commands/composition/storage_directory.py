"""The directory on disk of the storage of each run, where several runs are given one."""

from collections.abc import Sequence
from pathlib import Path

from pytorchrl.commands.composition.data_source import in_directory
from pytorchrl.experiments.runs import storage_paths
from pytorchrl.experiments.runs.run_folder import RunFolder
from storages.component.factory import Factory
from storages.persistent.commits import has_commits
from storages.storage import Storage


def storage_of_run(storage: Factory[Storage], run: Path, names: Sequence[str], shared: bool) -> Factory[Storage]:
    """Return the storage of one of several runs, with a directory of its own if it is kept in one.

    It is in the given directory, or beside it where that is itself the storage of a run, to which seeds were added. A
    single run has the given directory itself, unless that holds the storages of other seeds. A run that is continued
    stays where it is: in its own directory where it now is the only one, or in the given one where other seeds were
    added, or where it shared the directory with others.

    Args:
        storage: as it is given for all runs.
        run: the run folder.
        names: of the folders below the given directory that lead to the run's own; one beside it has the first at its
            end.
        shared: whether several runs are given the directory.
    """
    directory = storage.hyper_parameters.get("directory")
    if directory is None:
        return storage
    given = Path(directory)
    inside, beside = given.joinpath(*names), Path(f"{given}-{names[0]}", *names[1:])
    recorded = _recorded_directory(run)
    for place in (given, inside, beside):
        if recorded is not None and place.resolve() == recorded.resolve():
            return in_directory(storage, str(place))
    if not shared and not any(has_commits(other) for other in given.glob("seed-*")):
        return storage
    # Moving or deleting the storage of one run must leave those of others in place.
    return in_directory(storage, str(beside if has_commits(given) else inside))


def _recorded_directory(run: Path) -> Path | None:
    """Return the directory of the main storage of a run that can be continued; None where there is none."""
    folder = RunFolder(run)
    if not folder.checkpoint_file.exists():
        return None
    directory = storage_paths.directories_of(folder.read_config()).get("main")
    return None if directory is None else Path(directory)
