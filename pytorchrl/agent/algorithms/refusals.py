"""Refusals of overrides that would never be called, and of the calls of other libraries."""

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from storages.component.other_names import refuse_attribute

T = TypeVar("T")
_DISCRETE_OR_ANY = ("discrete", "any")


def new_of_parts(cls: type[T], *args: Any, **kwargs: Any) -> T:
    """Return a new object, the ``__new__`` of algorithms; refuse the calls of other libraries.

    Raises:
        TypeError: it was called as in another library, such as ``PPO("MlpPolicy", env)``; the text says what to write.
    """
    # Factories, copies and unpickled objects make it without arguments.
    if (args or kwargs) and not _is_made_of_parts(cls, args, kwargs):
        raise TypeError(_answer(cls, args, kwargs))
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


def _answer(cls: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    name, env = cls.__name__, _id_of_env(args[1] if len(args) > 1 else kwargs.get("env"))
    if env is None:
        env = "CartPole-v1" if cls.actions in _DISCRETE_OR_ANY else "Pendulum-v1"
    of_networks = any(isinstance(one, (nn.Module, nn.ModuleDict, dict)) for one in (*args, *kwargs.values()))
    own = "; the actor makes the networks: hidden_sizes, or a feature_extractor or body of your own"
    networks = own if of_networks else ""
    return (
        f"{name} is not called: its factory is one of four parts of a scheme, which a learner trains: "
        f'prl.Learner(prl.compose("{name}", "{env}"), target_steps=100_000, log_dir="runs/{name.lower()}").run(); '
        f"hyper-parameters are those of prl.{name}.create_factory{networks}"
    )


def _id_of_env(env: Any) -> str | None:
    """The id of an environment of gymnasium, or itself."""
    spec = getattr(env, "spec", None)
    return env if isinstance(env, str) else None if spec is None else str(spec.id)


def missing_method(algorithm: Any, name: str) -> Any:
    """Refuse an attribute that there is not; the ``__getattr__`` of algorithms.

    Raises:
        AttributeError: always; the text says what to write instead of a method of another library.
    """
    return refuse_attribute(algorithm, type(algorithm).__name__, name, algorithm.other_methods)


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
