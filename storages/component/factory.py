"""Components and their factories, which bind hyper-parameters to a class for later construction.

Every part that a user composes is a :class:`Component`. ``SomeClass.create_factory(...)`` checks the hyper-parameters
at once and returns a :class:`Factory`, which makes the part when its context exists (a device, an actor, environments).
"""

import difflib
import inspect
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, dataclass_transform

from storages.component.annotations import conform_named
from storages.component.declared import defaults_of, fields_of, hyper_parameters_of
from storages.component.other_names import OtherNames, hint_for
from storages.component.setting import Configured, text_of

NEAREST = 0.75
"""Similarity of names, from 0 to 1, above which one is taken for a misspelling of the other."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


class Component:
    """Base class of composable parts, whose hyper-parameters are bound by a factory.

    A class declares the hyper-parameters that it adds in one place, in one of two ways:

    - As attributes, annotated and with a default: ``lr: NonNegativeOrSchedule = 1e-3``. Names that begin with an
      underscore, annotations without a value and a ``ClassVar`` are excluded. The factory sets them on the object
      before ``__init__`` runs, which takes the ``context`` alone. Subclasses inherit them, and may change the default.
    - In the signature of ``__init__``, which takes the context first. A subclass whose ``__init__`` passes ``**kwargs``
      on inherits those of its base class. Attributes of a class whose own ``__init__`` has hyper-parameters are not
      hyper-parameters.

    A subclass of a class of the second way may use the first.
    """

    context: ClassVar[tuple[str, ...]] = ()
    """Parameters of ``__init__`` that the caller of the factory supplies, in order; they are not hyper-parameters."""
    other_names: ClassVar[OtherNames] = {}
    """Names of hyper-parameters in other libraries, for hints in the error about an unknown name."""

    @classmethod
    def create_factory(cls: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Factory[T]":
        """Bind the hyper-parameters, and return a factory that makes the part.

        Raises:
            TypeError: a hyper-parameter is missing, or unknown (the message names the nearest one).
            ValueError: a value is of a wrong type or outside its range.
        """
        return make_factory(cls, args, kwargs)  # type: ignore[arg-type]

    @classmethod
    def check_arguments(cls, arguments: Mapping[str, Any]) -> None:
        """Refuse arguments of ``create_factory`` before annotations are checked, for a more helpful error.

        Raises:
            ValueError: the message names the value and the way out.
        """

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Refuse what a single annotation cannot: values that exclude each other, names that do not exist.

        Args:
            hyper_parameters: those of the class, and the defaults of those of its base classes that it has fixed. A
                fixed one that has no default in the base classes is missing.

        Raises:
            ValueError: the message names the value and the way out.
        """


@dataclass_transform(kw_only_default=True, eq_default=False)
class FieldComponent(Component):
    """A component whose hyper-parameters are all annotated attributes, so that type checkers see them.

    Type checkers treat each annotation in the body of a subclass as a hyper-parameter, unless it is a ``ClassVar``;
    annotate other attributes where ``__init__`` sets them. They do not see the hyper-parameters of a subclass that
    defines ``__init__``.
    """


if not TYPE_CHECKING:

    class _CreateFactory(classmethod):
        """A class method whose signature has the hyper-parameters of the class that it is called on."""

        def __get__(self, instance, owner=None):
            def create_factory(cls, /, *args, **kwargs):
                return self.__func__(cls, *args, **kwargs)

            owner = type(instance) if owner is None else owner
            create_factory.__module__, create_factory.__qualname__ = (
                owner.__module__,
                f"{owner.__name__}.create_factory",
            )
            create_factory.__doc__ = f"{inspect.getdoc(self.__func__)}\n\n{owner.__name__}: {inspect.getdoc(owner)}"
            cls = inspect.Parameter("cls", inspect.Parameter.POSITIONAL_ONLY)
            parameters = (cls, *hyper_parameters_of(owner).values())
            create_factory.__signature__ = inspect.Signature(parameters, return_annotation=Factory[owner])
            return types.MethodType(create_factory, owner)

    Component.create_factory = _CreateFactory(vars(Component)["create_factory"].__func__)


class Factory(Configured, Generic[T_co]):
    """A callable, picklable and comparable pair of a class and its hyper-parameters."""

    def __init__(self, cls: type[T_co], hyper_parameters: Mapping[str, Any]) -> None:
        self._cls = cls
        self._hyper_parameters = dict(hyper_parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> T_co:
        """Make the part; the arguments are the ``context`` of the class."""
        fields = fields_of(self._cls)
        if not fields:
            context = _later_context(self._cls)
            if context:
                args, kwargs = args[len(context) :], {**dict(zip(context, args, strict=False)), **kwargs}
            return self._cls(*args, **kwargs, **self._hyper_parameters)
        made = self._cls.__new__(self._cls)
        # Not by setattr: that of torch's modules works only after their __init__ has run.
        vars(made).update({name: self._hyper_parameters[name] for name in fields})
        others = {name: value for name, value in self._hyper_parameters.items() if name not in fields}
        made.__init__(*args, **kwargs, **others)  # type: ignore[misc]
        return made

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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Factory):
            return NotImplemented
        return self._cls is other._cls and self._hyper_parameters == other._hyper_parameters

    def __hash__(self) -> int:
        return hash((self._cls, tuple(self._hyper_parameters)))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={text_of(value)}" for name, value in self._hyper_parameters.items())
        return f"{self.name}.create_factory({arguments})"


def make_factory(cls: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Factory[Any]:
    """Return ``cls.create_factory(*args, **kwargs)``, for a class that is known only at run time."""
    hyper_parameters = _bind(cls, args, kwargs)
    cls.check_hyper_parameters(defaults_of(cls) | hyper_parameters)
    return Factory(cls, hyper_parameters)


def _later_context(cls: type[Any]) -> tuple[str, ...]:
    """Return the context of a class whose ``__init__`` takes hyper-parameters before it, as in PyTorchRL."""
    context: tuple[str, ...] = cls.context
    names = list(inspect.signature(cls.__init__).parameters)[1:]
    return context if context and context[0] in names[1:] else ()


def _bind(cls: type[Component], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    declared = hyper_parameters_of(cls)
    for name in kwargs:
        if name not in declared:
            raise TypeError(unknown_hyper_parameter(cls, name, declared))
    signature = inspect.Signature(list(declared.values()))
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        shown = (n if p.default is p.empty else f"{n}={text_of(p.default)}" for n, p in declared.items())
        raise TypeError(f"{cls.__name__}: {error}; it takes {cls.__name__}({', '.join(shown)})") from None
    cls.check_arguments(bound.arguments)
    bound.apply_defaults()
    return {
        name: conform_named(value, declared[name].annotation, f"{cls.__name__}: {name}")
        for name, value in bound.arguments.items()
    }


def unknown_hyper_parameter(cls: type[Component], name: str, declared: Mapping[str, Any]) -> str:
    """Return the message of the error about a name that no hyper-parameter of a class has."""
    hint = hint_for(name, declared, cls.other_names)
    same_words = [one for one in declared if sorted(one.split("_")) == sorted(name.split("_"))]
    near = same_words or difflib.get_close_matches(name, declared, n=1, cutoff=NEAREST)
    if near and not hint:
        hint = f"did you mean {near[0]!r}? "
    known = f"{'There' if hint else 'there'} are {', '.join(declared)}"
    return f"{cls.__name__}: unknown hyper-parameter {name!r}; {hint}{known}"
