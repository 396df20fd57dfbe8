"""Components of rewards: their names, weights, rewards, and influence on the policy."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import REWC

REWARD, ENTROPY = "reward", "entropy"
"""Names of the reward as the only component, and of the entropy bonus."""
Weights = Mapping[str, Any] | None


def check_components(owner: str, names: Sequence[str], weights: Weights) -> None:
    """Check names of components, and their weights.

    Args:
        owner: the algorithm's name.
        names: of components.
        weights: by name; None for no weights.

    Raises:
        ValueError: a component is named twice or "entropy", or a weight is not a finite number of a component.
    """
    for name in names:
        if name == ENTROPY:
            raise ValueError(f"{owner}: {name!r} is the entropy bonus, which is no entry of reward_components")
        if names.count(name) > 1:
            raise ValueError(f"{owner}: reward_components holds {name!r} twice")
    for name, weight in (weights or {}).items():
        known = names or (REWARD,)
        if name not in known:
            raise ValueError(
                f"{owner}: component_weights names {name!r}, but the components are {', '.join(map(repr, known))}"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            raise ValueError(f"{owner}: the weight of {name!r} must be a finite number, got {weight!r}")


def weights_of(names: Sequence[str], weights: Weights, device: torch.device) -> Tensor:
    """Return the weights (m, 1) of components, 1 for those without one."""
    return torch.tensor([[float((weights or {}).get(name, 1))] for name in names], device=device)


def rewards_of(rows: Rows, names: Sequence[str], owner: str) -> Tensor:
    """Return the components of rewards (N, m), float32; without names, the reward.

    Raises:
        ValueError: the batch has none, or another number of them.
    """
    if not names:
        return rows.reward
    found = rows[REWC] if REWC in rows.batch else None
    if found is None or found.shape[1] != len(names):
        raise ValueError(
            f"{owner}: batches must have {len(names)} reward_components ({', '.join(names)}), got "
            f"{0 if found is None else found.shape[1]}; steps that others have collected must hold them in a field "
            f"{REWC!r}, ({len(names)},) in each"
        )
    return found.float()


def influences(values: Tensor, action: Tensor) -> Tensor:
    """Return the share (N, m) of each value (N, m) in the gradient by an action (N, *action) that they depend on.

    The reward influence of MacGlashan et al., "Value Function Decomposition for Iterative Design of RL Agents" (arXiv
    2206.13901), as nnabla-rl computes it: the Euclidean distance of the gradient of the sum from that without the
    component, divided by the sum of all distances.
    """
    gradients = [torch.autograd.grad(one.sum(), action, retain_graph=True)[0] for one in values.unbind(1)]
    norms = torch.stack([torch.linalg.vector_norm(each.flatten(1), dim=1) for each in gradients], dim=1)
    return norms / norms.sum(1, keepdim=True).clamp(min=torch.finfo(norms.dtype).tiny)
