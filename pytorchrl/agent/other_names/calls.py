"""Calls whose arguments do not fit, such as those of other libraries, and the code to write instead."""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import gymnasium as gym

from storages.component.factory import Factory
from storages.component.other_names import unknown_names

P = ParamSpec("P")
T = TypeVar("T")
Answer = Callable[[type[Any], str, tuple[Any, ...], Mapping[str, Any]], str]
"""Returns the message about a call, with what to write instead, from the class, what is wrong, and the arguments."""
_VERSION = re.compile(r"-v\d+$")
_OF_CLASSES = frozenset({"__init__", "__call__"})
"""Methods that messages name by the class alone."""
_DISCRETE_OR_ANY = ("discrete", "any")


def answering_calls(answer: Answer, *, by_name: bool = True) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a method refuse calls that do not fit its parameters with what to write instead.

    Args:
        answer: the message where arguments are missing, unknown or too many.
        by_name: whether an unknown argument is answered with its name here, by ``other_names`` of the class.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(method)
        known = {name: one for name, one in list(signature.parameters.items())[1:] if one.kind is not one.VAR_KEYWORD}
        takes_all = len(known) < len(signature.parameters) - 1

        @functools.wraps(method)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return method(*args, **kwargs)
            except TypeError:
                # Only here, as binding takes longer than some of the calls.
                if (wrong := _misfit(*args, **kwargs)) is None:
                    raise
            cls = type(args[0])
            place = cls.__name__ if method.__name__ in _OF_CLASSES else f"{cls.__name__}.{method.__name__}"
            unknown = [name for name in kwargs if name not in known]
            if by_name and unknown and not takes_all:
                message = unknown_names(place, "argument", unknown, known, cls.other_names)  # type: ignore[attr-defined]
                raise TypeError(message)
            raise TypeError(answer(cls, f"{place}: {wrong}", args[1:], kwargs))

        def _misfit(*args: Any, **kwargs: Any) -> TypeError | None:
            """Return what is wrong with the arguments of a call; None where they fit."""
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                return error
            return None

        return call

    return decorate


def training_code(algorithm: str, env: str) -> str:
    """Return the code of a run of an algorithm, by the name of its class, in an environment."""
    folder = algorithm.lower()
    return f'prl.Learner(prl.compose("{algorithm}", "{env}"), target_steps=100_000, log_dir="runs/{folder}").run()'


def environment_of(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str | None:
    """Return the id of the first environment among the arguments of a call; None where there is none."""
    found = (id_of_environment(one) for one in (*arguments, *named.values()))
    given = named.get("env")
    return next((one for one in found if one is not None), given if isinstance(given, str) else None)


def id_of_environment(value: Any) -> str | None:
    """Return the id of an environment or vector environment of gymnasium, of a factory or an id itself, else None."""
    if isinstance(value, str):
        return value if value in gym.registry or _VERSION.search(value) else None
    if isinstance(value, Factory):
        return id_of_environment(value.hyper_parameters.get("env"))
    found = None if isinstance(value, type) else getattr(getattr(value, "spec", None), "id", None)
    return found if isinstance(found, str) else None


def environment_for(actions: str) -> str:
    """Return the id of a simple environment whose actions an algorithm supports, by the kind of its actions."""
    return "CartPole-v1" if actions in _DISCRETE_OR_ANY else "Pendulum-v1"
