"""Memory by address, inside compiled code.

A batch comes out of many arrays of many dtypes. Reached by their addresses, they are all copied by one compiled call;
passed one by one, the calls alone would take longer than the copying. Addresses are those of arrays that the caller
holds on to.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel, kernel

_READ, _KEEP_IN_ALL_CACHES, _OF_DATA = 0, 3, 1
_LONGEST_SHORT_ROW_BYTES = 128

ADDRESS, KIND, LENGTHS = range(3)
"""What is said of an array: where it begins, of which kind it is, and, from there on, how long its axes are."""
MOST_AXES = 6
DESCRIBED = LENGTHS + MOST_AXES
"""How many numbers that takes."""

# Bytes after which things are in what CPython and NumPy keep of a tuple, an array, and a dtype. All of it is part of
# their binary interface: PyTupleObject, PyArrayObject_fields and PyArray_Descr of their C headers.
_HEAD = object.__basicsize__
_TYPE = _HEAD - 8
_FIRST_OF_TUPLE = tuple.__basicsize__
_DATA, _AXES, _SHAPE, _DTYPE, _FLAGS = (_HEAD + 8 * word for word in (0, 1, 2, 5, 6))
_ORDER, _NUMBER = _HEAD + 10, _HEAD + 12
_PLAIN = np.int32(0x0001 | 0x0100)
"""In C's order, in one piece; aligned."""
_OTHER_ORDER = ord(">" if sys.byteorder == "little" else "<")


@intrinsic
def _prefetch_at(typing_context: Any, address: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte_pointer, integer, integer, integer])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte_pointer], function_type)
        options = [integer(option) for option in (_READ, _KEEP_IN_ALL_CACHES, _OF_DATA)]
        builder.call(function, [builder.inttoptr(arguments[0], byte_pointer), *options])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def _copy_bytes(typing_context: Any, target: Any, source: Any, count: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte_pointer = ir.IntType(8).as_pointer()
        to, start = (builder.inttoptr(address, byte_pointer) for address in arguments[:2])
        one = ir.Constant(arguments[2].type, 1)
        cgutils.raw_memcpy(builder, to, start, arguments[2], one, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def _address_of(typing_context: Any, array: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(made.data, ir.IntType(64))

    return types.int64(array), generate


@intrinsic
def _pointer_to(typing_context: Any, address: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


def _loader(number: Any, stored: ir.Type) -> Any:

    @intrinsic
    def load(typing_context: Any, address: Any) -> Any:

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(builder.inttoptr(arguments[0], stored.as_pointer()))
            value.align = 1
            return value

        return number(types.int64), generate

    return load


def _storer(number: Any, stored: ir.Type) -> Any:

    @intrinsic
    def store(typing_context: Any, address: Any, value: Any) -> Any:

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            instruction = builder.store(arguments[1], builder.inttoptr(arguments[0], stored.as_pointer()))
            instruction.align = 1
            return context.get_dummy_value()

        return types.void(types.int64, number), generate

    return store


# Intrinsics are called without the context that their definitions take.
prefetch_at: Callable[[int | np.signedinteger], None] = _prefetch_at  # type: ignore[assignment]
"""Ask for the cache line of an address."""
copy_bytes: Callable[[int, int, int], None] = _copy_bytes  # type: ignore[assignment]
"""Copy to an address, from an address, so many bytes; the two do not overlap."""
address_of: Callable[[NDArray[Any]], int] = _address_of  # type: ignore[assignment]
"""Where an array begins."""
load_byte: Callable[[int], int] = _loader(types.uint8, ir.IntType(8))
load_int32: Callable[[int], int] = _loader(types.int32, ir.IntType(32))
load_int64: Callable[[int], int] = _loader(types.int64, ir.IntType(64))
store_byte: Callable[[int, int], None] = _storer(types.uint8, ir.IntType(8))
store_int32: Callable[[int, int | np.signedinteger], None] = _storer(types.int32, ir.IntType(32))
store_int64: Callable[[int, int], None] = _storer(types.int64, ir.IntType(64))
store_float32: Callable[[int, float], None] = _storer(types.float32, ir.FloatType())
_pointer: Callable[[int], Any] = _pointer_to  # type: ignore[assignment]


def data_address(array: NDArray[Any]) -> int:
    """Where an array begins, asked from Python."""
    return int(array.__array_interface__["data"][0])


def kind_of(dtype: np.dtype[Any], axes: int) -> int:
    """A number that tells apart arrays of different dtypes or numbers of axes; in one piece, in C's order."""
    return _kind(dtype.num, axes)


@register_jitable
def _kind(number: int, axes: int) -> int:
    return number * 2 * MOST_AXES + min(axes, 2 * MOST_AXES - 1)


@kernel
def describe(described: NDArray[np.int64], arrays: int, array_type: int) -> bool:
    """Write where arrays of any dtypes begin, of which kind they are, and how long their axes.

    Their own memory is read, as NumPy's C interface lays it out, so that all of them cost what one would if it were
    passed to compiled code.

    Args:
        described: (arrays, DESCRIBED), written: address, :func:`kind_of`, and the length of each axis, of
            ``MOST_AXES`` at most, 0 where there are fewer. The kind is -1 of what is not in one piece, in C's order,
            aligned, with the bytes of a number in this machine's order.
        arrays: ``id`` of a tuple of as many arrays, which the caller holds.
        array_type: ``id(numpy.ndarray)``.

    Returns:
        Whether they are arrays, and nothing else; what was written means nothing otherwise.
    """
    for position in range(described.shape[0]):
        array = load_int64(arrays + _FIRST_OF_TUPLE + 8 * position)
        if load_int64(array + _TYPE) != array_type:
            return False
        axes, lengths, dtype = load_int32(array + _AXES), load_int64(array + _SHAPE), load_int64(array + _DTYPE)
        plain = load_int32(array + _FLAGS) & _PLAIN == _PLAIN and load_byte(dtype + _ORDER) != _OTHER_ORDER
        described[position, ADDRESS] = load_int64(array + _DATA)
        described[position, KIND] = _kind(load_int32(dtype + _NUMBER), axes) if plain else -1
        for axis in range(MOST_AXES):
            described[position, LENGTHS + axis] = load_int64(lengths + 8 * axis) if axis < axes else 0
    return True


@inlined_kernel
def int32s_at(address: int, count: int) -> NDArray[np.int32]:
    """An array over so many int32: a loop over it is compiled to vector instructions, one over addresses is not."""
    array: NDArray[np.int32] = carray(_pointer(address), count, np.int32)
    return array


@inlined_kernel
def int64s_at(address: int, count: int) -> NDArray[np.int64]:
    """As :func:`int32s_at`, of int64."""
    array: NDArray[np.int64] = carray(_pointer(address), count, np.int64)
    return array


@inlined_kernel
def table_at(address: int, rows: int, columns: int) -> NDArray[np.int64]:
    """As :func:`int64s_at`, (rows, columns)."""
    array: NDArray[np.int64] = carray(_pointer(address), (rows, columns), np.int64)
    return array


@inlined_kernel
def flags_at(address: int, count: int) -> NDArray[np.bool_]:
    """As :func:`int64s_at`, of bool."""
    array: NDArray[np.bool_] = carray(_pointer(address), count, np.bool_)
    return array


@inlined_kernel
def copy_row(target: int, source: int, width: int) -> None:
    """As :func:`copy_bytes`; without its call where a row is short, because that would take longer than the copy."""
    if 8 <= width <= _LONGEST_SHORT_ROW_BYTES:
        last = width - 8
        for k in range(0, last, 8):
            store_int64(target + k, load_int64(source + k))
        store_int64(target + last, load_int64(source + last))
    else:
        copy_bytes(target, source, width)
