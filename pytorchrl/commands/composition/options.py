"""Command line options made from hyper-parameters: names, kinds of values and help texts."""

import argparse
import difflib
import inspect
import re
import types
import typing
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pytorchrl.terminal import printable
from storages.component.declared import hyper_parameters_of
from storages.component.other_names import NEAREST, hint_for
from storages.component.schedule import Schedule
from storages.component.setting import Setting


class PartsParser(argparse.ArgumentParser):
    """A parser with the options of the parts that a run is composed of."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.parts: dict[str, type[Any]] = {}
        """The classes whose hyper-parameters are options, by the prefix of these."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(printable(message), file)


def add_options(
    parser: PartsParser,
    prefix: str,
    cls: type[Any],
    but: Sequence[str] = (),
    values: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Add an option ``--PREFIX.NAME`` for each hyper-parameter of a class.

    Args:
        parser: gets the options, as a group.
        prefix: of the options' names.
        cls: the class with the hyper-parameters.
        but: hyper-parameters without an option.
        values: that a preset or a file has, by hyper-parameter, as values or texts.
    """
    parser.parts[prefix] = cls
    group = parser.add_argument_group(f"{cls.__name__} (--{prefix}.NAME)")
    meanings = _meanings(cls)
    for name, parameter in hyper_parameters_of(cls).items():
        if name in but:
            continue
        default = "" if parameter.default is parameter.empty else f"default: {parameter.default!r}"
        if name in values:
            default = f"here: {values[name]}{f'; {default}' if default else ''}"
        group.add_argument(
            dashed(f"--{prefix}.{name}"),
            dest=f"{prefix}.{name}",
            default=argparse.SUPPRESS,
            metavar=_kind(parameter.annotation),
            help=(meanings.get(name, "").rstrip(".") + (f" ({default})" if default else "")).replace("%", "%%"),
        )


def given_options(arguments: argparse.Namespace, prefix: str) -> Mapping[str, str]:
    """Return the hyper-parameters that were given by the options of a prefix."""
    begin = f"{prefix}."
    return {name.removeprefix(begin): value for name, value in vars(arguments).items() if name.startswith(begin)}


def dashed(argument: str) -> str:
    """Replace underscores by dashes in the name of an option; other arguments are unchanged."""
    name, equals, value = argument.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if argument.startswith("--") else argument


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse arguments; an unknown option ends the program with a line that names the nearest one."""
    given, unknown = parser.parse_known_args([dashed(argument) for argument in arguments])
    if unknown:
        if wrong := _separate_value(parser, arguments, unknown[0]):
            parser.error(wrong)
        name = unknown[0].partition("=")[0]
        parts = parser.parts if isinstance(parser, PartsParser) else {}
        parser.error(unknown_option(name, list(parser._option_string_actions), parts))
    return given


def _separate_value(parser: argparse.ArgumentParser, arguments: Sequence[str], unknown: str) -> str:
    """Return the message about a further value of an option that takes one word; "" where it is none."""
    if unknown.startswith("-") or unknown not in arguments:
        return ""
    at = [*arguments].index(unknown)
    before = next((place for place in range(at - 1, -1, -1) if arguments[place].startswith("--")), None)
    if before is None:
        return ""
    option, _, value = dashed(arguments[before]).partition("=")
    action = parser._option_string_actions.get(option)
    if action is None:
        return ""
    words = [*filter(None, [value]), *arguments[before + 1 :]]
    values = words[: next((place for place, word in enumerate(words) if word.startswith("--")), len(words))]
    if str(action.metavar).endswith(",..."):
        return f"values of {option} are separated by commas: {option} {','.join(values)}"
    otherwise = "data merge writes several data sets into one" if option == "--data" else "quote a value with spaces"
    return f"{option} takes one value, got {' '.join(values)}; {otherwise}"


def argument_texts(cls: type[Any]) -> dict[str, str]:
    """Return the texts of hyper-parameters in the docstring of a class itself, not of its bases, by name."""
    docstring = inspect.cleandoc(vars(cls).get("__doc__") or "")
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section[1] if section else "", re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _meanings(cls: type[Any]) -> dict[str, str]:
    """Return the texts of hyper-parameters in the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        found |= {name: _plain_text(text) for name, text in argument_texts(base).items()}
    return found


def _plain_text(text: str) -> str:
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")


def _kind(annotation: Any) -> str:
    """Return the placeholder of an option's value, for the help text."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return "|".join(dict.fromkeys(_kind(option) for option in arguments))
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Sequence):
        return f"{_kind(arguments[0])},..." if arguments else "LIST"
    words = {
        bool: "true|false",
        int: "INT",
        float: "NUMBER",
        str: "TEXT",
        Path: "TEXT",
        type(None): "none",
        Schedule: "SCHEDULE",
    }
    if annotation in words:
        return words[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Setting):
        return f"{annotation.__name__}(...)"
    return "VALUE"


_OPTIONS: Mapping[str, str] = {
    "num_envs of VecEnv": "--num-envs",
    "env of VecEnv": "--env",
    "seed of Scheme": "--seeds",
    "device of Scheme": "--device",
    "target_steps of Learner": "--steps",
    "log_to of Learner": "--log-to",
    "normalize_rewards of Scheme": "--normalize-rewards returns",
}
"""Options of settings that are not hyper-parameters of the algorithm, the actor or the storage."""
_ELSEWHERE: Mapping[str, str] = {
    "lr": "--algorithm.lr",
    "n_envs": "--num-envs",
    "env_id": "--env",
    "env_name": "--env",
    "algo": "--algorithm",
    "agent": "--algorithm",
    "buffer": "--storage",
    "policy": "--actor",
    "network": "--actor",
    "log_folder": "--log-dir",
    "logdir": "--log-dir",
    "output_dir": "--log-dir",
    "config_file": "--config",
    "eval_freq": "--algorithm.test-every",
    "eval_episodes": "--algorithm.num-test-episodes",
    "n_eval_episodes": "--algorithm.num-test-episodes",
    "save_freq": "--checkpoint-every",
    "norm_reward": "--normalize-rewards returns",
    **dict.fromkeys(("norm_obs", "normalize_obs"), "--actor.normalize-observations=true"),
    **dict.fromkeys(("test_episodes", "num_eval_episodes"), "--algorithm.num-test-episodes"),
    "normalize": "--actor.normalize-observations=true, and for rewards --normalize-rewards returns",
    "n_timesteps": "--steps",
    "total_timesteps": "--steps",
    "hyperparams": "an option of each, such as --algorithm.gamma=0.99",
    "hyperparameters": "an option of each, such as --algorithm.gamma=0.99",
    "optimize": "python -m pytorchrl sweep --vary algorithm.lr 1e-5..1e-2:log --trials 20",
    "optimize_hyperparameters": "python -m pytorchrl sweep --vary algorithm.lr 1e-5..1e-2:log --trials 20",
    "n_trials": "--trials of python -m pytorchrl sweep",
    "trials": "--trials of python -m pytorchrl sweep",
    "n_jobs": "--processes of python -m pytorchrl sweep",
    "conf_file": "--config",
    "yaml_file": "--config",
    "env_wrapper": "--env.wrappers",
    "vec_env": "--env.mode=async, for copies in processes",
    "vec_env_wrapper": "--env.wrappers",
    "frame_stack": "--env.wrappers=\"('FrameStackObservation',{'stack_size':4})\"",
    "policy_kwargs": "an option of each, such as --actor.hidden-sizes=64,64",
    "trained_agent": "--from, for the weights of another run",
    "resume": "--from, for the weights of another run; the same command as before continues a run",
}
"""Options of other libraries' commands, and those here."""
_PLACE = re.compile(r"(\w+)[^,;]*? of (?:the )?(algorithm|actor|storage|VecEnv|Scheme|Learner)\b")


def unknown_option(option: str, known: Sequence[str], parts: Mapping[str, type[Any]]) -> str:
    """Return the message about an unknown option.

    Args:
        option: as it was given, without a value: "--algorithm.n-steps".
        known: the options that exist.
        parts: the classes whose hyper-parameters are options, by the prefix of these.
    """
    prefix, dot, _ = option.removeprefix("--").partition(".")
    hint = ""
    of_all = [one for one in known if one.removeprefix("--").partition(".")[0] in parts]
    if dot and prefix in parts:
        hint = _hint(option, prefix, parts) or _of_another_part(option, prefix, parts)
        known = [one for one in known if one.startswith(f"--{prefix}.")]
    elif not dot:
        hint = _without_part(option, parts)
    if not hint:
        near = difflib.get_close_matches(option.partition(".")[2] or option, _shortened(known, dot), 1, NEAREST)
        hint = f"; did you mean {f'--{prefix}.' if dot else ''}{near[0]}?" if near else ""
    if not hint and dot and prefix in parts:
        name = option.partition(".")[2]
        by_name = {one.partition(".")[2]: one for one in of_all}
        near = difflib.get_close_matches(name, by_name, 1, NEAREST)
        hint = f"; did you mean {by_name[near[0]]}?" if near else ""
    return f"there is no option {option}{hint}"


_OPTION = re.compile(r"--(\w+)(?:\.([\w-]+))?(?:=([^\s,;]+))?")


def hint_of_key(key: str, known: Sequence[str], parts: Mapping[str, type[Any]]) -> str:
    """Return what is said of an unknown key of a configuration file, as of the option of that name; "" for nothing.

    Args:
        key: at the top level of the file.
        known: options of the keys that exist.
        parts: as of :func:`unknown_option`.
    """
    option = f"--{key.replace('_', '-')}"
    of_parts = [
        f"--{part}.{name.replace('_', '-')}" for part, cls in parts.items() for name in hyper_parameters_of(cls)
    ]
    hint = unknown_option(option, [*known, *of_parts], parts).removeprefix(f"there is no option {option}")
    return _OPTION.sub(_as_key, hint)


def _as_key(option: re.Match[str]) -> str:
    """Return an option as a key of a configuration file, with its value where it has one."""
    part, name, value = option.groups()
    written = f"{(name or part).replace('-', '_')}{'' if value is None else f': {value}'}"
    return f"{written} under {part}" if name else written


def _shortened(known: Sequence[str], dot: str) -> list[str]:
    return [one.partition(".")[2] for one in known] if dot else list(known)


def _hint(option: str, prefix: str, parts: Mapping[str, type[Any]]) -> str:
    """Return the hint about a hyper-parameter of a part; empty where nothing is known about it."""
    cls, name = parts[prefix], option.partition(".")[2].replace("-", "_")
    text = hint_for(name, hyper_parameters_of(cls), cls.other_names).removeprefix("here it is ").removesuffix(". ")
    if text:
        return _named(text, prefix, parts)
    # Not those of other parts, where a name may mean something else.
    return f"; here it is {elsewhere}" if (elsewhere := _ELSEWHERE.get(name, "")).startswith(f"--{prefix}.") else ""


def _of_another_part(option: str, prefix: str, parts: Mapping[str, type[Any]]) -> str:
    """Return the hint about a hyper-parameter that another part has, by this name or that of another library."""
    others = {part: cls for part, cls in parts.items() if part != prefix}
    return _without_part(f"--{option.partition('.')[2]}", others, ())


def _named(text: str, prefix: str, parts: Mapping[str, type[Any]]) -> str:
    """Return a hint with the option of the hyper-parameter that it names."""
    if text.startswith("no setting"):
        return f"; here there is {text}"
    word = re.match(r"\w+", text)
    if place := _PLACE.match(text):
        name, owner = place.groups()
        option = _OPTIONS.get(f"{name} of {owner}")
        if option is None and owner in parts and name in hyper_parameters_of(parts[owner]):
            option = f"--{owner}.{name.replace('_', '-')}"
        return f"; here it is {option}: {text}" if option else f"; here it is {text}"
    if word is not None and word[0] in hyper_parameters_of(parts[prefix]):
        option = f"--{prefix}.{word[0].replace('_', '-')}"
        return f"; here it is {option}" if text == word[0] else f"; here it is {option}: {text}"
    return f"; here it is {text}"


def _without_part(option: str, parts: Mapping[str, type[Any]], elsewhere: Container[str] = tuple(_ELSEWHERE)) -> str:
    """Return the hint about an option that names no part, such as ``--learning-rate``."""
    name = option.removeprefix("--").replace("-", "_")
    for part, cls in parts.items():
        if name in hyper_parameters_of(cls):
            return f"; did you mean --{part}.{name.replace('_', '-')}?"
    if name in elsewhere:
        return f"; here it is {_ELSEWHERE[name]}"
    return next((hint for part in parts if (hint := _hint(f"--{part}.{name}", part, parts))), "")
