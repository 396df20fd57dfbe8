"""Parts of configurations and numbers of things as texts."""

from collections.abc import Callable, Mapping
from typing import Any

from storages.component.setting import is_callable

_KIBI = 1024


def as_written(config: Any) -> str:
    """Format a part of a configuration as in Python: ``LinearSchedule(initial=1.0, final=0.0)``."""
    if isinstance(config, list):
        return f"[{', '.join(map(as_written, config))}]"
    if not isinstance(config, Mapping):
        return repr(config) if not isinstance(config, str) else config
    if is_callable(config):
        return text_of_callable(config, as_written)
    if set(config) != {"name", "hyper_parameters"}:
        return "{" + ", ".join(f"{key}: {as_written(value)}" for key, value in config.items()) + "}"
    arguments = ", ".join(f"{key}={as_written(value)}" for key, value in config["hyper_parameters"].items())
    return f"{config['name']}({arguments})"


def text_of_callable(config: Mapping[str, Any], text: Callable[[Any], str]) -> str:
    """Format a class or function of a configuration, or a ``functools.partial`` of one, as in Python.

    Args:
        config: its description.
        text: formats a value of a configuration.
    """
    if "arguments" not in config:
        return str(config["callable"])
    arguments = "".join(f", {name}={text(value)}" for name, value in config["arguments"].items())
    return f"functools.partial({config['callable']}{arguments})"


def counted(number: int, thing: str) -> str:
    """Format a number of things: ``1 environment``, ``2 environments``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def format_bytes(number: int) -> str:
    """Format a number of bytes: ``1.5 MiB``."""
    size, units = float(number), iter(("bytes", "KiB", "MiB", "GiB"))
    unit = next(units)
    while size >= _KIBI and unit != "GiB":
        size, unit = size / _KIBI, next(units)
    return f"{size:,.4g} {unit}"
