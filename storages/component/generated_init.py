"""Generation of ``__init__`` from annotated attributes, so that each hyper-parameter is declared once."""

import inspect
import typing
from collections.abc import Callable
from inspect import Parameter, Signature
from numbers import Number
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from storages.component.annotations import conform_named
from storages.component.declared import defaults_of, is_class_variable

C = TypeVar("C", bound=type[Any])
_HYPER_PARAMETERS = "_hyper_parameters_of_init"


class _Declared(NamedTuple):
    """Declaration of a hyper-parameter by :func:`parameter`, until the class is decorated."""

    default: Any
    kw_only: bool
    after: str | None


def parameter(*, default: Any = Parameter.empty, kw_only: bool = True, after: str | None = None) -> Any:
    """Declare a hyper-parameter without a default, or one that may be passed by position.

    Args:
        default: its default; without one it is required.
        kw_only: whether it is keyword-only.
        after: the positional hyper-parameter that it follows; the last one of the base class where None.
    """
    return _Declared(default, kw_only, after)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
def with_hyper_parameters(cls: C) -> C:
    """Generate the ``__init__`` of a component from its annotated attributes and those of its base.

    It takes the class's context, the hyper-parameters of the base, and the class's own: annotated attributes with a
    default, or with :func:`parameter`. It sets all hyper-parameters, and calls ``build`` with the context. A
    ``ClassVar`` of the same name fixes the value of an inherited hyper-parameter.

    The first hyper-parameter may also precede the context; a call is read so where its first argument is a number or
    None, which no context begins with. Values are converted and refused as ``create_factory`` does.
    """
    inherited: dict[str, Parameter] = getattr(cls, _HYPER_PARAMETERS, {})
    annotations = typing.get_type_hints(cls, include_extras=True)
    own: dict[str, Parameter] = {}
    positional = {name: each for name, each in inherited.items() if each.kind is not Parameter.KEYWORD_ONLY}
    given = inspect.get_annotations(cls)
    for name in given:
        value = vars(cls).get(name, Parameter.empty)
        if isinstance(value, _Declared):
            declared = value
            if declared.default is Parameter.empty:
                delattr(cls, name)
            else:
                setattr(cls, name, declared.default)
            if name in cls.context:
                continue
        elif value is Parameter.empty or name.startswith("_") or is_class_variable(annotations[name]):
            continue
        else:
            declared = _Declared(value, True, None)
        kind = Parameter.KEYWORD_ONLY if declared.kw_only else Parameter.POSITIONAL_OR_KEYWORD
        new = Parameter(name, kind, default=declared.default, annotation=annotations[name])
        if declared.kw_only:
            own[name] = new
        elif declared.after is None or name in positional:
            positional[name] = new
        else:
            order = list(positional)
            order.insert(order.index(declared.after) + 1, name)
            positional = {each: positional.get(each, new) for each in order}
    keywords = {name: each for name, each in inherited.items() if name not in positional and name not in given}
    hyper_parameters = {**positional, **own, **keywords}
    setattr(cls, _HYPER_PARAMETERS, hyper_parameters)
    cls.__init__ = _init_of(cls, hyper_parameters)
    return cls


def _init_of(cls: Any, hyper_parameters: dict[str, Parameter]) -> Callable[..., None]:
    this = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    context = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in cls.context]
    signature = Signature([this, *context, *hyper_parameters.values()])
    first, *others = hyper_parameters.values()
    first_before_context = Signature([this, first, *context, *others]) if first.default is first.empty else signature

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        leads = bool(args) and (args[0] is None or isinstance(args[0], Number))
        try:
            bound = (first_before_context if leads else signature).bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None
        bound.apply_defaults()
        values = {
            name: conform_named(bound.arguments[name], each.annotation, f"{cls.__name__}: {name}")
            for name, each in hyper_parameters.items()
        }
        cls.check_hyper_parameters(defaults_of(cls) | values)
        for name, value in values.items():
            setattr(self, name, value)
        self.build(*(bound.arguments[name] for name in cls.context))

    init.__signature__ = signature  # type: ignore[attr-defined]
    init.__annotations__ = {name: each.annotation for name, each in hyper_parameters.items()}
    init.__name__ = "__init__"
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init
