"""Compiled kernels of fully connected layers: tanh, activation after a bias, and whole layers for a few rows.

All of them are in one file, because numba's cache compiles a kernel again only if the kernel's own file has changed.
Addresses are those of contiguous float32 arrays.
"""

from typing import Any

import numpy as np
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from storages.core.kernels.compilation import arithmetic_kernel, inlined_kernel
from storages.core.kernels.memory import pointer

RELU, TANGENT = 0, 1
"""Activations."""

# Minimax rational approximation of tanh, of a relative error of at most 2.1e-8 for inputs up to 9. Beyond, tanh rounds
# to 1.
_LARGEST_INPUT = np.float32(9.0)
_ONE, _ZERO = np.float32(1.0), np.float32(0.0)
_P1, _P2, _P3, _P4 = map(np.float32, (0.13381013, 0.0034955740, 2.0608852e-05, 1.3354352e-08))
_Q1, _Q2, _Q3, _Q4 = map(np.float32, (0.46714330, 0.025876928, 0.00032856117, 7.7764292e-07))

_LANES = 16
"""Rows that a CPU with 512-bit vectors computes at a time."""
_BLOCK = 4
"""Inputs and outputs of a block of the matrix product, whose numbers are loaded once."""


@inlined_kernel
def _tangent(x: Any) -> Any:
    # Written so that NaN stays NaN.
    x = -_LARGEST_INPUT if x < -_LARGEST_INPUT else (_LARGEST_INPUT if x > _LARGEST_INPUT else x)
    square = x * x
    above = (((_P4 * square + _P3) * square + _P2) * square + _P1) * square + _ONE
    below = (((_Q4 * square + _Q3) * square + _Q2) * square + _Q1) * square + _ONE
    tangent = np.divide(x * above, below)  # without the branch that `/` has for zero
    return -_ONE if tangent < -_ONE else (_ONE if tangent > _ONE else tangent)


@inlined_kernel
def _rectified(x: Any) -> Any:
    return _ZERO if x < _ZERO else x


@arithmetic_kernel(nogil=True)
def write_tangents(numbers_at: int, tangents_at: int, count: int) -> None:
    """Write the tanh of ``count`` numbers."""
    numbers, tangents = carray(pointer(numbers_at), count, np.float32), carray(pointer(tangents_at), count, np.float32)
    for position in range(count):
        tangents[position] = _tangent(numbers[position])


@arithmetic_kernel(nogil=True)
def add_bias_and_activate(address: int, bias_at: int, groups: int, rows: int, columns: int, activation: int) -> None:
    """Add biases to numbers (groups, rows, columns) at an address, and apply the activation, in place.

    Args:
        address: of the numbers, which are overwritten.
        bias_at: address of (groups, columns), a bias for the rows of each group.
        groups: of rows.
        rows: of each group.
        columns: of all.
        activation: :data:`RELU` or :data:`TANGENT`.
    """
    numbers = carray(pointer(address), (groups, rows, columns), np.float32)
    bias = carray(pointer(bias_at), (groups, columns), np.float32)
    for group in range(groups):
        for row in range(rows):
            if activation == TANGENT:
                for column in range(columns):
                    numbers[group, row, column] = _tangent(numbers[group, row, column] + bias[group, column])
            else:
                for column in range(columns):
                    numbers[group, row, column] = _rectified(numbers[group, row, column] + bias[group, column])


@arithmetic_kernel(nogil=True)
def slope_below_one_output(
    slope_at: int, weight_at: int, units_at: int, result_at: int, rows: int, columns: int, activation: int
) -> None:
    """Write the gradient of a loss with respect to the pre-activations below a layer with one output.

    Args:
        slope_at: address of (rows,), the gradient with respect to the output.
        weight_at: address of (columns,), the weights of the layer.
        units_at: address of (rows, columns), the activations.
        result_at: address of (rows, columns), which are written.
        rows: how many there are.
        columns: how many there are.
        activation: :data:`RELU` or :data:`TANGENT`.
    """
    slope = carray(pointer(slope_at), rows, np.float32)
    weight = carray(pointer(weight_at), columns, np.float32)
    units = carray(pointer(units_at), (rows, columns), np.float32)
    result = carray(pointer(result_at), (rows, columns), np.float32)
    for row in range(rows):
        if activation == TANGENT:
            for column in range(columns):
                unit = units[row, column]
                result[row, column] = slope[row] * weight[column] * (_ONE - unit * unit)
        else:
            for column in range(columns):
                # Computed unconditionally, so that the loop is vectorised.
                product = slope[row] * weight[column]
                result[row, column] = _ZERO if units[row, column] <= _ZERO else product


@arithmetic_kernel(nogil=False)
def apply_layers_by_rows(
    layers: NDArray[np.int64], features_at: int, outputs_at: int, rows: int, activation: int, activated: int
) -> None:
    """Apply several layers, the first of them each followed by the activation, one row at a time.

    Args:
        layers: (layers, 4): addresses of weight and bias, inputs and outputs of each.
        features_at: address of (rows, inputs).
        outputs_at: address of (rows, outputs), which are written.
        rows: how many there are.
        activation: :data:`RELU` or :data:`TANGENT`.
        activated: number of layers that it follows.
    """
    widest, inputs, outputs = _widest(layers), layers[0, 2], layers[len(layers) - 1, 3]
    features = carray(pointer(features_at), (rows, inputs), np.float32)
    results = carray(pointer(outputs_at), (rows, outputs), np.float32)
    below, above = np.empty(widest, np.float32), np.empty(widest, np.float32)
    for row in range(rows):
        units = features[row]
        for layer in range(len(layers)):
            width, height = layers[layer, 2], layers[layer, 3]
            weight = carray(pointer(layers[layer, 0]), (height, width), np.float32)
            bias = carray(pointer(layers[layer, 1]), height, np.float32)
            for output in range(height):
                total = bias[output]
                for position in range(width):
                    total += weight[output, position] * units[position]
                above[output] = total
            if layer < activated:
                _activate(above, height, activation)
            units, below, above = above, above, below
        # A slice assignment takes five seconds to compile.
        for output in range(outputs):
            results[row, output] = units[output]


@arithmetic_kernel(nogil=False)
def apply_layers_by_columns(
    layers: NDArray[np.int64], features_at: int, outputs_at: int, rows: int, activation: int, activated: int
) -> None:
    """As :func:`apply_layers_by_rows`, but one unit at a time, for all rows."""
    widest, inputs, outputs = _widest(layers), layers[0, 2], layers[len(layers) - 1, 3]
    features = carray(pointer(features_at), (rows, inputs), np.float32)
    results = carray(pointer(outputs_at), (rows, outputs), np.float32)
    padded = (rows + _LANES - 1) // _LANES * _LANES
    below, above = np.empty((widest, padded), np.float32), np.empty((widest, padded), np.float32)
    for position in range(inputs):
        for row in range(rows):
            below[position, row] = features[row, position]
        # Uninitialised memory could hold denormal numbers, which are slow to compute with.
        for row in range(rows, padded):
            below[position, row] = _ZERO
    for layer in range(len(layers)):
        width, height = layers[layer, 2], layers[layer, 3]
        weight = carray(pointer(layers[layer, 0]), (height, width), np.float32)
        bias = carray(pointer(layers[layer, 1]), height, np.float32)
        for output in range(height):
            for row in range(padded):
                above[output, row] = bias[output]
        _add_products(weight, below, above)
        if layer < activated:
            _activate(above.reshape(-1), height * padded, activation)
        below, above = above, below
    for row in range(rows):
        for output in range(outputs):
            results[row, output] = below[output, row]


@inlined_kernel
def _widest(layers: NDArray[np.int64]) -> Any:
    """Return the largest number of inputs or outputs of a layer."""
    widest: Any = np.int64(0)
    for layer in range(len(layers)):
        widest = max(widest, layers[layer, 2], layers[layer, 3])
    return widest


@arithmetic_kernel(nogil=False)
def _activate(units: NDArray[np.float32], count: int, activation: int) -> None:
    if activation == TANGENT:
        for position in range(count):
            units[position] = _tangent(units[position])
    else:
        for position in range(count):
            units[position] = _rectified(units[position])


@arithmetic_kernel(nogil=False)
def _add_products(weight: NDArray[np.float32], below: NDArray[np.float32], above: NDArray[np.float32]) -> None:
    """Compute ``above[:outputs] += weight @ below[:inputs]``, in blocks whose numbers are loaded once."""
    outputs, inputs = weight.shape
    rows = below.shape[1]
    whole_outputs, whole_inputs = outputs // _BLOCK * _BLOCK, inputs // _BLOCK * _BLOCK
    for o in range(0, whole_outputs, _BLOCK):
        for i in range(0, whole_inputs, _BLOCK):
            a0, a1, a2, a3 = weight[o, i], weight[o, i + 1], weight[o, i + 2], weight[o, i + 3]
            b0, b1, b2, b3 = weight[o + 1, i], weight[o + 1, i + 1], weight[o + 1, i + 2], weight[o + 1, i + 3]
            c0, c1, c2, c3 = weight[o + 2, i], weight[o + 2, i + 1], weight[o + 2, i + 2], weight[o + 2, i + 3]
            d0, d1, d2, d3 = weight[o + 3, i], weight[o + 3, i + 1], weight[o + 3, i + 2], weight[o + 3, i + 3]
            for row in range(rows):
                x0, x1, x2, x3 = below[i, row], below[i + 1, row], below[i + 2, row], below[i + 3, row]
                above[o, row] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                above[o + 1, row] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
                above[o + 2, row] += c0 * x0 + c1 * x1 + c2 * x2 + c3 * x3
                above[o + 3, row] += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
        for i in range(whole_inputs, inputs):
            for output in range(o, o + _BLOCK):
                for row in range(rows):
                    above[output, row] += weight[output, i] * below[i, row]
    for output in range(whole_outputs, outputs):
        for i in range(inputs):
            for row in range(rows):
                above[output, row] += weight[output, i] * below[i, row]
