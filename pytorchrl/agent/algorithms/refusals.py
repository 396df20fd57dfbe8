"""Refusals of overrides that would never be called, and of the calls of other libraries."""

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

import gymnasium as gym
import torch
from torch import nn

from pytorchrl.agent.other_names.calls import environment_for, environment_of, training_code
from storages.component.declared import hyper_parameters_of
from storages.component.factory import Factory

T = TypeVar("T")
ROLE = "algo_factory"
"""The argument of a scheme that takes an algorithm's factory."""


def new_of_parts(cls: type[T], *args: Any, **kwargs: Any) -> T:
    """Return a new object, the ``__new__`` of algorithms; refuse the calls of other libraries.

    Raises:
        TypeError: it was called as in another library, such as ``PPO("MlpPolicy", env)``; the text says what to write.
    """
    # Factories, copies and unpickled objects make it without arguments.
    if (args or kwargs) and not _is_made_of_parts(cls, args, kwargs):
        raise TypeError(answer_call(cls, "", args, kwargs))
    return object.__new__(cls)


# What editors show of a class that has no ``__init__`` of its own.
new_of_parts.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in ("cls", "device", "actor", "envs")]
)


def _is_made_of_parts(cls: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    parameters = inspect.signature(cls.__init__).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    takes_named = takes_all or kwargs.keys() <= {parameter.name for parameter in parameters}
    return takes_named and _is_device(args[0] if args else kwargs.get("device"))


def _is_device(value: Any) -> bool:
    if isinstance(value, torch.device) or value == "auto":
        return True
    try:
        return isinstance(value, str) and bool(torch.device(value))
    except RuntimeError:
        return False


def answer_call(cls: type[Any], wrong: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the message about a call of an algorithm's class without its parts: what to write instead."""
    name, given = cls.__name__, environment_of(args, kwargs)
    unfit = next((why for one in (*args, *kwargs.values()) if (why := _why_it_does_not_act_in(cls, one))), "")
    env = environment_for(cls.actions) if given is None or unfit else given
    of_networks = any(isinstance(one, (nn.Module, nn.ModuleDict, dict)) for one in (*args, *kwargs.values()))
    own = "; the actor makes the networks: hidden_sizes, or a feature_extractor or body of your own"
    networks = own if of_networks else ""
    return (
        f"{name} is not called: a learner trains it: {training_code(name, env)}; with hyper-parameters, "
        f'prl.compose({factory_code(cls)}, "{env}"){networks}{unfit}'
    )


def _why_it_does_not_act_in(cls: type[Any], env: Any) -> str:
    """Return why an algorithm does not act in an environment, as the end of a message; empty for all else."""
    if not isinstance(env, gym.Env):
        return ""
    try:
        cls.check_spaces(env)
    except ValueError as error:
        return f"; {error}"
    return ""


def algorithm_of(given: Any) -> type[Any] | None:
    """Return the class of an algorithm that is given by its name, class, factory or object; None for all else."""
    if isinstance(given, str):
        return algorithm_named(given)
    cls = given.cls if isinstance(given, Factory) else given if isinstance(given, type) else type(given)
    return cls if getattr(cls, "role", "") == ROLE else None


def algorithm_named(name: str) -> type[Any] | None:
    """Return an algorithm of the toolkit by the name of its class; None where there is none."""
    # The package, whose modules import this one.
    from pytorchrl.agent import algorithms

    found = getattr(algorithms, name, None)
    return algorithm_of(found) if isinstance(found, type) else None


def factory_code(cls: type[Any]) -> str:
    """Return the code of a factory of an algorithm."""
    package = "prl." if algorithm_named(cls.__name__) is cls else ""
    example = "gamma=0.99" if "gamma" in hyper_parameters_of(cls) else ""
    return f"{package}{cls.__name__}.create_factory({example})"


def refuse_unused_overrides(cls: Any) -> None:
    """Refuse a class that defines a method which its base classes inherited, but never call.

    A class names such methods in ``unused``, each with what to override instead. Its subclasses inherit the names of
    all their base classes; one that calls such a method itself declares ``unused`` without it.

    Args:
        cls: a subclass of `Algorithm` that is being made.

    Raises:
        TypeError: it defines one of the methods; the message names what to override instead.
    """
    if "unused" not in vars(cls):
        merged: dict[str, str] = {}
        for base in reversed(cls.__bases__):
            merged |= getattr(base, "unused", {})
        cls.unused = merged
    unused: Mapping[str, str] = cls.unused
    for name, instead in unused.items():
        if name in vars(cls):
            raise TypeError(
                f"{cls.__name__}.{name} would never be called; {instead}, or call {name} in a method of your own and "
                f"declare unused = {{}}"
            )
