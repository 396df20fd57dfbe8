"""Errors about unknown names, with the right one: misspelt, or that of another library."""

import difflib
from abc import ABCMeta
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

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
                return super().__getattribute__(name)
            answered = {} if name.startswith("_") else cls.other_methods
            raise _missing(f"type object {cls.__name__!r}", name, answered, cls)


class Answering(metaclass=AnsweringMeta):
    """Base of classes that answer for the methods of other libraries."""

    other_methods: ClassVar[Mapping[str, str]] = {}
    """What to write instead of attributes that other libraries have in place of this class, its objects or factory."""


def unknown_hyper_parameter(cls: Any, name: str, declared: Mapping[str, Any]) -> str:
    """Return the message of the error about a name that no hyper-parameter of a component's class has."""
    return unknown_name(cls.__name__, "hyper-parameter", name, declared, cls.other_names)


def unknown_name(owner: str, kind: str, name: str, declared: Mapping[str, Any], other_names: OtherNames) -> str:
    """Return the message of the error about an unknown name.

    Args:
        owner: of the names, such as a class.
        kind: what they name, such as "argument".
        name: the unknown one.
        declared: the known ones.
        other_names: those of other libraries.
    """
    hint = hint_for(name, declared, other_names)
    same_words = [one for one in declared if sorted(one.split("_")) == sorted(name.split("_"))]
    near = same_words or difflib.get_close_matches(name, declared, n=1, cutoff=NEAREST)
    if near and not hint:
        hint = f"did you mean {near[0]!r}? "
    known = f"{'There' if hint else 'there'} are {', '.join(declared)}"
    return f"{owner}: unknown {kind} {name!r}; {hint}{known}"


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
