"""``python -m pytorchrl train``: compose a run from classes given by name, and train it with one or more seeds."""

import argparse
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.process_seeds import seed_process
from pytorchrl.commands.composition.composing import (
    Composed,
    checked,
    composed,
    fitted,
    merged,
    preset_of,
    read_yaml,
    storage_class,
)
from pytorchrl.commands.composition.data_source import (
    OF_DATA,
    Data,
    data_of,
    description_of,
    needs_environments,
    without_evaluations,
    without_random_actions,
)
from pytorchrl.commands.composition.options import PartsParser, add_options, dashed, given_options, parse
from pytorchrl.commands.composition.parts import actor_for, names_of, part_named
from pytorchrl.commands.composition.run_directory import storage_of_run
from pytorchrl.commands.composition.run_settings import checked_settings
from pytorchrl.commands.composition.values import value_of
from pytorchrl.commands.shared import STOPPED
from pytorchrl.comparison import compare_runs
from pytorchrl.comparison.notes import not_finite
from pytorchrl.comparison.tables import print_table, shown, shown_interval, table_of_runs
from pytorchrl.experiments.callbacks import AfterSteps, Callback, NormalizedScore
from pytorchrl.experiments.runs.continuation import modules_of
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.starting_point import start_from
from pytorchrl.experiments.runs.user_modules import function_named, import_modules
from pytorchrl.learner import Learner
from pytorchrl.logging import plot_runs
from pytorchrl.logging.pictures.plots import warn_if_unwritten
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.seeds import OF_COMMAND, PROCESSES, seed_of
from pytorchrl.terminal import tell
from storages import Storage

_PROGRAM = "python -m pytorchrl train"
_OF_FILES = ("seeds", "device", "log_dir", "log_to", "checkpoint_every", "callbacks", "from", *OF_DATA)
_SECONDS_BETWEEN_LOOKS = 0.5
_EPILOG = (
    "Values are written as in Python: numbers, words, lists such as 64,64, and settings such as "
    "'LinearSchedule(1e-3, 0)', 'Adam(eps=1e-4)' or 'Sequences(20, burn_in=5)'. If there is a preset for the algorithm "
    "and the environment, options override it. The same command continues runs that were stopped."
)


@dataclass(frozen=True)
class DescribedRun:
    """A run as the arguments of the command line describe it."""

    parts: Composed
    preset: str | None
    """The preset's name; None where there is none."""
    settings: Mapping[str, Any]
    """Settings beside the parts: seeds, device, log folder, callbacks, data."""
    data: Data | None
    """The data set to learn from, beside the environments' transitions or instead of them."""
    parent_process: int | None
    """Process id; training ends when that process has ended."""

    @property
    def log_dir(self) -> Path:
        """The folder of the runs of all seeds."""
        if self.parts.env_name is None:
            # Without environments a run learns from data alone.
            name = Path(self.settings["data"]).stem
        else:
            name = self.parts.env_name.replace("/", "-")
        kinds = [] if self.data is None else ["online"] * self.data.online + ["offline"] * self.data.is_offline
        kinds += ["continued"] if self.settings.get("from") else []
        folder = Path("runs") / "-".join([self.parts.algorithm.name, name, *kinds])
        return Path(self.settings.get("log_dir") or folder.joinpath(*_of_a_wandb_sweep()))

    @property
    def seeds(self) -> list[int]:
        """The seeds, with a run for each."""
        return self.settings.get("seeds") or [1]

    def run_folder(self, seed: int) -> Path:
        """Return the run folder of a seed."""
        return self.log_dir / f"seed-{seed}"

    def scheme(self, seed: int) -> Scheme:
        """Make the scheme of the run of a seed; a storage on disk is that run's alone."""
        device = self.settings.get("device") or "cpu"
        folder, of_sweep = self.run_folder(seed), self._names_in_a_sweep
        shared = len(self.seeds) > 1 or bool(of_sweep)
        storage = storage_of_run(self.parts.storage, folder, [*of_sweep, folder.name], shared)
        parts = replace(self.parts, storage=storage)
        return parts.scheme(seed, device) if self.data is None else self.data.scheme(parts, seed, device)

    @property
    def _names_in_a_sweep(self) -> list[str]:
        """Folder names that tell this process from others of a sweep, ours or wandb's; none outside of one."""
        return [self.log_dir.name] if self.parent_process is not None else _of_a_wandb_sweep()


def _of_a_wandb_sweep() -> list[str]:
    """Return folder names that separate the runs of a wandb sweep, whose agent starts a process for each."""
    names = [os.environ.get(name, "") for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID")]
    return names if all(names) else []


def train(arguments: Sequence[str]) -> None:
    """Train the run that the arguments of the command line describe."""
    described = described_run(arguments)
    if described.parent_process is not None:
        end_with(described.parent_process)
    if described.preset is not None:
        tell(f"Preset: {described.preset}; --no-preset disables it.")
    if described.parts.is_preprocessed:
        tell("Preprocessing: the usual one of Atari games (prl.atari_envs); --no-preprocessing leaves frames raw.")
    tell(described.parts)
    if described.data is not None:
        tell(described.data)
    _train_all(described)


def described_run(arguments: Sequence[str]) -> DescribedRun:
    """Compose the run that the arguments describe, without making its parts.

    Raises:
        CompositionError: they name a part that does not exist, or leave one out.
        SystemExit: an option is unknown, or asks for help.
        ValueError: a hyper-parameter is not valid.
    """
    first = _parser(add_help=False)
    chosen, _ = first.parse_known_args([dashed(argument) for argument in arguments])
    import_modules(chosen.imports)
    file = (
        {} if chosen.config is None else checked_settings(checked(read_yaml(chosen.config), chosen.config, _OF_FILES))
    )
    description, preset = _described(chosen, file)
    parser = _parser(add_help=True)
    _add_options_of_parts(parser, description)
    given = parse(parser, arguments)
    by_option: dict[str, Any] = {
        kind: dict(given_options(given, kind)) for kind in ("algorithm", "actor", "storage", "env")
    }
    if given.num_envs is not None:
        by_option["env"]["num_envs"] = given.num_envs
    if given.steps is not None:
        by_option |= checked_settings({"steps": given.steps})
    if given.no_preprocessing:
        by_option["preprocessing"] = False
    settings = {name: file[name] for name in _OF_FILES if name in file}
    options = {name: value for name in _OF_FILES if (value := getattr(given, name)) is not None}
    settings |= checked_settings(options)
    _callbacks(settings)
    whole = merged(description, by_option)
    if settings.get("from"):
        chosen_here = {**file.get("algorithm", {}), **by_option["algorithm"]}
        whole["algorithm"] = without_random_actions(whole["algorithm"], chosen_here)
    needs_env = needs_environments(settings, whole)
    if not needs_env:
        whole["algorithm"] = without_evaluations(whole["algorithm"])
    parts = composed(whole, needs_env=needs_env)
    has_size = "size" in {**file.get("storage", {}), **by_option["storage"]}
    data = data_of(settings, parts.algorithm.cls, has_size)
    return DescribedRun(parts, preset, settings, data, given.parent_process)


def _described(chosen: argparse.Namespace, file: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Merge the preset, the configuration file and the chosen classes; return also the preset's name."""
    names: dict[str, Any] = {
        kind: {} if getattr(chosen, kind) is None else {"name": getattr(chosen, kind)}
        for kind in ("algorithm", "actor", "storage", "env")
    }
    begin = getattr(chosen, "from") or file.get("from")
    of_run = {} if begin is None else description_of(Path(begin))
    whole = merged(of_run, file, names)
    algorithm, env = whole["algorithm"].get("name"), whole["env"].get("name")
    if algorithm is None or env is None or chosen.no_preset or of_run:
        return whole, None
    preset, preset_name = preset_of(part_named(Algorithm, algorithm).__name__, env)
    return merged(fitted(preset, whole), file, names), preset_name


def _parser(add_help: bool) -> PartsParser:
    parser = PartsParser(
        _PROGRAM,
        usage="%(prog)s --algorithm NAME --env ID [options]; with a NAME, --help shows its options",
        description="Compose a run from classes given by name, and train it with one or more seeds.",
        epilog=_EPILOG,
        add_help=add_help,
        allow_abbrev=False,
    )
    parser.add_argument("--algorithm", metavar="NAME", help=", ".join(names_of(Algorithm)))
    parser.add_argument("--env", metavar="ID", help="a gymnasium id; data sets with their spaces need none")
    parser.add_argument(
        "--storage", metavar="NAME", help=f"{', '.join(names_of(Storage))} (default: one that suits the algorithm)"
    )
    parser.add_argument(
        "--actor", metavar="NAME", help=f"{', '.join(names_of(Actor))} (default: one that suits the storage)"
    )
    parser.add_argument(
        "--steps", type=int, metavar="INT", help="environment steps to train for; updates where no steps are collected"
    )
    parser.add_argument("--num-envs", type=int, metavar="INT", help="copies of the environment")
    parser.add_argument("--seeds", type=int, nargs="+", metavar="INT", help="seeds, a run for each (default: 1)")
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or auto (default: cpu)")
    parser.add_argument(
        "--log-dir", type=Path, metavar="FOLDER", help="folder of the runs (default: runs/ALGORITHM-ENV)"
    )
    parser.add_argument("--log-to", nargs="*", metavar="DESTINATION", help="wandb, tensorboard")
    parser.add_argument("--checkpoint-every", type=int, metavar="INT", help="steps between checkpoints")
    parser.add_argument(
        "--callbacks", nargs="+", metavar="CALLBACK", help="such as 'RecordVideos()' 'StopAtReturn(475)'; see the docs"
    )
    parser.add_argument(
        "--data", metavar="PATH", help="a data set to learn from: alone, with --online, or of demonstrations"
    )
    parser.add_argument(
        "--select", metavar="SETTING", help="its episodes to learn from: 'SelectEpisodes(best_share=0.1)'"
    )
    parser.add_argument(
        "--online", action="store_true", default=None, help="mix the data with the environments' transitions"
    )
    parser.add_argument(
        "--data-share", metavar="NUMBER", help="share of the data in each batch with --online (default: 0.5)"
    )
    parser.add_argument("--from", metavar="RUN", help="start from the weights of another run, with its composition")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a YAML file with these settings; options override it"
    )
    parser.add_argument("--parent-process", type=int, help=argparse.SUPPRESS)
    parser.add_argument(
        "--no-preprocessing",
        action="store_true",
        help="leave frames of Atari raw; ids of Atari are preprocessed as by prl.atari_envs otherwise",
    )
    parser.add_argument("--no-preset", action="store_true", help="use the classes' defaults instead of a preset")
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module of yours, or a file, which defines classes or registers environments",
    )
    return parser


def _add_options_of_parts(parser: PartsParser, description: Mapping[str, Any]) -> None:
    """Add the options of the chosen classes; none without an algorithm."""
    if description["algorithm"].get("name") is None:
        return
    algorithm = part_named(Algorithm, description["algorithm"]["name"])
    storage, actor = storage_class(description, algorithm), description["actor"].get("name")
    add_options(parser, "algorithm", algorithm)
    add_options(parser, "actor", actor_for(storage) if actor is None else part_named(Actor, actor))
    add_options(parser, "storage", storage)
    add_options(parser, "env", VecEnv, but=("env",))


def end_with(process: int) -> None:
    """Send this process a SIGTERM, which saves a checkpoint, when its parent process has ended."""

    def watch() -> None:
        while os.getppid() == process:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=watch, name="parent process", daemon=True).start()


class _LearnerOfCommand(Learner):
    """A learner that names options of ``train``, the only one to make the callbacks of some runs again."""

    _how_to_save = "a smaller --checkpoint-every"

    def _how_to_continue(self) -> str:
        if modules_of(self.scheme.factories, self._callbacks.all) is None:
            return "by the same command as before"
        return super()._how_to_continue()


def _train_all(described: DescribedRun) -> None:
    parts, settings, log_dir = described.parts, described.settings, described.log_dir
    seeds = described.seeds
    folders = {seed: described.run_folder(seed) for seed in seeds}
    for seed, folder in folders.items():
        with _learner(described, seed, folder) as learner:
            tell(f"{folder}: seed {seed}, {learner.scheme.steps:,} of {learner.target_steps:,} {learner.scheme.unit}")
            # Ten checkpoints, where no interval is given.
            every = settings.get("checkpoint_every") or max(1, parts.steps // 10)
            if not learner.is_complete:
                learner.run(checkpoint_every=every)
            if learner.was_interrupted:
                # Ctrl-C is meant for the runs of all seeds, a callback for one.
                if len(seeds) > 1:
                    tell("The same command as before continues the runs of all seeds.")
                raise SystemExit(STOPPED)
    if described.parent_process is None:
        # The trials of a sweep, which have a parent process, would write the same picture.
        _show_results(list(folders.values()), log_dir / "learning_curve.png")


def _show_results(folders: Sequence[Path], picture: Path) -> None:
    """Show the returns of all seeds, with their interquartile mean, and draw them."""
    try:
        comparison = compare_runs({"all seeds": folders})
    except (FileNotFoundError, ValueError) as error:
        # A short run may have ended no episode.
        tell(f"There are no returns to show: {error}")
        return
    (result,) = comparison.results
    print_table(table_of_runs(result))
    for note in not_finite([result], comparison.score):
        tell(note)
    if result.iqm.has_interval:
        tell(
            f"Interquartile mean of the final returns: {shown(result.iqm.value)}, 95% interval "
            f"{shown_interval(result.iqm)}"
        )
    with warn_if_unwritten(picture):
        tell(f"Learning curve: {plot_runs(folders, picture)}")


def _learner(described: DescribedRun, seed: int, folder: Path) -> Learner:
    """Make a learner for a folder, or resume from the checkpoint in it."""
    settings, steps = described.settings, described.parts.steps
    log_to, callbacks = settings.get("log_to"), _callbacks(settings)
    references = None if described.data is None else described.data.references
    if references is not None:
        callbacks.append(NormalizedScore(*references))
    # This process is the run's own, and those of a sweep's trials begin with the same state of torch's generator.
    seed_process(seed_of(seed, PROCESSES, OF_COMMAND))
    scheme = described.scheme(seed)
    try:
        if RunFolder(folder).checkpoint_file.exists():
            return _LearnerOfCommand.resume(
                folder, scheme=scheme, target_steps=steps, log_to=log_to, callbacks=callbacks
            )
        if begin := settings.get("from"):
            tell(f"From {begin}: {', '.join(start_from(scheme, begin))}")
        return _LearnerOfCommand(scheme, steps, folder, log_to=log_to or (), callbacks=callbacks)
    except BaseException:
        scheme.close()
        raise


def _callbacks(settings: Mapping[str, Any]) -> list[Callback]:
    """Make the callbacks that the settings name; each learner needs objects of its own.

    Raises:
        ValueError: a text is no callback.
    """
    return [_callback(text) for text in settings.get("callbacks") or ()]


def _callback(text: Any) -> Callback:
    """Make a callback from its text, or from the name of a function in an imported module."""
    made = value_of(text)
    if isinstance(made, str) and (function := function_named(made)) is not None:
        return AfterSteps(function)
    if not isinstance(made, Callback):
        raise ValueError(
            f"--callbacks: {text!r} is neither a callback with its arguments, such as StopAtReturn(475), nor a "
            f"function of a module that --import names"
        )
    return made
