"""Factories: a class and its hyper-parameters, bound now, called later.

Every part that a user composes is a :class:`Component`. ``SomeClass.create_factory(...)`` checks the hyper-parameters
where the user wrote them and returns a :class:`Factory`, which makes the part once what it needs exists (a device, an
actor, environments). A hyper-parameter is declared in one place, the signature of ``__init__``: its name, its range
and its default are read from there. A class that extends another and passes ``**kwargs`` on to its ``__init__`` has the
other's hyper-parameters too, and declares only those that it adds, or gives another default.
"""

import difflib
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

from storages.episodes import Episodes
from storages.hyper_parameters import MisfitError, conform
from storages.other_names import OtherNames, hint_for
from storages.schedule import Schedule
from storages.sequences import Sequences

T_co = TypeVar("T_co", covariant=True)


class Component:
    """What can be composed: a class whose hyper-parameters are bound before it can be made."""

    context: ClassVar[tuple[str, ...]] = ()
    """Parameters of ``__init__`` that the caller of the factory supplies, in order; the others are hyper-parameters."""
    unchangeable: ClassVar[frozenset[str]] = frozenset()
    """Hyper-parameters that :meth:`_update_parameter` refuses, because what was made from them cannot follow."""

    other_names: ClassVar[OtherNames] = {}
    """What other libraries call hyper-parameters, for the error that refuses such a name."""

    @classmethod
    def create_factory(cls, *args: Any, **kwargs: Any) -> "Factory[Self]":
        """Bind hyper-parameters; the class says which there are.

        Raises:
            TypeError: a hyper-parameter is missing, or unknown (the message names the nearest one).
            ValueError: a value is of a wrong type or outside its range.
        """
        hyper_parameters = _bind(cls, args, kwargs)
        cls.check_hyper_parameters(_defaults_of(cls) | hyper_parameters)
        return Factory(cls, hyper_parameters)

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse what no single annotation can: values that exclude each other, names that lead nowhere.

        Args:
            hyper_parameters: those of the class and, with their defaults, those of the classes it extends that it does
                not have. One without a default, which the class gives itself, is missing.

        Raises:
            ValueError: the message names the value and the way out.
        """

    def _update_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter of a part that is in use, if it exists and may change."""
        declared = hyper_parameters_of(type(self))
        if name not in declared:
            raise ValueError(f"{_unknown(type(self), name, declared)}")
        if name in self.unchangeable:
            raise ValueError(f"{type(self).__name__}: {name} is fixed once the object is made; make a new one")
        setattr(self, name, _conform_named(type(self), name, value, declared[name]))


class Factory(Generic[T_co]):
    """A callable, picklable and comparable pair of a class and its hyper-parameters."""

    def __init__(self, cls: type[T_co], hyper_parameters: Mapping[str, Any]) -> None:
        self._cls = cls
        self._hyper_parameters = dict(hyper_parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> T_co:
        """Make the part; the arguments are what the class names as its ``context``."""
        return self._cls(*args, **kwargs, **self._hyper_parameters)

    @property
    def cls(self) -> type[T_co]:
        """The class that a call makes."""
        return self._cls

    @property
    def name(self) -> str:
        """The name of the class."""
        return self._cls.__name__

    @property
    def hyper_parameters(self) -> dict[str, Any]:
        """All of them, those left at their defaults included."""
        return dict(self._hyper_parameters)

    @property
    def config(self) -> dict[str, Any]:
        """Plain data (what JSON holds) that says what this is: logged with every run, kept in every checkpoint."""
        return {"name": self.name, "hyper_parameters": {k: plain(v) for k, v in self._hyper_parameters.items()}}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Factory):
            return NotImplemented
        return self._cls is other._cls and self._hyper_parameters == other._hyper_parameters

    def __hash__(self) -> int:
        return hash((self._cls, tuple(self._hyper_parameters)))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={_text(value)}" for name, value in self._hyper_parameters.items())
        return f"{self.name}.create_factory({arguments})"


def plain(value: Any) -> Any:
    """A hyper-parameter as JSON holds it; what has no plain form (a function) is there by its name, for people."""
    if isinstance(value, Factory | Schedule | Sequences | Episodes):
        return dict(value.config)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return {"callable": _text(value)}


def hyper_parameters_of(cls: type[Component]) -> dict[str, inspect.Parameter]:
    """The hyper-parameters of a class, by name, annotations resolved.

    They are those that its ``__init__`` declares and, where that takes ``**kwargs``, those of the class it extends.
    """
    return _hyper_parameters_of(cls, _with_own_init(cls))


def _hyper_parameters_of(cls: type[Component], classes: list[type]) -> dict[str, inspect.Parameter]:
    """Of the first of some classes, each of which extends the next, in the context of ``cls``."""
    first, *extended = classes
    parameters = inspect.signature(first.__init__).parameters  # type: ignore[misc]
    hints = typing.get_type_hints(first.__init__, include_extras=True)  # type: ignore[misc]
    kinds = {parameter.kind for parameter in parameters.values()}
    own = {
        name: parameter.replace(annotation=hints.get(name, Any))
        for name, parameter in list(parameters.items())[1:]
        if name not in cls.context and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    if inspect.Parameter.VAR_KEYWORD not in kinds or not extended:
        return own
    others = {name: other for name, other in _hyper_parameters_of(cls, extended).items() if name not in own}
    if inspect.Parameter.VAR_POSITIONAL in kinds and all(p.kind is p.KEYWORD_ONLY for p in own.values()):
        return others | own
    return own | {name: other.replace(kind=other.KEYWORD_ONLY) for name, other in others.items()}


def _with_own_init(cls: type[Component]) -> list[type]:
    return [each for each in cls.__mro__ if "__init__" in vars(each) and each is not object]


def _defaults_of(cls: type[Component]) -> dict[str, Any]:
    """The defaults of all hyper-parameters of the classes that one extends."""
    classes = _with_own_init(cls)
    return {
        name: parameter.default
        for position in reversed(range(len(classes)))
        for name, parameter in _hyper_parameters_of(cls, classes[position:]).items()
        if parameter.default is not parameter.empty
    }


def _bind(cls: type[Component], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    declared = hyper_parameters_of(cls)
    for name in kwargs:
        if name not in declared:
            raise TypeError(_unknown(cls, name, declared))
    signature = inspect.Signature(list(declared.values()))
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{cls.__name__}: {error}; it takes {cls.__name__}{signature_text(declared)}") from None
    bound.apply_defaults()
    return {name: _conform_named(cls, name, value, declared[name]) for name, value in bound.arguments.items()}


def _conform_named(cls: type[Component], name: str, value: Any, parameter: inspect.Parameter) -> Any:
    try:
        return conform(value, parameter.annotation)
    except MisfitError as misfit:
        raise ValueError(f"{cls.__name__}: {name} {misfit}") from None


def _unknown(cls: type[Component], name: str, declared: Mapping[str, Any]) -> str:
    hint = hint_for(name, declared, cls.other_names)
    near = difflib.get_close_matches(name, declared, n=1, cutoff=0.5)
    if near and not hint:
        hint = f"did you mean {near[0]!r}? "
    return f"{cls.__name__}: unknown hyper-parameter {name!r}; {hint}There are {', '.join(declared)}"


def signature_text(declared: Mapping[str, inspect.Parameter]) -> str:
    """``(size, n_step=1)``: names and defaults, without the annotations."""
    shown = (n if p.default is p.empty else f"{n}={_text(p.default)}" for n, p in declared.items())
    return f"({', '.join(shown)})"


def _text(value: Any) -> str:
    if isinstance(value, type) or (isinstance(value, Callable) and hasattr(value, "__name__")):  # type: ignore[arg-type]
        return str(value.__name__)
    # The same in every process.
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
