"""What a file of an exported policy says of itself: spaces, bounds, normalisation, names and version."""

import json
import math
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.envs.spaces import compact, space_as_data
from pytorchrl.experiments.policies.acting_network import input_names, output_names

_MOST_NUMBERS = 1_000
"""Of a part of the observation whose shift and scale are written."""


def metadata_of(algorithm: Algorithm) -> dict[str, str]:
    """Return the metadata of an exported policy by name; all but versions and names of classes are JSON."""
    described = {
        "observation_space": compact(space_as_data(algorithm.actor.observation_space)),
        "action_space": compact(space_as_data(algorithm.action_space)),
        "normalisation": _normalisation(algorithm),
        "inputs": input_names(algorithm),
        "outputs": output_names(algorithm),
        "states": _states(algorithm),
    }
    return {
        "pytorchrl_version": _version(),
        "algorithm": type(algorithm).__name__,
        **{name: json.dumps(_finite(value), allow_nan=False) for name, value in described.items()},
    }


def _version() -> str:
    try:
        return version("pytorchrl")
    except PackageNotFoundError:  # run from a folder of sources
        return "unknown"


def _normalisation(algorithm: Algorithm) -> dict[str, Any]:
    """Return shift, scale and bound of each normalised part of the observation, by its name."""
    normalization = algorithm.actor.normalization
    if normalization is None:
        return {}
    by_part: dict[str, Any] = {}
    for name, (shift, scale) in zip(normalization.names, normalization.scaling, strict=True):
        by_part[name or "observation"] = {"largest": normalization.largest}
        if shift.numel() <= _MOST_NUMBERS:
            by_part[name or "observation"] |= {"shift": shift.tolist(), "scale": scale.tolist()}
    return by_part


def _states(algorithm: Algorithm) -> dict[str, Any]:
    states = algorithm.actor.initial_memory(1)
    return {} if states is None else {"size": states.shape[1], "where_an_episode_begins": 0.0}


def _finite(value: Any) -> Any:
    """Return plain data with "inf" and "-inf" in place of infinities, which JSON lacks."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
