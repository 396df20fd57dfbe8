"""Errors about unknown names, with the right one: misspelt, or that of another library."""

import difflib
import functools
import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

OtherNames: TypeAlias = Mapping[str, Mapping[str, str]]
"""For a name elsewhere: its name here, by the hyper-parameter that a class must have; "" is any other class."""

NEAREST = 0.75
"""Similarity of names, from 0 to 1, above which one is taken for a misspelling of the other."""


class AnsweringMeta(ABCMeta):
    """Metaclass of classes that answer for methods of other libraries, ``PPO.load(path)``, with what is here instead.

    As only a metaclass is asked for attributes that a class lacks. It extends that of abstract classes, which most of
    them are.
    """

    if not TYPE_CHECKING:  # for which each name would exist

        def __getattr__(cls, name):
            if any(name in vars(each) for each in cls.__mro__):
                # A descriptor raised an AttributeError, which Python replaces by that of __getattr__: raise it again.
                super().__getattribute__(name)
                # None did: help() asks by this method which attributes are the metaclass's own.
                raise AttributeError(name)
            answered = {} if name.startswith("_") else cls.other_methods
            raise _missing(f"type object {cls.__name__!r}", name, answered, cls)


class Answering(metaclass=AnsweringMeta):
    """Base of classes that answer for the methods of other libraries."""

    other_methods: ClassVar[Mapping[str, str]] = {}
    """What to write instead of attributes that other libraries have in place of this class, its objects or factory."""


def unknown_hyper_parameters(cls: Any, names: Iterable[str], declared: Mapping[str, Any]) -> str:
    """Return the message of the error about names that no hyper-parameter of a component's class has."""
    return unknown_names(cls.__name__, "hyper-parameter", names, declared, cls.other_names)


def unknown_names(
    owner: str, kind: str, names: Iterable[str], declared: Iterable[str], other_names: OtherNames | None = None
) -> str:
    """Return the message of the error about unknown names, all of a call.

    Args:
        owner: of the names, such as a class.
        kind: what they name, such as "argument".
        names: the unknown ones, at least one.
        declared: the known ones.
        other_names: those of other libraries.
    """
    known = list(declared)
    hints = {name: here_instead(name, known, other_names or {}) for name in names}
    if len(hints) == 1:
        ((name, hint),) = hints.items()
        sentence = f"{hint}{' ' if hint.endswith('?') else '. '}There" if hint else "there"
        return f"{owner}: unknown {kind} {name!r}; {sentence} are {', '.join(known) or 'none'}"
    listed = ", ".join(f"{name!r} ({hint})" if hint else repr(name) for name, hint in hints.items())
    return f"{owner}: unknown {kind}s {listed}; there are {', '.join(known) or 'none'}"


def naming_arguments(other_names: OtherNames) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function refuse unknown arguments with their names here, and with the known ones.

    Args:
        other_names: those of other libraries.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if unknown := [name for name in kwargs if name not in known]:
                raise TypeError(unknown_names(function.__name__, "argument", unknown, known, other_names))
            return function(*args, **kwargs)

        return call

    return decorate


def here_instead(name: str, declared: Iterable[str], other_names: OtherNames) -> str:
    """Return what a name is here, "here it is ..." or "did you mean ...?"; empty where nothing is known or near.

    Args:
        name: the unknown one.
        declared: the known ones.
        other_names: those of other libraries.
    """
    known = list(declared)
    if hint := hint_for(name, dict.fromkeys(known), other_names):
        return hint.removesuffix(". ")
    same_words = [one for one in known if sorted(one.split("_")) == sorted(name.split("_"))]
    near = same_words or difflib.get_close_matches(name, known, n=1, cutoff=NEAREST)
    return f"did you mean {near[0]!r}?" if near else ""


class KnownNames(dict[str, T]):
    """A mapping whose KeyError about an unknown name has the known ones.

    Args:
        values: by name.
        owner: how users reach it, such as "training.groups".
        kind: what the names are of, such as "parameter group".
    """

    def __init__(self, values: Mapping[str, T], owner: str, kind: str) -> None:
        super().__init__(values)
        self.owner, self.kind = owner, kind

    def __missing__(self, name: str) -> T:
        raise KeyError(unknown_names(self.owner, self.kind, [name], self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self.owner, self.kind)


def answer_missing(owner: Any, name: str) -> Any:
    """Refuse an attribute that there is not; the ``__getattr__`` of objects of an :class:`Answering` class.

    Raises:
        AttributeError: always; the text says what to write instead of a method of another library.
    """
    return refuse_attribute(owner, type(owner).__name__, name, owner.other_methods)


def refuse_attribute(owner: object, kind: str, name: str, elsewhere: Mapping[str, str]) -> Any:
    """Raise the error about an attribute that an object does not have, with what is here instead of another library's.

    Args:
        owner: the object, whose ``__getattr__`` calls this.
        kind: what it is called, such as the name of its class.
        name: of the attribute.
        elsewhere: what to write here, for names of other libraries.

    Raises:
        AttributeError: always.
    """
    if hasattr(type(owner), name):
        # A property raised an AttributeError, which Python replaces by that of __getattr__: raise it again.
        return object.__getattribute__(owner, name)
    raise _missing(f"{kind!r} object", name, elsewhere, owner)


def _missing(what: str, name: str, answers: Mapping[str, str], owner: object) -> AttributeError:
    hint = f": {answers[name]}" if name in answers else ""
    # Where there is no such text, Python adds the nearest name.
    return AttributeError(f"{what} has no attribute {name!r}{hint}", name=name, obj=None if hint else owner)


def hint_for(name: str, declared: Mapping[str, object], other_names: OtherNames) -> str:
    """Return the name here of a name from elsewhere, as a sentence; empty where it is not known."""
    for condition, here in other_names.get(name, {}).items():
        if not condition or condition in declared:
            return f"here it is {here}. "
    return ""
