"""Asking for memory before it is needed.

Rows chosen at random lie where no cache holds them, and a loop that copies one after the other waits for each. Asked
for beforehand, they arrive together: copying 256 rows of 17 numbers out of a million takes 2.4 instead of 11
microseconds.
"""

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

_CACHE_LINE_BYTES = 64
_READ, _KEEP_IN_ALL_CACHES, _DATA = 0, 3, 1


@intrinsic
def _prefetch(typing_context: Any, array: Any, row: Any, column: Any) -> Any:

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        made = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, array_type, made, arguments[1:], wraparound=False)
        byte_pointer, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
        function_type = ir.FunctionType(ir.VoidType(), [byte_pointer, integer, integer, integer])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte_pointer], function_type)
        options = [integer(option) for option in (_READ, _KEEP_IN_ALL_CACHES, _DATA)]
        builder.call(function, [builder.bitcast(pointer, byte_pointer), *options])
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


# An intrinsic is called without the context that its definition takes.
prefetch: Callable[[NDArray[Any], int, int], None] = _prefetch  # type: ignore[assignment]
"""Inside compiled code: ask for the cache line that ``array[row, column]`` lies in; the array is two-dimensional."""


@numba.njit(cache=True, nogil=True)
def prefetch_row(source: NDArray[Any], row: int) -> None:
    """Ask for all cache lines of a row of bytes."""
    width = source.shape[1]
    for column in range(0, width, _CACHE_LINE_BYTES):
        prefetch(source, row, column)
    # A row that begins within a line ends in one more.
    prefetch(source, row, width - 1)
