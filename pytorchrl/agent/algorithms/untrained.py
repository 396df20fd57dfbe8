"""Warnings about what updates leave as it was built: a group without a loss, and networks without a group."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from pytorchrl.agent.algorithms.algorithm import Algorithm

UPDATES_BEFORE = 100
"""After so many updates a process looks; more than any delay between the updates of a policy."""


def warn_of_untrained(algorithm: "Algorithm") -> None:
    """Warn of parameter groups that took no step, and of networks that receive gradients but are in no group."""
    name, training = type(algorithm).__name__, algorithm.training
    groups = training.groups.values()
    networks = [group for group in groups if group.name not in training.variables]  # a temperature may be fixed
    left = [group.name for group in networks if not (group.has_stepped or group.is_frozen)]
    if left:
        _warn(
            f"{name}: {UPDATES_BEFORE} updates took no step on the parameter group {_list(left)}, as no loss of it was "
            f"returned; `losses` returns Losses({{group: loss}}) with what self.train returned, or "
            f"requires_grad_(False) freezes its parameters"
        )
    grouped = {parameter for group in groups for parameter in group.parameters.values()}
    outside = [place for place, module in _modules_of(algorithm) if _receives_gradients(module, grouped)]
    if outside:
        _warn(
            f"{name}: {_list(outside)} receives gradients, but is in no parameter group, so that it does not learn; "
            f"register it in `build`, by self.train(name, network), or detach its output"
        )


def _modules_of(algorithm: "Algorithm") -> Iterator[tuple[str, nn.Module]]:
    """Yield the networks of an algorithm with the places that a user knows them by, each once."""
    seen: set[nn.Module] = {algorithm.actor}
    of_actor = [(f"actor.networks[{name!r}]", network) for name, network in algorithm.actor.networks.items()]
    for place, module in [*vars(algorithm).items(), *of_actor]:
        if isinstance(module, nn.Module) and module not in seen:
            seen.add(module)
            yield place, module


def _receives_gradients(module: nn.Module, grouped: set[nn.Parameter]) -> bool:
    return any(each.requires_grad and each.grad is not None and each not in grouped for each in module.parameters())


def _list(names: list[str]) -> str:
    return " and ".join(names)


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)
