"""An override that would never be called is refused when its class is made."""

from typing import Any, ClassVar

import pytest

from pytorchrl.agent.algorithms.refusals import refuse_unused_overrides


class Base:
    unused: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        refuse_unused_overrides(cls)

    def losses(self) -> Any: ...

    def next_value(self) -> Any: ...


class WithoutLosses(Base):
    unused: ClassVar = {"losses": "override update"}


class WithoutNextValue(Base):
    unused: ClassVar = {"next_value": "override target"}


def test_an_override_of_an_unused_method_is_refused_with_what_to_override_instead() -> None:
    with pytest.raises(TypeError, match=r"Own\.losses would never be called; override update, or call losses"):

        class Own(WithoutLosses):
            def losses(self) -> Any: ...


def test_a_class_of_two_refuses_what_either_does_not_call() -> None:
    class Both(WithoutLosses, WithoutNextValue): ...

    assert Both.unused == {"losses": "override update", "next_value": "override target"}
    with pytest.raises(TypeError, match=r"Own\.next_value would never be called; override target"):

        class Own(Both):
            def next_value(self) -> Any: ...


def test_a_class_that_calls_the_method_itself_may_define_it() -> None:
    class Calls(WithoutLosses):
        unused: ClassVar = {}

        def update(self) -> None:
            self.losses()

        def losses(self) -> Any: ...

    class Own(Calls):
        def losses(self) -> Any: ...

    assert Own.unused == {}


def test_other_methods_may_be_overridden() -> None:
    class Own(WithoutLosses):
        def next_value(self) -> Any: ...

    assert Own.unused == WithoutLosses.unused
