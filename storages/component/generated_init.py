"""An ``__init__`` that is generated from annotated attributes, so that a hyper-parameter is written down once."""

import inspect
import typing
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, TypeVar, dataclass_transform

C = TypeVar("C", bound=type[Any])
_HYPER_PARAMETERS = "_hyper_parameters_of_init"


class _Declared:
    """What :func:`parameter` says of a hyper-parameter, until the class is complete."""

    def __init__(self, default: Any, kw_only: bool, after: str | None) -> None:
        self.default, self.kw_only, self.after = default, kw_only, after


def parameter(*, default: Any = Parameter.empty, kw_only: bool = True, after: str | None = None) -> Any:
    """Declare a hyper-parameter that has no default, or that may be given by position.

    Args:
        default: of the hyper-parameter, which is required without one.
        kw_only: whether it is given by its name alone.
        after: the hyper-parameter that it follows by position; the last of the base class where None.
    """
    return _Declared(default, kw_only, after)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
def with_hyper_parameters(cls: C) -> C:
    """Generate the ``__init__`` of a component from its annotated attributes and those of its base.

    It takes the class's context, the hyper-parameters of the base, and the class's own: annotated attributes with a
    default, or with :func:`parameter`. It sets all hyper-parameters, and calls ``build`` with the context. A
    ``ClassVar`` in the place of an inherited hyper-parameter fixes its value.
    """
    inherited: dict[str, Parameter] = getattr(cls, _HYPER_PARAMETERS, {})
    annotations = typing.get_type_hints(cls, include_extras=True)
    own: list[Parameter] = []
    positional = [each for each in inherited.values() if each.kind is not Parameter.KEYWORD_ONLY]
    for name in inspect.get_annotations(cls):
        value = vars(cls).get(name, Parameter.empty)
        declared = value if isinstance(value, _Declared) else _Declared(value, True, None)
        if declared is not value:
            is_one = value is not Parameter.empty and not name.startswith("_") and not _is_fixed(annotations[name])
        else:
            is_one = name not in cls.context
            if declared.default is Parameter.empty:
                delattr(cls, name)
            else:
                setattr(cls, name, declared.default)
        if not is_one:
            continue
        kind = Parameter.KEYWORD_ONLY if declared.kw_only else Parameter.POSITIONAL_OR_KEYWORD
        new = Parameter(name, kind, default=declared.default, annotation=annotations[name])
        if declared.kw_only:
            own.append(new)
        else:
            names = [each.name for each in positional]
            if name in names:
                positional[names.index(name)] = new
            else:
                positional.insert(len(names) if declared.after is None else names.index(declared.after) + 1, new)
    given = inspect.get_annotations(cls)
    keywords = [each for each in inherited.values() if each.kind is Parameter.KEYWORD_ONLY and each.name not in given]
    parameters = [*positional, *own, *keywords]
    hyper_parameters = {each.name: each for each in parameters}
    setattr(cls, _HYPER_PARAMETERS, hyper_parameters)
    cls.__init__ = _init_of(cls, hyper_parameters)
    return cls


def _is_fixed(annotation: Any) -> bool:
    return annotation is typing.ClassVar or typing.get_origin(annotation) is typing.ClassVar


def _init_of(cls: Any, hyper_parameters: dict[str, Parameter]) -> Callable[..., None]:
    context = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("self", *cls.context)]
    signature = Signature([*context, *hyper_parameters.values()])

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None
        bound.apply_defaults()
        for name in hyper_parameters:
            setattr(self, name, bound.arguments[name])
        self.build(*(bound.arguments[name] for name in cls.context))

    init.__signature__ = signature  # type: ignore[attr-defined]
    init.__annotations__ = {name: each.annotation for name, each in hyper_parameters.items()}
    init.__name__ = "__init__"
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init
