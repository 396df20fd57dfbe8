"""Access to memory by address, inside compiled code.

A batch is copied from many arrays of many dtypes. Given their addresses, one compiled call copies all of them; passed
as arguments, the arrays would take longer to unpack than to copy. The caller keeps every addressed array alive.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from storages.core.kernels.compilation import inlined_kernel

_READ, _KEEP_IN_ALL_CACHES, _OF_DATA = 0, 3, 1
_LONGEST_SHORT_ROW_BYTES, _VECTOR_BYTES = 128, 32


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
def _copy_vector(typing_context: Any, target: Any, source: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = ir.VectorType(ir.IntType(8), _VECTOR_BYTES).as_pointer()
        value = builder.load(builder.inttoptr(arguments[1], block))
        value.align = 1
        instruction = builder.store(value, builder.inttoptr(arguments[0], block))
        instruction.align = 1
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


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


@intrinsic
def _read_arrays(typing_context: Any, arrays: Any, addresses: Any, lengths: Any) -> Any:
    if any(array.layout != "C" for array in arrays):
        raise TypingError(f"only arrays in C order are read by address, got {arrays}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        values, to, expected = arguments
        to, expected = (builder.inttoptr(pointer, word.as_pointer()) for pointer in (to, expected))
        fits, axes = cgutils.true_bit, 0
        for position, array_type in enumerate(signature.args[0].types):
            array = context.make_array(array_type)(context, builder, builder.extract_value(values, position))
            builder.store(builder.ptrtoint(array.data, word), builder.gep(to, [word(position)]))
            for length in cgutils.unpack_tuple(builder, array.shape, array_type.ndim):
                same = builder.icmp_signed("==", length, builder.load(builder.gep(expected, [word(axes)])))
                fits, axes = builder.and_(fits, same), axes + 1
        return fits

    return types.boolean(arrays, types.int64, types.int64), generate


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
"""Prefetch the cache line of an address."""
copy_bytes: Callable[[int, int, int], None] = _copy_bytes  # type: ignore[assignment]
"""Copy to an address from another a number of bytes; the regions must not overlap."""
_copy_one_vector: Callable[[int, int], None] = _copy_vector  # type: ignore[assignment]
address_of: Callable[[NDArray[Any]], int] = _address_of  # type: ignore[assignment]
"""Return the address of an array's data."""
read_arrays: Callable[[tuple[NDArray[Any], ...], int, int], bool] = _read_arrays  # type: ignore[assignment]
"""Write the data addresses of a tuple of arrays as int64 to an address; return whether their concatenated shapes equal
the int64 at another address."""
load_byte: Callable[[int], int] = _loader(types.uint8, ir.IntType(8))
load_int32: Callable[[int], int] = _loader(types.int32, ir.IntType(32))
load_int64: Callable[[int], int] = _loader(types.int64, ir.IntType(64))
store_byte: Callable[[int, int], None] = _storer(types.uint8, ir.IntType(8))
store_int32: Callable[[int, int | np.signedinteger], None] = _storer(types.int32, ir.IntType(32))
store_int64: Callable[[int, int], None] = _storer(types.int64, ir.IntType(64))
store_float32: Callable[[int, float], None] = _storer(types.float32, ir.FloatType())
pointer: Callable[[int], Any] = _pointer_to  # type: ignore[assignment]


def data_address(array: NDArray[Any]) -> int:
    """Return the address of an array's data, outside of compiled code."""
    return int(array.__array_interface__["data"][0])


@inlined_kernel
def int32s_at(address: int, count: int) -> NDArray[np.int32]:
    """View ``count`` int32 as an array, because a loop over an array is vectorised, one over addresses is not."""
    array: NDArray[np.int32] = carray(pointer(address), count, np.int32)
    return array


@inlined_kernel
def int64s_at(address: int, count: int) -> NDArray[np.int64]:
    """View ``count`` int64 as an array."""
    array: NDArray[np.int64] = carray(pointer(address), count, np.int64)
    return array


@inlined_kernel
def prefetch(array: NDArray[Any], row: int, column: int) -> None:
    """Prefetch the cache line of ``array[row, column]`` of a two-dimensional array.

    Random rows are not in the cache, and a loop that copies them waits for each. Prefetched, their cache misses
    overlap.
    """
    prefetch_at(address_of(array) + row * array.strides[0] + column * array.strides[1])


@inlined_kernel
def copy_row(target: int, source: int, width: int) -> None:
    """Copy as :func:`copy_bytes`, but without a call of memcpy for short rows, where the call would dominate."""
    if _VECTOR_BYTES <= width <= _LONGEST_SHORT_ROW_BYTES:
        last = width - _VECTOR_BYTES
        for k in range(0, last, _VECTOR_BYTES):
            _copy_one_vector(target + k, source + k)
        _copy_one_vector(target + last, source + last)
    elif 8 <= width <= _LONGEST_SHORT_ROW_BYTES:
        last = width - 8
        for k in range(0, last, 8):
            store_int64(target + k, load_int64(source + k))
        store_int64(target + last, load_int64(source + last))
    else:
        copy_bytes(target, source, width)
