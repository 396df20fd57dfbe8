"""User-defined feature extractors: any module, made by a class or a function of the observation space."""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pytorchrl.agent.envs.spaces import with_trailing_axis

UserExtractor: TypeAlias = Callable[[Any], nn.Module]
"""Makes a module from the observation space, which maps observations (B, *obs), or a dict of such, to (B, n)."""

_ROWS = 2


def name_of(extractor: Callable[..., Any]) -> str:
    """Return the name of the class or function, for display; of a partial, that of the function it calls."""
    named: Any = extractor
    while hasattr(named, "func"):
        named = named.func
    return str(getattr(named, "__name__", type(named).__name__))


def can_be_called(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a class or function takes these arguments, as far as its signature is known."""
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:
        # Of some functions, such as those in C, no signature is known.
        return True
    return True


def features_by(extractor: UserExtractor, space: gym.Space[Any]) -> nn.Module:
    """Make a user's module and try it on two observations; its ``output_size`` is set if it has none.

    Raises:
        TypeError: the extractor is a module itself, does not make a module, or the module does not return a Tensor.
        ValueError: the Tensor is not (B, n) of torch's default dtype, n is not the module's ``output_size``, or the
            module changes the observations.
    """
    if isinstance(extractor, nn.Module):
        raise TypeError(
            f"feature_extractor is an instance of {type(extractor).__name__}; each network makes its own: pass the "
            f"class, or a function of the observation space, lambda space: {type(extractor).__name__}(...)"
        )
    module = extractor(space)
    who = f"feature_extractor {name_of(extractor)}"
    if not isinstance(module, nn.Module):
        raise TypeError(f"{who} must make a torch.nn.Module for an observation space, got {_shown(module)}")
    parameter = next(module.parameters(), None)
    device = torch.device("cpu") if parameter is None else parameter.device
    check_features(
        module, some_observations(space, _ROWS, device), who, "observations", f"observations (B, *obs) of {space}"
    )
    return module


def check_features(module: nn.Module, inputs: Any, who: str, given: str, shapes: str) -> None:
    """Check a user's module by its features of a few inputs; its ``output_size`` is set if it has none.

    This changes nothing else but uninitialised lazy parameters.

    Args:
        module: as the user's class or function made it.
        inputs: two rows.
        who: the setting and the name of that class or function, for errors.
        given: what it is given, for errors.
        shapes: the same with shapes.

    Raises:
        TypeError: the module does not return a Tensor.
        ValueError: the Tensor is not (B, n) of torch's default dtype, n is not the module's ``output_size``, or the
            module changes its inputs.
    """
    features = _tried(module, inputs, who, given, shapes)
    wanted = f"must return a Tensor (B, n) of {torch.get_default_dtype()} for {shapes}"
    if not isinstance(features, Tensor):
        raise TypeError(f"{who} {wanted}; for {_ROWS} {given} it returned {_shown(features)}")
    if features.ndim != 2 or len(features) != _ROWS or features.dtype != torch.get_default_dtype():
        raise ValueError(f"{who} {wanted}; for {_ROWS} {given} it returned {tuple(features.shape)} of {features.dtype}")
    size = features.shape[1]
    if not hasattr(module, "output_size"):
        module.output_size = size  # type: ignore[assignment]
    elif module.output_size != size:
        raise ValueError(
            f"{who} declares output_size = {module.output_size}; for {_ROWS} {given} it returned "
            f"{tuple(features.shape)}"
        )


def _tried(module: nn.Module, inputs: Any, who: str, given: str, shapes: str) -> Any:
    """Return the module's output for sample inputs; an exception of the module says what it was given.

    Raises:
        ValueError: the module changes them.
    """
    before = copy.deepcopy(inputs)
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            features = module(inputs)
    except Exception as error:
        error.add_note(f"{who} raised this when it was tried with {_ROWS} {given}, {shapes}: {_shapes_of(inputs)}.")
        raise
    for part, training in modes.items():
        part.training = training
    if not _equal(inputs, before):
        raise ValueError(
            f"{who} changes the {given} that it is given, which storages keep; compute new ones, by x = x / 255 "
            f"instead of x /= 255, or change a copy"
        )
    return features


def _equal(observations: Any, before: Any) -> bool:
    if not isinstance(before, dict):
        # Numbers on the meta device, where the networks of a run are tried before they are loaded, do not exist.
        return before.is_meta or torch.equal(observations, before)
    return observations.keys() == before.keys() and all(_equal(observations[name], before[name]) for name in before)


def some_observations(space: gym.Space[Any], rows: int, device: torch.device) -> Any:
    """Return sample observations (B, *obs) of a space, or a dict of such, to try networks with; always the same."""
    # A copy, because the random state of the space belongs to the environment.
    drawn = copy.deepcopy(space)
    drawn.seed(0)
    observations = [drawn.sample() for _ in range(rows)]
    if not isinstance(space, spaces.Dict):
        return _batch(observations, space, device)
    return {
        name: _batch([observation[name] for observation in observations], part, device)
        for name, part in space.spaces.items()
    }


def _batch(values: list[Any], space: gym.Space[Any], device: torch.device) -> Tensor:
    batch = with_trailing_axis(np.stack(values).astype(space.dtype, copy=False), space)
    return torch.as_tensor(batch, device=device)


def _shapes_of(inputs: Any) -> str:
    if isinstance(inputs, Mapping):
        return ", ".join(f"{name} {_shapes_of(one)}" for name, one in inputs.items())
    return f"{tuple(inputs.shape)} of {inputs.dtype}"


def _shown(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
