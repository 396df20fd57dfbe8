"""``python -m pytorchrl inspect``: describe the storage in a checkpoint, or single transitions of it."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import tyro

from pytorchrl.commands.data.datasets import show
from pytorchrl.commands.shared import Imports, Run
from pytorchrl.experiments.inspection.episode_film import film_transition
from pytorchrl.experiments.inspection.overview import directory_of_episodes, inspect_storage
from pytorchrl.experiments.inspection.saved_storage import SavedStorage
from pytorchrl.experiments.inspection.transitions import Ranking, StoredTransitions, TransitionDescription
from pytorchrl.experiments.recordings.video import refuse_missing_encoder
from pytorchrl.experiments.runs.user_modules import import_modules
from pytorchrl.logging.pictures.plots import refuse_other_than_png
from pytorchrl.logging.pictures.storage_plot import plot_storage
from pytorchrl.logging.pictures.transition_plot import plot_transition
from pytorchrl.logging.tables.storage_report import storage_report
from pytorchrl.logging.tables.transition_report import transition_report, transitions_table
from pytorchrl.terminal import TextConsole, tell

Choice: TypeAlias = Literal["most surprising"] | Ranking
Number = Annotated[int | None, tyro.conf.arg(metavar="N")]


def inspect(
    path: Run,
    row: Number = None,
    most_surprising: Number = None,
    highest_priority: Number = None,
    highest_reward: Number = None,
    lowest_reward: Number = None,
    most_drawn: Number = None,
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None,
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None,
    around: int = 4,
    imports: Imports = (),
) -> None:
    """Describe the storage in a checkpoint, or single transitions: episode, age, priority, observations.

    Without options it describes the storage as a whole, with histograms in a PNG file, or as `data show` does, if the
    storage keeps whole episodes on disk. With one of the options that choose transitions it describes these.

    Args:
        path: a run folder, or a checkpoint.
        row: the transition with this row number, as in INDICES of a batch.
        most_surprising: the N transitions with the largest errors in their last update.
        highest_priority: the N transitions of highest priority; those not sampled yet have the highest.
        highest_reward: the N transitions of highest reward.
        lowest_reward: the N transitions of lowest reward.
        most_drawn: the N transitions that were sampled most often, of a storage with count_draws.
        output: a picture that ends in .png, of the steps around the (first) transition; of the whole storage,
            storage.png in the working directory where left out.
        video: a video of the episode of the (first) transition, played again; it ends in .mp4 or .gif.
        around: steps before and after the transition that are shown.
        imports: modules to import first.
    """
    if output is not None:
        refuse_other_than_png(output)
    import_modules(imports)
    chosen: dict[Choice, int | None] = {
        "most surprising": most_surprising,
        "highest priority": highest_priority,
        "highest reward": highest_reward,
        "lowest reward": lowest_reward,
        "most drawn": most_drawn,
    }
    given = {name: count for name, count in chosen.items() if count is not None}
    if row is None and not given:
        if video is not None:
            raise ValueError("--video films the episode of a transition: choose one with --row or --most-surprising 1")
        _inspect_storage(path, output)
        return
    if (row is not None) + len(given) > 1:
        raise ValueError(f"choose one of --row, {', '.join(map(_option, chosen))}")
    if around < 0:
        raise ValueError(f"--around must be at least 0, got {around}")
    if video is not None:
        refuse_missing_encoder(video.suffix, video)
    transitions = StoredTransitions(SavedStorage.read(path))
    if row is not None:
        rows = [row]
    else:
        ((name, count),) = given.items()
        rows = _rows(transitions, name, count)
    described = transitions.describe(rows)
    steps = transitions.describe(transitions.around(rows[0], around))
    TextConsole().print(transition_report(described[0], steps) if len(described) == 1 else transitions_table(described))
    if output is not None or video is not None:
        _show(path, described[0], steps, output, video)


def _inspect_storage(path: Path, output: Path | None) -> None:
    if (episodes := directory_of_episodes(path)) is not None:
        tell(f"The storage keeps whole episodes in {episodes}:")
        show(episodes)
        return
    inspection = inspect_storage(path)
    TextConsole().print(storage_report(inspection))
    if inspection.episodes is not None:
        tell(f"Histograms: {plot_storage(inspection, output or Path('storage.png'))}")


def _option(name: Choice) -> str:
    return f"--{name.replace(' ', '-')}"


def _rows(transitions: StoredTransitions, name: Choice, count: int) -> list[int]:
    option = _option(name)
    if count < 1:
        raise ValueError(f"{option} must be at least 1, got {count}")
    if name == "most surprising":
        # Raises an error that says what is missing where no transition has a priority.
        transitions.ranked("highest priority", count)
        rows = transitions.most_surprising(count)
    else:
        rows = transitions.ranked(name, count)
    if not len(rows):
        raise ValueError(f"{transitions.storage.file}: no stored transition has a value to rank by {option}")
    found: list[int] = rows.tolist()
    return found


def _show(
    path: Path,
    description: TransitionDescription,
    around: list[TransitionDescription],
    output: Path | None,
    video: Path | None,
) -> None:
    """Draw and film a transition, and tell where the pictures come from."""
    film = film_transition(path, description.row)
    tell(film.description)
    if output is not None:
        tell(f"Picture: {plot_transition(description, around, film, output)}")
    if video is not None:
        tell(f"Video: {film.write(video)}; row {description.row} has a red frame")
