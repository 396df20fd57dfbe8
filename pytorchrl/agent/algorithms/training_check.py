"""Check of what an algorithm has registered to be trained."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from pytorchrl.agent.algorithms.training import TrainingState
from pytorchrl.agent.optimizers import Optimizer


def check_training(training: TrainingState, algorithm: object, actor: nn.Module) -> None:
    """Check what was registered, once the algorithm is built.

    Raises:
        ValueError: a trained network is not among the actor's, the algorithm has no hyper-parameter of a name
            that was given, ``max_grad_norm`` would clip nothing, or ``optimizers`` names a group that there is not.
    """
    owner, names = type(algorithm).__name__, {name for target in training.targets.values() for name in target.names}
    saved = {id(parameter) for parameter in (*actor.parameters(), *training.variables.values())}
    for group in training.groups.values():
        names |= {group.learning_rate, group.max_grad_norm}
        if any(id(parameter) not in saved for parameter in group.parameters.values()):
            raise ValueError(
                f"{owner}: the networks trained as {group.name!r} are not among the actor's, so that checkpoints "
                f"would lack their weights; make them by self.actor.make, or add them by self.actor.add"
            )
    for name in sorted(filter(None, names)):
        if not hasattr(algorithm, name):
            raise ValueError(
                f"{owner}: what it trains needs a hyper-parameter {name!r}, which it lacks; declare it as an "
                f"annotated attribute, such as {name}: float = ..., or name another in train or target"
            )
    unknown = [name for name in getattr(algorithm, "optimizers", None) or {} if name not in training.groups]
    if unknown:
        raise ValueError(
            f"{owner}: optimizers names {', '.join(map(repr, unknown))}, but the parameter groups are "
            f"{', '.join(map(repr, training.groups))}"
        )
    clips = any(group.max_grad_norm == "max_grad_norm" for group in training.groups.values())
    if not clips and (norm := getattr(algorithm, "max_grad_norm", None)) is not None:
        raise ValueError(
            f"{owner} takes no step whose gradients could be clipped, got max_grad_norm={norm}; leave it None"
        )


def refuse_other_optimizers(optimizers: Mapping[str, Any], owner: str) -> None:
    """Refuse what is no optimiser among those of single parameter groups.

    Raises:
        ValueError: the message names the group and the value.
    """
    for group, optimizer in optimizers.items():
        if not isinstance(optimizer, Optimizer):
            raise ValueError(
                f"{owner}: optimizers[{group!r}] must be an optimiser, such as AdamW(weight_decay=1e-2), got "
                f"{optimizer!r}"
            )
