"""Losses and their gradients compiled by torch."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows

LossesT = TypeVar("LossesT", Losses, Losses | None)


def compute(algorithm: Any, losses: Callable[[Rows], LossesT], rows: Rows) -> LossesT:
    """Return ``losses(rows)``, computed by compiled functions if the algorithm's ``compile`` is true."""
    return _compute_compiled(algorithm, losses, rows) if algorithm.compile else losses(rows)


def _compute_compiled(algorithm: Any, losses: Callable[[Rows], LossesT], rows: Rows) -> LossesT:
    """Return the losses of rows by compiled functions, which are made at the first call in each process.

    Nothing is kept in the algorithm, so that it is copied, pickled and saved like any other. What torch cannot compile,
    such as a draw from a generator, runs as it is between the compiled parts. Weights are inputs of these: steps of the
    optimiser compile nothing again. On a GPU, the parts are replayed as CUDA graphs.

    Args:
        algorithm: whose losses they are.
        losses: its method, or a function in place of it.
        rows: of a batch.

    Raises:
        RuntimeError: torch cannot compile them; the message names the reason and the way out.
    """
    is_on_gpu = algorithm.device.type == "cuda"
    function = getattr(losses, "__func__", None)
    with _named_errors(algorithm):
        _compute_lazy_fields(rows)
        if is_on_gpu:
            # Graphs overwrite the results of their last run from here on.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        mode = "reduce-overhead" if is_on_gpu else None
        found = _compiled(losses, mode)(rows) if function is None else _compiled(function, mode)(algorithm, rows)
    if found is None:
        return found  # type: ignore[return-value]
    computed = _CompiledLosses(**{field.name: getattr(found, field.name) for field in fields(Losses)})
    computed.algorithm = algorithm
    if is_on_gpu:
        # They are read after the next update.
        computed.metrics = {name: _copied(value) for name, value in computed.metrics.items()}
        computed.errors = _copied(computed.errors)
        computed.recurrent_states = _copied(computed.recurrent_states)
    return computed


NO_LOSSES = "it learns by none"


def not_compiled(why: str) -> Callable[[Callable[..., LossesT]], Callable[..., LossesT]]:
    """Return a decorator of losses that torch cannot compile, by which ``compile=True`` is refused at once.

    Args:
        why: a clause, for the error.
    """

    def mark(losses: Callable[..., LossesT]) -> Callable[..., LossesT]:
        vars(losses)["not_compiled"] = why
        return losses

    return mark


def check_compiles(algorithm: Any) -> None:
    """Refuse ``compile`` where torch cannot compile, or where nothing would be compiled.

    Raises:
        ValueError: the algorithm learns without losses, or marks them as :func:`not_compiled`.
    """
    if not algorithm.compile:
        return
    why = NO_LOSSES if "losses" in algorithm.unused else getattr(algorithm.losses, "not_compiled", None)
    if why is not None:
        raise ValueError(
            f"{type(algorithm).__name__}: compile=True compiles losses and their gradients, but not these: {why}; "
            f"leave out compile"
        )


@lru_cache(maxsize=64)
def _compiled(function: Callable[..., Any], mode: str | None) -> Callable[..., Any]:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_compile_in_this_process)
    return torch.compile(function, mode=mode)


def _compile_in_this_process() -> None:
    """Compile without the processes that help the parent: they never answer a forked one."""
    if (config := sys.modules.get("torch._inductor.config")) is not None:
        setattr(config, "compile_threads", 1)  # noqa: B010


def _compute_lazy_fields(rows: Rows) -> None:
    """Compute the fields of rows that are computed once: up to Python 3.11 by a lock, which torch cannot compile.

    Those of a subclass may draw random numbers, and wait for their turn.
    """
    for name, field in _LAZY_FIELDS.items():
        if getattr(type(rows), name) is field:
            with contextlib.suppress(KeyError):  # of what the batch lacks
                getattr(rows, name)


_LAZY_FIELDS = {name: value for name, value in vars(Rows).items() if isinstance(value, cached_property)}


@dataclass
class _CompiledLosses(Losses):
    """Losses whose gradients are compiled when they are computed first."""

    def backward(self) -> None:
        with _named_errors(self.algorithm):
            super().backward()

    def __post_init__(self) -> None:
        self.algorithm: Any = None


@contextlib.contextmanager
def _named_errors(algorithm: object) -> Iterator[None]:
    """Name the algorithm and the way out in errors of compilation; others pass."""
    # Imported already: by torch.compile.
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except TorchDynamoException as error:
        raise RuntimeError(
            f"{type(algorithm).__name__}: torch cannot compile its losses here: {_reason(error)}; leave out "
            f"compile=True, and they are computed as they are"
        ) from error


def _reason(error: BaseException) -> str:
    """Return the first line that says something of an error of torch."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line and not line.endswith("raised:")), type(error).__name__)


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value
