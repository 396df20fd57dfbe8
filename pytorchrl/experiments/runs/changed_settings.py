"""Hyper-parameters that were changed by hand before a run began or went on, as its configuration records them.

What callbacks and schedules change in the course of a run follows from the configuration, and is not recorded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pytorchrl.logging.groups import CHANGED_BY_HAND
from storages.component.changeable import Changeable, as_plain_data


def with_changes(
    config: Mapping[str, Any],
    parts: Sequence[Changeable],
    given: Sequence[Mapping[str, Any]],
    saved: Sequence[Mapping[str, Any]] | None = None,
    steps: int = 0,
) -> dict[str, Any]:
    """Return a configuration with an entry of the changes that were made before a run begins or goes on.

    Args:
        config: of the run so far.
        parts: the algorithm and the storages.
        given: of each part, the hyper-parameters that were changed in it, by name.
        saved: likewise, those that the checkpoint had; None where there is none.
        steps: of the checkpoint.
    """
    states = [dict(one) for one in saved] if saved is not None else [{} for _ in parts]
    # An entry of this very step, whose values are not in the checkpoint, is of a run that saved none after it.
    kept = [
        entry for entry in config.get(CHANGED_BY_HAND, []) if entry["steps"] < steps or _is_saved(entry, parts, states)
    ]
    new = [
        {"steps": steps, "part": type(part).__name__, "hyper_parameters": as_plain_data(changes, type(part))}
        for part, values, state in zip(parts, given, states, strict=True)
        if (changes := {name: value for name, value in values.items() if name not in state or state[name] != value})
    ]
    rest = {name: value for name, value in config.items() if name != CHANGED_BY_HAND}
    return rest | ({CHANGED_BY_HAND: kept + new} if kept or new else {})


def _is_saved(entry: Mapping[str, Any], parts: Sequence[Changeable], states: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        type(part).__name__ == entry["part"]
        and entry["hyper_parameters"].items() <= as_plain_data(state, type(part)).items()
        for part, state in zip(parts, states, strict=True)
    )


def check_changes(config: Mapping[str, Any]) -> None:
    """Check the entry of a configuration that was read from a file.

    Raises:
        ValueError: it is not a list of changes.
    """
    entries = config.get(CHANGED_BY_HAND, [])
    types = {"steps": int, "part": str, "hyper_parameters": dict}
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or any(not isinstance(entry.get(name), kind) for name, kind in types.items()):
            raise ValueError(f"{CHANGED_BY_HAND} must be a list of steps, part and hyper_parameters, got {entry!r}")
