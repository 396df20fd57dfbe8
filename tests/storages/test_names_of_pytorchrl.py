"""Names of PyTorchRL's storages that differ here are refused with the right ones, where called and where overridden."""

import inspect
from typing import Any

import numpy as np
import pytest

import storages
from storages import PERBuffer, Storage
from storages.component.other_names import STORAGE_ARGUMENTS, STORAGE_METHODS
from tests.support.model import ALGORITHM

EXPORTED = [getattr(storages, name) for name in storages.__all__]
CLASSES = [
    cls for cls in EXPORTED if isinstance(cls, type) and issubclass(cls, Storage) and not inspect.isabstract(cls)
]


def made() -> Any:
    return PERBuffer.create_factory(10, alpha=0.6)("cpu", None, ALGORITHM, None)


@pytest.mark.parametrize("name", STORAGE_METHODS)
def test_an_attribute_of_pytorchrl_is_missing_with_a_word_on_what_is_here(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}': ") as missing:
        getattr(made(), name)
    assert STORAGE_METHODS[name] in str(missing.value)
    assert not hasattr(made(), name)
    with pytest.raises(AttributeError, match=r"no attribute 'get_colour'$"):
        made().get_colour  # noqa: B018


@pytest.mark.parametrize("name", STORAGE_METHODS)
@pytest.mark.parametrize("cls", CLASSES)
def test_overriding_what_is_never_called_is_refused_when_the_class_is_made(cls: type[Storage], name: str) -> None:
    with pytest.raises(TypeError, match=f"Own.{name} would never be used: "):
        type("Own", (cls,), {name: lambda self: None})


@pytest.mark.parametrize("name", STORAGE_ARGUMENTS)
@pytest.mark.parametrize("cls", CLASSES)
def test_keywords_of_pytorchrl_are_refused_with_the_names_here(cls: type[Storage], name: str) -> None:
    for old, new in STORAGE_ARGUMENTS[name].items():
        right = f"{old} is {new} here" if new else f"there is no {old}"
        with pytest.raises(TypeError, match=f"{cls.__name__}.{name}: {right}"):
            getattr(cls, name)(object.__new__(cls), **{old: 1})
        namespace: dict[str, Any] = {}
        exec(f"def {name}(self, {old}): ...", namespace)
        with pytest.raises(TypeError, match=f"Own.{name} is called with other arguments: {right}"):
            type("Own", (cls,), {name: namespace[name]})


def test_appending_a_tensor_as_in_pytorchrl_is_refused_with_what_appends() -> None:
    with pytest.raises(
        TypeError, match=r"overwrites a field, got a key of type dict; insert_data_slice\(data\) appends"
    ):
        made().insert_single_tensor_slice({}, "Reward", np.ones((2, 1, 1), np.float32))


def test_a_size_in_place_of_the_device_is_refused_with_the_way_in() -> None:
    with pytest.raises(TypeError, match=r"device must come first, .* got 100; .*PERBuffer.create_factory\(size=100\)"):
        PERBuffer(100, "cpu", None, ALGORITHM, None)  # type: ignore[arg-type,call-arg]
