"""Memories of users: any module with the interface of a recurrent cell, or of a recurrent layer, of torch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from pytorchrl.agent.actors.encoders.custom_extractors import name_of
from pytorchrl.agent.actors.memory import check_sequence, spans_of_episodes, unrolled_step_by_step
from pytorchrl.agent.global_generators import seeded

MemoryMaker: TypeAlias = Callable[[int, int], nn.Module]
"""Makes a module from the number of features in, and the ``memory_size``."""


class OwnMemory(nn.Module):
    """A user's module as a memory; its state is the concatenation of all parts of the module's.

    Args:
        make: makes the module, which is tried on a few numbers.
        input_size: features in.
        size: passed on to ``make``; the number of features out is that of the module.

    Raises:
        TypeError: what is made is no module.
        ValueError: it has neither the interface of a cell nor that of a layer, or its steps depend on later ones.
    """

    def __init__(self, make: MemoryMaker, input_size: int, size: int) -> None:
        super().__init__()
        self.cells = make(input_size, size)
        if not isinstance(self.cells, nn.Module):
            raise TypeError(
                f"memory {name_of(make)} must make a torch.nn.Module of (input_size, size), got a "
                f"{type(self.cells).__name__}"
            )
        self.interface, self.output_size = interface_of(self.cells, input_size, name_of(make))
        self.state_size = sum(map(math.prod, self.interface.shapes))

    def forward(self, features: Tensor, state: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Compute one step; see ``Memory``."""
        interface = self.interface
        if interface.is_layer:
            output, state = self._span(features[None], state * (1 - done))
            return output[0], state
        after = self.cells(features, interface.own(state * (1 - done)))
        shown: Tensor = after if interface.is_single else after[0]
        return shown, interface.flat(after)

    def unroll(self, features: Tensor, state: Tensor, done: Tensor, *, states: bool = True) -> tuple[Tensor, Tensor]:
        """Compute a sequence of steps; see ``Memory``."""
        check_sequence(features, done)
        if states or not self.interface.is_layer or features.device.type != "cpu":
            return unrolled_step_by_step(self, features, state, done)
        outputs = []
        for start, end in spans_of_episodes(done):
            output, state = self._span(features[start:end], state * (1 - done[start]))
            outputs.append(output)
        return torch.cat(outputs), state[None]

    def _span(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        output, after = self.cells(features, self.interface.own(state))
        return output, self.interface.flat(after)


_STEPS, _ROWS = 3, 2


@dataclass(frozen=True)
class Interface:
    """How a user's module is called.

    Args:
        is_layer: whether it is called for many steps, as ``torch.nn.GRU``, or for one, as ``torch.nn.GRUCell``.
        shapes: of the parts of its state, without the batch: (layers, *size) of a layer, (*size) of a cell.
        is_single: whether its state is one tensor, not a tuple.
    """

    is_layer: bool
    shapes: tuple[tuple[int, ...], ...]
    is_single: bool

    def flat(self, state: Any) -> Tensor:
        """Return a state as one tensor (B, state_size)."""
        parts = (state,) if self.is_single else state
        rows = [(part.transpose(0, 1) if self.is_layer else part).flatten(1) for part in parts]
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)

    def own(self, state: Tensor) -> Any:
        """Return a state (B, state_size) as the module takes it."""
        parts, sizes = [], [math.prod(shape) for shape in self.shapes]
        for part, shape in zip(torch.split(state, sizes, dim=1), self.shapes, strict=True):
            shaped = part.view(-1, *shape) if len(shape) > 1 else part
            # Kernels for GPUs need it.
            parts.append(shaped.transpose(0, 1).contiguous() if self.is_layer else shaped)
        return parts[0] if self.is_single else tuple(parts)


class _MisfitError(Exception):
    """What a module did that a cell, or a layer, does not do."""


def interface_of(module: nn.Module, input_size: int, who: str) -> tuple[Interface, int]:
    """Try a module as a cell and as a layer, and return its interface and the number of features out.

    Raises:
        ValueError: it has neither, its steps depend on later ones, or it begins with another state than zeros.
    """
    modes = {part: part.training for part in module.modules()}
    module.eval()
    misfits: list[_MisfitError] = []
    try:
        with torch.no_grad():
            for tried in (_tried_as_cell, _tried_as_layer):
                try:
                    interface, size = tried(module, input_size)
                    _check_beginning(module, interface, input_size, who)
                    if interface.is_layer:
                        _check_steps(module, interface, input_size, who)
                    return interface, size
                except _MisfitError as misfit:
                    misfits.append(misfit)
    finally:
        for part, training in modes.items():
            part.training = training
    as_cell, as_layer = misfits
    raise ValueError(
        f"memory {who} must be a recurrent cell, called as torch.nn.GRUCell or LSTMCell: state = cell(features, "
        f"state), features (B, {input_size}), state (B, size) or a tuple of such; or a recurrent layer, called as "
        f"torch.nn.GRU or LSTM: output, state = layer(features, state), features (T, B, {input_size}), output (T, B, "
        f"n), state (layers, B, size) or a tuple of such; all of {torch.get_default_dtype()}. It begins without a "
        f"state, or with zeros of the sizes that its hidden_size declares. As a cell, {as_cell}. As a layer, {as_layer}"
    ) from (as_cell.__cause__ or as_layer.__cause__)


def _tried_as_cell(module: nn.Module, input_size: int) -> tuple[Interface, int]:
    found: list[Interface] = []
    for rows in (_STEPS, _ROWS):
        features = _features(module, rows, input_size)
        after = _first(module, features, (rows,))
        parts = _parts_of(after, features)
        if any(part.ndim < 2 or len(part) != rows for part in parts) or parts[0].ndim != 2:
            raise _MisfitError(f"for features {tuple(features.shape)} it returned {_shown(after)}")
        interface = Interface(
            is_layer=False, shapes=tuple(tuple(part.shape[1:]) for part in parts), is_single=isinstance(after, Tensor)
        )
        zeros = features.new_zeros((rows, sum(map(math.prod, interface.shapes))))
        again = _called(module, features, interface.own(zeros))
        _check_same(after, again, features)
        found.append(interface)
    if found[0] != found[1]:
        raise _MisfitError(f"the sizes of its state change with the batch, {found[0].shapes} and {found[1].shapes}")
    return found[0], found[0].shapes[0][0]


def _tried_as_layer(module: nn.Module, input_size: int) -> tuple[Interface, int]:
    features = _features(module, _STEPS, _ROWS, input_size)
    returned = _first(module, features, (getattr(module, "num_layers", 1), _ROWS))
    output, after = _output_and_state(returned, features)
    parts = _parts_of(after, features)
    if any(part.ndim < 3 or part.shape[1] != _ROWS for part in parts):
        raise _MisfitError(f"for features {tuple(features.shape)} it returned {_shown(returned)}")
    shapes = tuple((part.shape[0], *part.shape[2:]) for part in parts)
    interface = Interface(is_layer=True, shapes=shapes, is_single=isinstance(after, Tensor))
    return interface, output.shape[2]


def _check_beginning(module: nn.Module, interface: Interface, input_size: int, who: str) -> None:
    """Check that a module begins with zeros if it is given no state, and keeps none between calls."""
    features = _features(module, *((_STEPS, _ROWS) if interface.is_layer else (_ROWS,)), input_size)
    begin = interface.own(features.new_zeros((_ROWS, sum(map(math.prod, interface.shapes)))))
    found = []
    for state in ((), (), (begin,)):
        try:
            # The same numbers for a module that draws some.
            with seeded(np.random.SeedSequence(0), features.device):
                returned = _called(module, features, *state)
        except _MisfitError:
            # It takes no call without a state.
            return
        found.append(interface.flat(returned[1] if interface.is_layer else returned))
    once, again, from_zeros = found
    if once.is_meta or torch.allclose(once, from_zeros, rtol=1e-3, atol=1e-4):
        return
    if not torch.allclose(once, again, rtol=1e-3, atol=1e-4):
        reason = "keeps a state between calls; the state is an argument and a result"
    else:
        reason = "begins with another state than zeros where it is given none; states here begin with zeros"
    raise ValueError(f"memory {who} {reason}, where an episode begins too")


def _check_steps(module: nn.Module, interface: Interface, input_size: int, who: str) -> None:
    """Check that a layer computes the same for single steps as for a sequence of them."""
    features = _features(module, _STEPS, _ROWS, input_size)
    begin = features.new_zeros((_ROWS, sum(map(math.prod, interface.shapes))))
    (whole, after), (again, _) = (_step_of_layer(module, interface, features, begin) for _ in range(2))
    state, outputs = begin, []
    for one in torch.split(features, 1):
        output, state = _step_of_layer(module, interface, one, state)
        outputs.append(output)
    # Those of modules that draw random numbers differ in any case; numbers on the meta device do not exist.
    if whole.is_meta or not torch.equal(whole, again):
        return
    found, expected = [*outputs, state], [*torch.split(whole, 1), after]
    if not all(torch.allclose(one, other, rtol=1e-3, atol=1e-4) for one, other in zip(found, expected, strict=True)):
        raise ValueError(
            f"memory {who} computes something else for single steps than for a sequence of them; its output may depend "
            f"on the state before and on earlier steps, but not on later ones, as that of a bidirectional layer does"
        )


def _step_of_layer(module: nn.Module, interface: Interface, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    own = interface.own(state)
    output, after = _output_and_state(_called(module, features, own), features)
    _check_same(own, after, features)
    return output, interface.flat(after)


def _features(module: nn.Module, *shape: int) -> Tensor:
    tensor = next(module.parameters(), next(module.buffers(), None))
    device = None if tensor is None else tensor.device
    return torch.linspace(-1, 1, math.prod(shape), device=device).view(shape)


def _first(module: nn.Module, features: Tensor, batch: tuple[int, ...]) -> Any:
    """Call a module without a state, or with zeros of the sizes that it declares."""
    declared = getattr(module, "hidden_size", None)
    try:
        return _called(module, features)
    except _MisfitError:
        if declared is None:
            raise
    sizes = declared if isinstance(declared, list | tuple) else [declared]
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise _MisfitError(f"its hidden_size is {declared!r}, and neither a size nor a tuple of sizes")
    zeros = tuple(features.new_zeros((*batch, size)) for size in sizes)
    return _called(module, features, zeros[0] if isinstance(declared, int) else zeros)


def _called(module: nn.Module, features: Tensor, *state: Any) -> Any:
    try:
        return module(features, *state)
    except Exception as error:  # of a user's module; the refusal quotes it
        given = f"features {tuple(features.shape)}" + (f" and state {_shown(state[0])}" if state else " and no state")
        raise _MisfitError(f"for {given} it raised {type(error).__name__}: {error}") from error


def _output_and_state(returned: Any, features: Tensor) -> tuple[Tensor, Any]:
    is_pair = isinstance(returned, list | tuple) and len(returned) == 2
    output = returned[0] if is_pair else None
    if not isinstance(output, Tensor) or output.ndim != 3 or output.shape[:2] != features.shape[:2]:
        raise _MisfitError(f"for features {tuple(features.shape)} it returned {_shown(returned)}")
    return _parts_of(output, features)[0], returned[1]


def _parts_of(state: Any, features: Tensor) -> tuple[Tensor, ...]:
    parts = (state,) if isinstance(state, Tensor) else tuple(state) if isinstance(state, list | tuple) else ()
    if not parts or not all(isinstance(part, Tensor) and part.dtype == features.dtype for part in parts):
        raise _MisfitError(f"for features {tuple(features.shape)} it returned {_shown(state)}")
    return parts


def _check_same(expected: Any, state: Any, features: Tensor) -> None:
    wanted, found = _parts_of(expected, features), _parts_of(state, features)
    if [part.shape for part in found] != [part.shape for part in wanted]:
        raise _MisfitError(f"it returned the state {_shown(state)} after the state {_shown(expected)}")


def _shown(value: Any) -> str:
    """Describe what a module returned."""
    if isinstance(value, Tensor):
        dtype = "" if value.dtype == torch.get_default_dtype() else f" of {value.dtype}"
        return f"a Tensor {tuple(value.shape)}{dtype}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {', '.join(map(_shown, value)) or 'nothing'}"
    return f"a {type(value).__name__}"
