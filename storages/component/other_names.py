"""Errors about unknown names of hyper-parameters, with the right one: misspelt, or that of another library."""

import difflib
from collections.abc import Mapping
from typing import Any, TypeAlias

OtherNames: TypeAlias = Mapping[str, Mapping[str, str]]
"""For a name elsewhere: its name here, by the hyper-parameter that a class must have; "" is any other class."""

NEAREST = 0.75
"""Similarity of names, from 0 to 1, above which one is taken for a misspelling of the other."""


def unknown_hyper_parameter(cls: Any, name: str, declared: Mapping[str, Any]) -> str:
    """Return the message of the error about a name that no hyper-parameter of a component's class has."""
    hint = hint_for(name, declared, cls.other_names)
    same_words = [one for one in declared if sorted(one.split("_")) == sorted(name.split("_"))]
    near = same_words or difflib.get_close_matches(name, declared, n=1, cutoff=NEAREST)
    if near and not hint:
        hint = f"did you mean {near[0]!r}? "
    known = f"{'There' if hint else 'there'} are {', '.join(declared)}"
    return f"{cls.__name__}: unknown hyper-parameter {name!r}; {hint}{known}"


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
    hint = f": {elsewhere[name]}" if name in elsewhere else ""
    # Where there is no such text, Python adds the nearest name.
    raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}", name=name, obj=None if hint else owner)


def hint_for(name: str, declared: Mapping[str, object], other_names: OtherNames) -> str:
    """Return the name here of a name from elsewhere, as a sentence; empty where it is not known."""
    for condition, here in other_names.get(name, {}).items():
        if not condition or condition in declared:
            return f"here it is {here}. "
    return ""
