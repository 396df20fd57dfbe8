"""What to say about an option that does not exist: the option of that meaning, or the nearest one."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from storages.component.declared import hyper_parameters_of
from storages.component.other_names import NEAREST, hint_for

_OPTIONS: Mapping[str, str] = {
    "num_envs of VecEnv": "--num-envs",
    "env of VecEnv": "--env",
    "seed of Scheme": "--seeds",
    "device of Scheme": "--device",
    "target_steps of Learner": "--steps",
    "log_to of Learner": "--log-to",
}
"""Options of settings that are not hyper-parameters of the algorithm, the actor or the storage."""
_ELSEWHERE: Mapping[str, str] = {
    "seed": "--seeds",
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
    if dot and prefix in parts:
        hint = _hint(option, prefix, parts)
        known = [one for one in known if one.startswith(f"--{prefix}.")]
    elif not dot:
        hint = _without_part(option, parts)
    if not hint:
        near = difflib.get_close_matches(option.partition(".")[2] or option, _shortened(known, dot), 1, NEAREST)
        hint = f"; did you mean {f'--{prefix}.' if dot else ''}{near[0]}?" if near else ""
    return f"there is no option {option}{hint}"


def _shortened(known: Sequence[str], dot: str) -> list[str]:
    return [one.partition(".")[2] for one in known] if dot else list(known)


def _hint(option: str, prefix: str, parts: Mapping[str, type[Any]]) -> str:
    """Return the hint about a hyper-parameter of a part; empty where nothing is known about it."""
    cls, name = parts[prefix], option.partition(".")[2].replace("-", "_")
    text = hint_for(name, hyper_parameters_of(cls), cls.other_names).removeprefix("here it is ").removesuffix(". ")
    return _named(text, prefix, parts) if text else ""


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


def _without_part(option: str, parts: Mapping[str, type[Any]]) -> str:
    """Return the hint about an option that names no part, such as ``--learning-rate``."""
    name = option.removeprefix("--").replace("-", "_")
    for part, cls in parts.items():
        if name in hyper_parameters_of(cls):
            return f"; did you mean --{part}.{name.replace('_', '-')}?"
    if name in _ELSEWHERE:
        return f"; here it is {_ELSEWHERE[name]}"
    return next((hint for part in parts if (hint := _hint(f"--{part}.{name}", part, parts))), "")
