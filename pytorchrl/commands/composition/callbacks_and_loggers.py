"""Make the callbacks and loggers that settings of a run name by their texts."""

import difflib
import inspect
import shlex
from collections.abc import Mapping
from typing import Any

from pytorchrl.commands.composition.parts import value_of
from pytorchrl.experiments.callbacks import AfterSteps, Callback
from pytorchrl.experiments.runs.composition import class_named
from pytorchrl.experiments.runs.user_modules import function_named
from pytorchrl.logging.writers import LOGGERS, Logger, LoggerSetting
from pytorchrl.scheme.compatibility import CompositionError


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
