"""A run as the command line describes it: its options, its parts and its settings."""

import argparse
import difflib
import inspect
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pytorchrl.agent.actors import Actor
from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.device import find_device
from pytorchrl.agent.envs import VecEnv
from pytorchrl.agent.envs.games.atari_envs import lost_by_backend
from pytorchrl.agent.other_names.calls import id_of_environment
from pytorchrl.commands.composition.data_source import (
    DATA_SETTINGS,
    Data,
    data_of,
    description_of,
    in_directory,
    needs_environments,
    without_evaluations,
    without_random_actions,
)
from pytorchrl.commands.composition.description import (
    KINDS,
    check_description,
    check_settings,
    merge_descriptions,
    read_yaml,
    whole_number,
)
from pytorchrl.commands.composition.options import (
    PartsParser,
    add_options,
    dashed,
    given_options,
    hint_of_key,
    parse,
)
from pytorchrl.commands.composition.parts import (
    RunParts,
    actor_for,
    make_parts,
    names_of,
    part_named,
    storage_class,
    value_of,
)
from pytorchrl.commands.composition.preset_changes import (
    changed_settings,
    fit_replay,
    take_out_normalization,
    told_of_changes,
)
from pytorchrl.commands.composition.presets import fit_preset, no_preset, preset_of, replaced_settings
from pytorchrl.experiments.callbacks import AfterSteps, Callback
from pytorchrl.experiments.finished_runs import has_finished
from pytorchrl.experiments.runs import storage_paths
from pytorchrl.experiments.runs.composition import class_named
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.user_modules import function_named, import_modules
from pytorchrl.logging.writers import LOGGERS, Logger, LoggerSetting, Wandb
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.terminal import tell
from storages.component.factory import Factory
from storages.persistent.commits import has_commits
from storages.storage import Storage

_USAGES = {
    "train": "%(prog)s --algorithm NAME --env ID [options]; with a NAME, --help shows its options",
    "sweep": "%(prog)s --algorithm NAME --env ID --vary NAME VALUES... [options of train]",
}
"""By the command that the arguments are of."""
_FILE_SETTINGS = (
    "seeds",
    "device",
    "test_seed",
    "normalize_rewards",
    "log_dir",
    "log_to",
    "checkpoint_every",
    "callbacks",
    "from",
    *DATA_SETTINGS,
)
_OF_SCHEME = ("test_seed", "normalize_rewards")
_EPILOG = (
    "Values are written as in Python: numbers, words, lists such as 64,64, and settings such as "
    "'LinearSchedule(1e-3, 0)', 'Adam(eps=1e-4)' or 'Sequences(20, burn_in=5)'. If there is a preset for the algorithm "
    "and the environment, options override it. The same command continues runs that were stopped."
)


@dataclass(frozen=True)
class DescribedRun:
    """A run as the arguments of the command line describe it."""

    parts: RunParts
    preset: str | None
    """The preset's name; None where there is none."""
    changed: Sequence[str]
    """Names of settings that differ from the preset's, so that its return is not to be expected."""
    notices: Sequence[str]
    """What is said of the preset before training: what it replaces, or that there is none."""
    settings: Mapping[str, Any]
    """Settings beside the parts: seeds, device, log folder, callbacks, data."""
    data: Data | None
    """The data set to learn from, beside the environments' transitions or instead of them."""
    parent_process: int | None
    """Process id; training ends when that process has ended."""
    is_dry: bool
    """Whether the run is only printed."""

    @property
    def log_dir(self) -> Path:
        """The folder of the runs of all seeds; each trial of a wandb sweep has one of its own, named after it."""
        of_sweep = _of_a_wandb_sweep()
        default = self.sweep_folder if of_sweep else self._default_folder
        given = self.settings.get("log_dir")
        if self.parent_process is not None and given:
            # A trial of our sweep, which has chosen the folder, although an agent of wandb may have started that.
            return Path(given)
        return Path(given or default).joinpath(*of_sweep)

    @property
    def sweep_folder(self) -> Path:
        """The folder of a sweep's trials, beside those of other runs, which comparisons do not take for trials."""
        return self._default_folder.with_name(f"sweep-{self._default_folder.name}")

    @property
    def _default_folder(self) -> Path:
        if self.parts.env_name is None:
            # Without environments a run learns from data alone.
            name = Path(self.settings["data"]).stem
        else:
            name = self.parts.env_name.replace("/", "-")
        kinds = [] if self.data is None else ["online"] * self.data.online + ["offline"] * self.data.is_offline
        kinds += ["continued"] if self.settings.get("from") else []
        return Path("runs") / "-".join([self.parts.algorithm.name, name, *kinds])

    @property
    def seeds(self) -> list[int]:
        """The seeds, with a run for each."""
        return self.settings.get("seeds") or [1]

    def run_folder(self, seed: int) -> Path:
        """Return the run folder of a seed."""
        return self.log_dir / f"seed-{seed}"

    def scheme(self, seed: int) -> Scheme:
        """Make the scheme of the run of a seed; a storage on disk is that run's alone."""
        arguments = self._scheme_arguments(seed) | {name: self.settings.get(name) for name in _OF_SCHEME}
        return Scheme(**arguments, device=self.settings.get("device") or "cpu", seed=seed)

    def loggers(self, seed: int) -> list[Logger] | None:
        """Return the loggers of the run of a seed, whose names in wandb differ; None where none are named."""
        made = make_loggers(self.settings)
        if made is None or (len(self.seeds) == 1 and self.parent_process is None):
            return made
        loggers = [Wandb() if one == "wandb" else one for one in made]
        return [self._named_by_seed(one, seed) if isinstance(one, Wandb) else one for one in loggers]

    def _named_by_seed(self, logger: Wandb, seed: int) -> Wandb:
        if self.parent_process is not None:
            # A sweep has named the trial by WANDB_NAME, after the given name and the values that it varies.
            return replace(logger, run_name=None)
        name = logger.run_name or os.environ.get("WANDB_NAME")
        return replace(logger, run_name=f"{name}-seed-{seed}") if name else logger

    def has_finished(self, seed: int) -> bool:
        """Return whether the run of a seed is there, with this composition, and has finished; nothing is made."""
        folder = RunFolder(self.run_folder(seed))
        if not folder.checkpoint_file.is_file():
            return False
        given = self._scheme_arguments(seed)
        envs = {name: given.get(f"{name}_factory") for name in ("train_envs", "test_envs")}
        composition = {
            "algorithm": given["algo_factory"].config,
            "actor": given["actor_factory"].config,
            "storage": given["storage_factory"].config,
            **{name: None if factory is None else factory.config for name, factory in envs.items()},
            **{kind: {name: one.config for name, one in given.get(kind, {}).items()} for kind in ("sources", "mixed")},
            "device": str(find_device(self.settings.get("device") or "cpu")),
            "seed": seed,
            "normalize_rewards": self.settings.get("normalize_rewards"),
        }
        return has_finished(folder, composition, self.parts.steps)

    def _scheme_arguments(self, seed: int) -> dict[str, Any]:
        folder, of_sweep = self.run_folder(seed), self._names_in_a_sweep
        shared = len(self.seeds) > 1 or bool(of_sweep)
        storage = storage_of_run(self.parts.storage, folder, [*of_sweep, folder.name], shared)
        parts = replace(self.parts, storage=storage)
        return parts.scheme_arguments() if self.data is None else self.data.scheme_arguments(parts)

    @property
    def _names_in_a_sweep(self) -> list[str]:
        """Folder names that tell this process from others of a sweep, ours or wandb's; none outside of one."""
        return [self.log_dir.name] if self.parent_process is not None else _of_a_wandb_sweep()


def described_run(arguments: Sequence[str], command: Literal["train", "sweep"] = "train") -> DescribedRun:
    """Compose the run that the arguments describe, without making its parts.

    Args:
        arguments: of the command line.
        command: whose arguments they are, for messages.

    Raises:
        CompositionError: they name a part that does not exist, or leave one out.
        SystemExit: an option is unknown, or asks for help.
        ValueError: a hyper-parameter is not valid.
    """
    # The options of hyper-parameters depend on the classes that are named, which are read first.
    parser_of_names = _parser(command, add_help=False)
    chosen, _ = parser_of_names.parse_known_args([dashed(argument) for argument in arguments])
    import_modules(chosen.imports)
    file = {} if chosen.config is None else check_settings(_checked_file(read_yaml(chosen.config), chosen))
    description, preset = _describe(chosen, file)
    parser = _parser(command, add_help=True)
    if preset.name is not None:
        parser.description = f"{parser.description} The preset {preset.name} is used; --no-preset leaves it out."
    _add_options_of_parts(parser, description)
    given = parse(parser, arguments)
    by_option: dict[str, Any] = {
        kind: dict(given_options(given, kind)) for kind in ("algorithm", "actor", "storage", "env")
    }
    if given.num_envs is not None:
        by_option["env"]["num_envs"] = given.num_envs
    if given.steps is not None:
        by_option |= check_settings({"steps": given.steps})
    if given.no_preprocessing:
        by_option["preprocessing"] = False
    settings = {name: file[name] for name in _FILE_SETTINGS if name in file}
    if "callbacks" in description:
        # Those of the preset, unless the file has others.
        settings["callbacks"] = description["callbacks"]
    options = {name: value for name in _FILE_SETTINGS if (value := getattr(given, name)) is not None}
    settings |= check_settings(options)
    make_callbacks(settings)
    make_loggers(settings)
    whole = merge_descriptions(description, by_option)
    own = merge_descriptions(_with_names_of_classes(file), by_option, _names_of(chosen))
    whole = fit_replay(whole, preset.settings, own, whole["env"].get("num_envs", 1))
    is_replaced = take_out_normalization(whole, own["env"], settings.get("normalize_rewards"))
    if settings.get("from"):
        chosen_here = {**file.get("algorithm", {}), **by_option["algorithm"]}
        whole["algorithm"] = without_random_actions(whole["algorithm"], chosen_here)
    needs_env = needs_environments(settings, whole)
    if not needs_env:
        whole["algorithm"] = without_evaluations(whole["algorithm"])
    parts = make_parts(whole, needs_env=needs_env)
    has_size = "size" in {**file.get("storage", {}), **by_option["storage"]}
    data = data_of(settings, parts.algorithm.cls, has_size)
    # Without hyper-parameters of classes in whose place others were chosen.
    of_preset = {kind: preset.settings.get(kind, {}).keys() & whole[kind].keys() for kind in KINDS}
    parts = replace(parts, named=of_preset)
    changed = changed_settings(preset.settings, own) if preset.settings and data is None else []
    notices = [*preset.notices(own["env"]), *told_of_changes(parts, preset.settings, own)]
    if is_replaced:
        changed = [*changed, "normalize_rewards"]
        notices.append(f"The wrapper NormalizeReward of the preset {preset.name} is replaced by --normalize-rewards.")
    if parts.envs is not None and (lost := lost_by_backend(parts.envs)) is not None:
        notices.append(lost)
    return DescribedRun(parts, preset.name, changed, notices, settings, data, given.parent_process, given.dry_run)


@dataclass(frozen=True)
class _Preset:
    settings: Mapping[str, Any]
    name: str | None
    """None where there is none."""
    absent: str | None
    """What is said where one was looked for, and there is none."""

    def notices(self, env: Mapping[str, Any]) -> list[str]:
        """Return what to say before training, with settings of the environment that the user gave."""
        said = [] if self.absent is None else [self.absent]
        if replaced := replaced_settings(self.settings, env):
            said.append(
                f"Not used of the preset: {', '.join(replaced)}, as other settings of the environment are given."
            )
        return said


def _checked_file(content: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    """Check the content of a configuration file; an unknown key is answered as an unknown option is."""
    given = content.get("algorithm") if chosen.algorithm is None else chosen.algorithm
    name = given.get("name") if isinstance(given, Mapping) else given
    storage = content.get("storage")
    of_storage = storage if isinstance(storage, Mapping) else {} if storage is None else {"name": storage}
    parts = {} if not isinstance(name, str) else _classes_of({"algorithm": {"name": name}, "storage": of_storage})

    def hint(key: str) -> str:
        if id_of_environment(key) is not None:
            return f"; write env: {key}, with the other settings beside it"
        known = [f"--{one.replace('_', '-')}" for one in (*KINDS, *_FILE_SETTINGS, "steps")]
        return hint_of_key(key, known, parts)

    return check_description(content, chosen.config, _FILE_SETTINGS, hint)


def _describe(chosen: argparse.Namespace, file: Mapping[str, Any]) -> tuple[dict[str, Any], _Preset]:
    """Merge the preset, the configuration file and the chosen classes; return also the preset."""
    file, names = _with_names_of_classes(file), _names_of(chosen)
    for kind, part in names.items():
        _tell_what_is_unused(kind, part.get("name"), file.get(kind, {}))
    begin = getattr(chosen, "from") or file.get("from")
    of_run = {} if begin is None else description_of(Path(begin))
    whole = merge_descriptions(of_run, file, names)
    algorithm, env = whole["algorithm"].get("name"), whole["env"].get("name")
    if algorithm is None or env is None or chosen.no_preset or of_run:
        return whole, _Preset({}, None, None)
    cls = part_named(Algorithm, algorithm)
    preset, preset_name = preset_of(cls, env)
    absent = no_preset(cls, env) if preset_name is None else None
    return merge_descriptions(fit_preset(preset, whole), file, names), _Preset(preset, preset_name, absent)


def _names_of(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the parts that options name."""
    return _with_names_of_classes(
        {kind: {} if (name := getattr(chosen, kind)) is None else {"name": name} for kind in KINDS}
    )


def _with_names_of_classes(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description in which each class has its whole name, however it was spelt."""
    named = dict(description)
    for kind, base in KINDS.items():
        name = named.get(kind, {}).get("name")
        if kind != "env" and name is not None:
            named[kind] = {**named[kind], "name": part_named(base, name).__name__}
    return named


def _tell_what_is_unused(kind: str, name: str | None, of_file: Mapping[str, Any]) -> None:
    """Say which settings of a file are dropped, as they are those of another class than an option names."""
    other, unused = of_file.get("name"), [setting for setting in of_file if setting != "name"]
    if unused and None not in (name, other) and name != other:
        tell(f"Not used of the configuration file: {kind} {other}'s {', '.join(unused)}, as --{kind} names {name}.")


def make_callbacks(settings: Mapping[str, Any]) -> list[Callback]:
    """Make the callbacks that the settings name; each learner needs objects of its own.

    Raises:
        ValueError: a text is no callback.
    """
    return [_make_callback(text) for text in settings.get("callbacks") or ()]


def make_loggers(settings: Mapping[str, Any]) -> list[Logger] | None:
    """Make the loggers that the settings name, by a word or with settings of their own; None where none are named.

    Raises:
        ValueError: a text is no logger.
    """
    if (texts := settings.get("log_to")) is None:
        return None
    made = [value_of(text) for text in texts]
    for text, logger in zip(texts, made, strict=True):
        if isinstance(logger, LoggerSetting) or (isinstance(logger, str) and logger in LOGGERS):
            continue
        near = difflib.get_close_matches(str(text).lower(), LOGGERS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"--log-to: unknown destination {text!r}{hint} (choose from {', '.join(LOGGERS)}, or give one settings: "
            f"'Wandb(project=\"paper\")'; wandb also reads WANDB_PROJECT, WANDB_RUN_GROUP and WANDB_TAGS)"
        )
    return made


def _make_callback(text: Any) -> Callback:
    """Make a callback from its text, or from the name of a function in an imported module."""
    made = value_of(text)
    if isinstance(made, str) and (function := function_named(made)) is not None:
        return AfterSteps(function)
    if not isinstance(made, Callback):
        raise ValueError(
            f"--callbacks: {text!r} is neither a callback with its arguments, such as StopAtReturn(475), nor a "
            f"function of a module that --import names{_with_arguments(made)}"
        )
    return made


def _with_arguments(name: Any) -> str:
    """Return what to write where the class of a callback was named without its arguments; "" otherwise."""
    try:
        cls = class_named(name) if isinstance(name, str) else object
    except CompositionError:
        return ""
    if not issubclass(cls, Callback):
        return ""
    needs_some = any(parameter.default is parameter.empty for parameter in inspect.signature(cls).parameters.values())
    return f"; write {shlex.quote(f'{name}(...)' if needs_some else f'{name}()')}"


def _parser(command: str, add_help: bool) -> PartsParser:
    parser = PartsParser(
        f"python -m pytorchrl {command}",
        usage=_USAGES[command],
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
        "--steps",
        type=whole_number,
        metavar="INT",
        help="environment steps to train for; updates where no steps are collected",
    )
    parser.add_argument("--num-envs", type=int, metavar="INT", help="copies of the environment")
    parser.add_argument(
        "--seeds", "--seed", type=int, nargs="+", metavar="INT", help="seeds, a run for each (default: 1)"
    )
    parser.add_argument("--device", metavar="DEVICE", help="cpu, cuda or auto (default: cpu)")
    parser.add_argument(
        "--test-seed",
        type=int,
        metavar="INT",
        help="seed of the first episode of each evaluation, all of which then play the same episodes",
    )
    parser.add_argument(
        "--normalize-rewards",
        choices=("returns", "rewards"),
        help="divide stored rewards by the running deviation of discounted returns, or of rewards (default: not)",
    )
    parser.add_argument(
        "--log-dir", type=Path, metavar="FOLDER", help="folder of the runs (default: runs/ALGORITHM-ENV)"
    )
    parser.add_argument(
        "--log-to", nargs="*", metavar="DESTINATION", help=f"{', '.join(LOGGERS)}, or 'Wandb(project=\"paper\")'"
    )
    parser.add_argument(
        "--checkpoint-every",
        type=whole_number,
        metavar="INT",
        help="steps between checkpoints (default: a tenth of all)",
    )
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
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be trained, with the settings of the preset, and stop"
    )
    parser.add_argument("--no-preset", action="store_true", help="use the classes' defaults instead of a preset")
    parser.add_argument(
        "--import",
        dest="imports",
        action="extend",
        nargs="+",
        default=[],
        metavar="MODULE",
        help="modules of yours, or files, which define classes or register environments",
    )
    return parser


def _add_options_of_parts(parser: PartsParser, description: Mapping[str, Any]) -> None:
    """Add the options of the chosen classes; none without an algorithm."""
    if description["algorithm"].get("name") is None:
        return
    for kind, cls in _classes_of(description).items():
        add_options(parser, kind, cls, but=("env",) if kind == "env" else (), values=description[kind])


def _classes_of(description: Mapping[str, Any]) -> dict[str, type[Any]]:
    """Return the classes of the parts of a description that names an algorithm."""
    algorithm = part_named(Algorithm, description["algorithm"]["name"])
    storage, actor = storage_class(description, algorithm), description.get("actor", {}).get("name")
    return {
        "algorithm": algorithm,
        "actor": actor_for(storage) if actor is None else part_named(Actor, actor),
        "storage": storage,
        "env": VecEnv,
    }


def _of_a_wandb_sweep() -> list[str]:
    """Return folder names that separate the runs of a wandb sweep, whose agent starts a process for each."""
    names = [os.environ.get(name, "") for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID")]
    return names if all(names) else []


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
