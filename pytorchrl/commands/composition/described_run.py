"""Compose the run that a command line, a configuration file and a preset describe together."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from pytorchrl.agent.algorithms import Algorithm
from pytorchrl.agent.device import find_device
from pytorchrl.agent.envs.games.atari_envs import lost_by_backend
from pytorchrl.agent.envs.vec_env import one_copy
from pytorchrl.agent.global_generators import seeded
from pytorchrl.agent.other_names.calls import id_of_environment
from pytorchrl.commands.composition.callbacks_and_loggers import make_callbacks, make_loggers
from pytorchrl.commands.composition.data_source import (
    Data,
    data_of,
    description_of,
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
)
from pytorchrl.commands.composition.options import (
    dashed,
    given_options,
    hint_of_key,
    parse,
)
from pytorchrl.commands.composition.parts import (
    RunParts,
    make_parts,
    part_named,
)
from pytorchrl.commands.composition.preset_changes import (
    changed_settings,
    fit_replay,
    take_out_normalization,
    told_of_changes,
)
from pytorchrl.commands.composition.presets import fit_preset, no_preset, preset_of, replaced_settings
from pytorchrl.commands.composition.run_options import FILE_SETTINGS, add_options_of_parts, classes_of, run_parser
from pytorchrl.commands.composition.storage_directory import storage_of_run
from pytorchrl.experiments.finished_runs import has_finished
from pytorchrl.experiments.runs.run_folder import RunFolder
from pytorchrl.experiments.runs.user_modules import import_modules
from pytorchrl.logging.writers import Logger, Wandb
from pytorchrl.scheme import Scheme
from pytorchrl.scheme.compatibility import check_parts
from pytorchrl.terminal import tell

_OF_SCHEME = ("test_seed", "normalize_rewards")


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

    def check(self) -> None:
        """Check that the parts fit each other and one copy of the environment; no storage is made.

        Raises:
            CompositionError: parts do not fit each other.
            UnsupportedSpaceError: the algorithm does not support a space of the environment.
            ValueError: networks or wrappers cannot be made for its spaces.
        """
        given = self._scheme_arguments(self.seeds[0])
        algorithm, actor, envs = (given[f"{name}_factory"] for name in ("algo", "actor", "train_envs"))
        sources = {"main": given["storage_factory"], **given.get("sources", {})}
        mixed, test_envs = given.get("mixed", {}), given.get("test_envs_factory")
        check_parts(algorithm, actor, sources, mixed, envs, test_envs, self.settings.get("normalize_rewards"))
        if envs is None:
            return
        with one_copy(envs)() as one, seeded(np.random.SeedSequence(0), torch.device("cpu")):
            algorithm.cls.check_spaces(one)
            algorithm("cpu", actor("cpu", one), one)

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
    parser_of_names = run_parser(command, add_help=False)
    chosen, _ = parser_of_names.parse_known_args([dashed(argument) for argument in arguments])
    import_modules(chosen.imports)
    file = {} if chosen.config is None else check_settings(_checked_file(read_yaml(chosen.config), chosen))
    description, preset = _describe(chosen, file)
    parser = run_parser(command, add_help=True)
    if preset.name is not None:
        parser.description = f"{parser.description} The preset {preset.name} is used; --no-preset leaves it out."
    add_options_of_parts(parser, description)
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
    settings = {name: file[name] for name in FILE_SETTINGS if name in file}
    if "callbacks" in description:
        # Those of the preset, unless the file has others.
        settings["callbacks"] = description["callbacks"]
    options = {name: value for name in FILE_SETTINGS if (value := getattr(given, name)) is not None}
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
    parts = {} if not isinstance(name, str) else classes_of({"algorithm": {"name": name}, "storage": of_storage})

    def hint(key: str) -> str:
        if id_of_environment(key) is not None:
            return f"; write env: {key}, with the other settings beside it"
        known = [f"--{one.replace('_', '-')}" for one in (*KINDS, *FILE_SETTINGS, "steps")]
        return hint_of_key(key, known, parts)

    return check_description(content, chosen.config, FILE_SETTINGS, hint)


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


def _of_a_wandb_sweep() -> list[str]:
    """Return folder names that separate the runs of a wandb sweep, whose agent starts a process for each."""
    names = [os.environ.get(name, "") for name in ("WANDB_SWEEP_ID", "WANDB_RUN_ID")]
    return names if all(names) else []
