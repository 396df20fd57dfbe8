"""Components, their hyper-parameters and their factories: from ``create_factory(...)`` to the object.

Every part that a user composes is a :class:`Component`. Its hyper-parameters are annotated attributes:

1. :func:`hyper_parameters_of` reads them from the bodies of a class and its base classes.
2. ``SomeClass.create_factory(...)`` names the arguments, checks and converts each by its annotation, adds the defaults,
   lets the class refuse what no annotation can, and returns a :class:`Factory` of the values.
3. A call of the factory, with the context (a device, an actor, environments), makes an empty object, sets the values as
   its attributes, and calls ``__init__`` with the context.

Classes that are also made directly (:class:`StandaloneComponent`) do the second step in ``__init__``.
"""

import inspect
import types
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from numbers import Number
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar, dataclass_transform

from storages.component.annotations import conform_named
from storages.component.declared import declarations_of, defaults_of, hyper_parameters_of, parameter
from storages.component.other_names import Answering, OtherNames, refuse_attribute, unknown_hyper_parameters
from storages.component.own_init import context_by_name
from storages.component.setting import Configured, text_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
class Component(Answering):
    """Base class of composable parts, whose hyper-parameters are bound by a factory.

    A hyper-parameter is an annotated attribute with a default, ``lr: NonNegativeOrSchedule = 1e-3``, or declared by
    :func:`parameter`. The factory sets it on the object before ``__init__`` runs, which takes the ``context`` alone.
    Subclasses inherit it, may give it another default, and fix it by a ``ClassVar``, a property or a method of its
    name. Names that begin with an underscore, annotations without a value and a ``ClassVar`` are none. Annotate other
    attributes where they are set: to type checkers, each annotation in the body of a class is a hyper-parameter.

    A subclass may also declare hyper-parameters in an ``__init__`` of its own (:mod:`storages.component.own_init`),
    after the context, and pass ``**kwargs`` on; type checkers then know those of its signature alone.
    """

    context: ClassVar[tuple[str, ...]] = ()
    """Parameters of ``__init__`` that the caller of the factory supplies, in order; they are not hyper-parameters."""
    other_names: ClassVar[OtherNames] = {}
    """Names of hyper-parameters in other libraries, for hints in the error about an unknown name."""
    role: ClassVar[str] = ""
    """The argument of a scheme that takes a factory of the class, for messages."""
    example: ClassVar[str] = ""
    """Arguments of ``create_factory``, as code, for messages."""
    takes_hyper_parameters: ClassVar[bool] = False
    """Whether ``__init__`` takes hyper-parameters after the context."""

    @classmethod
    def create_factory(cls: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> "Factory[T]":
        """Bind the hyper-parameters, and return a factory that makes the part.

        Raises:
            TypeError: a hyper-parameter is missing, or unknown (the message names the nearest one).
            ValueError: a value is of a wrong type or outside its range.
        """
        return make_factory(cls, args, kwargs)  # type: ignore[arg-type]

    @classmethod
    def usage(cls) -> str:
        """Return how the part is given to a run, as the end of a message about a call that does not fit."""
        return f"; a scheme takes its factory: {cls.role}={factory_call(cls)}" if cls.role else ""

    def _end_init(self) -> None:
        """Do what follows the object's ``__init__``."""

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


FieldComponent = Component
"""The name of :class:`Component` in versions in which it had another way to declare hyper-parameters."""


class _ShownSignature:
    """The signature of a class that help and notebooks show, where it has no ``__init__`` of its own."""

    def __get__(self, instance: object, owner: type[Any]) -> Signature:
        if vars(StandaloneComponent)["__init__"] is not getattr(owner, "__init__", None):
            raise AttributeError
        return Signature([*_context_of(owner), *declarations_of(owner).fields.values()])


class StandaloneComponent(Component):
    """A component that is made by its factory, or directly: by the context, then hyper-parameters.

    Its ``__init__`` calls ``build`` with the context, once hyper-parameters are set. The first hyper-parameter may
    precede the context, as in PyTorchRL; a call is read so where its first argument is a number or None, which no
    context begins with.
    """

    takes_hyper_parameters = True

    if not TYPE_CHECKING:

        def __init__(self, *args, **kwargs):
            self.build(*_bind_directly(self, args, kwargs))
            if type(self).__init__ is StandaloneComponent.__init__:
                # Else an __init__ of a user's class has not returned yet.
                self._end_init()

        __signature__ = _ShownSignature()


class Factory(Configured, Generic[T_co]):
    """A callable, picklable and comparable pair of a class and its hyper-parameters."""

    def __init__(self, cls: type[T_co], hyper_parameters: Mapping[str, Any]) -> None:
        self._cls = cls
        self._hyper_parameters = dict(hyper_parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> T_co:
        """Make the part; the arguments are the ``context`` of the class."""
        bound = declarations_of(self._cls).bound
        made = self._cls.__new__(self._cls)
        # Not by setattr: that of torch's modules works only after their __init__ has run.
        vars(made).update({k: value for k, value in self._hyper_parameters.items() if k not in bound.passed})
        passed = {name: value for name, value in self._hyper_parameters.items() if name in bound.passed}
        if bound.context_follows:
            args, kwargs = context_by_name(self._cls.context, args, kwargs)  # type: ignore[attr-defined]
        made.__init__(*args, **kwargs, **passed)  # type: ignore[misc]
        made._end_init()  # type: ignore[attr-defined]
        return made

    if not TYPE_CHECKING:  # for which each name would exist

        def __getattr__(self, name):
            # Copies and unpickled factories have no class at first.
            return refuse_attribute(self, "Factory", name, {} if name.startswith("_") else self._answers(name))

    def _answers(self, name: str) -> Mapping[str, str]:
        """Return what to write instead of an attribute that the factory lacks, where that is known."""
        cls: Any = self._cls
        if name in (answers := getattr(cls, "other_methods", {})):
            return answers
        if name in self._hyper_parameters:
            return {name: f"factory.hyper_parameters[{name!r}] is its value"}
        has = f"objects of {cls.__name__} have it, which the factory makes: factory({', '.join(cls.context)})"
        return {name: has} if hasattr(cls, name) else {}

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


def factory_call(cls: type[Component]) -> str:
    """Return a call of ``create_factory`` as code, for messages."""
    return f"{cls.__name__}.create_factory({cls.example})"


def make_factory(cls: type[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Factory[Any]:
    """Return ``cls.create_factory(*args, **kwargs)``, for a class that is known only at run time."""
    declared = hyper_parameters_of(cls)
    if unknown := [name for name in kwargs if name not in declared]:
        raise TypeError(unknown_hyper_parameters(cls, unknown, declared))
    try:
        given = Signature(list(declared.values())).bind(*args, **kwargs).arguments
    except TypeError as error:
        shown = (n if p.default is p.empty else f"{n}={text_of(p.default)}" for n, p in declared.items())
        hint = cls.usage() if args else ""
        raise TypeError(f"{cls.__name__}: {error}{hint}; it takes {cls.__name__}({', '.join(shown)})") from None
    cls.check_arguments(given)
    values = _conformed(cls, declared, given)
    cls.check_hyper_parameters(defaults_of(cls) | values)
    return Factory(cls, values)


def _conformed(cls: type[Any], declared: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of declared hyper-parameters, checked and converted: those given, and defaults."""
    return {
        name: conform_named(given.get(name, one.default), one.annotation, f"{cls.__name__}: {name}")
        for name, one in declared.items()
    }


def _context_of(cls: type[Component]) -> list[Parameter]:
    return [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in cls.context]


def _bind_directly(made: StandaloneComponent, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """Set those hyper-parameters of an object that its factory has not set, and return its context."""
    cls, fields, present = type(made), declarations_of(type(made)).fields, vars(made)
    context = _context_of(cls)
    first, *others = fields.values()
    order = [*context, first, *others]
    if first.default is Parameter.empty and args and (args[0] is None or isinstance(args[0], Number)):
        order = [first, *context, *others]
    known_names = {one.name: one for one in order}
    if unknown := [name for name in kwargs if name not in known_names]:
        raise TypeError(unknown_hyper_parameters(cls, unknown, known_names))
    try:
        given = Signature(order).bind_partial(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{cls.__name__}: {error}{cls.usage()}") from None
    for one in order:
        if one.default is Parameter.empty and one.name not in given and (one in context or one.name not in present):
            raise TypeError(f"{cls.__name__}: missing a required argument: {one.name!r}{cls.usage()}")
    unset = {name: one for name, one in fields.items() if name in given or name not in present}
    if unset:
        cls.check_arguments(given)
        present.update(_conformed(cls, unset, given))
        known = defaults_of(cls) | present
        if hyper_parameters_of(cls).keys() <= known.keys():
            cls.check_hyper_parameters(known)
    return [given[name] for name in cls.context]


if not TYPE_CHECKING:

    class _CreateFactory(classmethod):
        """A class method whose signature and help show the hyper-parameters of the class that it is called on."""

        def __get__(self, instance, owner=None):
            owner = type(instance) if owner is None else owner

            def create_factory(cls, /, *args, **kwargs):
                return self.__func__(cls, *args, **kwargs)

            cls = Parameter("cls", Parameter.POSITIONAL_ONLY)
            create_factory.__module__, create_factory.__qualname__ = (
                owner.__module__,
                f"{owner.__name__}.create_factory",
            )
            create_factory.__doc__ = f"{inspect.getdoc(self.__func__)}\n\n{owner.__name__}: {inspect.getdoc(owner)}"
            create_factory.__signature__ = Signature(
                (cls, *hyper_parameters_of(owner).values()), return_annotation=Factory[owner]
            )
            return types.MethodType(create_factory, owner)

    Component.create_factory = _CreateFactory(vars(Component)["create_factory"].__func__)
