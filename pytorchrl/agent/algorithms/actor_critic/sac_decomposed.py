"""SACDecomposed (SAC-D): SAC whose critics estimate the return of each component of the reward."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionComponents
from pytorchrl.agent.actors.outputs import ComponentValue, ScalarValue, Value
from pytorchrl.agent.algorithms.actor_critic.critics import elementwise_minimum, loss_of_critics, of_smallest
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import REWC, Batch

REWARD, ENTROPY = "reward", "entropy"
"""Names of the reward as the only component, and of the entropy bonus."""
Weights = Mapping[str, Any] | None


class SACDecomposed(SAC):
    """MacGlashan et al., "Value Function Decomposition for Iterative Design of RL Agents" (arXiv 2206.13901), SAC-D.

    Each critic has an output for every component of the reward and one for the entropy bonus, each with its own target.
    The policy maximises their weighted sum, and not the reward that the environment pays; the weight of the entropy
    bonus is 1. The error for priorities is the Euclidean norm of the outputs' errors, averaged over all critics.

    Args:
        reward_components: entries of the environments' infos to store with each step and to learn from: numbers, or
            "name[2]" for one of an array. None learns from the reward as the only component, "reward".
        component_weights: weights of components by name, 1 where there is none. They may change during a run, because
            the critics' outputs are not weighted.

    Raises:
        ValueError: a component is named twice, or a weight is not a finite number of a component.
    """

    unchangeable = frozenset({"reward_components"})

    reward_components: Sequence[str] | None = None  # type: ignore[misc]  # what others leave to the reward alone
    component_weights: Mapping[str, Any] | None = None  # type: ignore[misc]

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that names differ, and that weights are those of components."""
        super().check_hyper_parameters(hyper_parameters)
        names, weights = (hyper_parameters[name] for name in ("reward_components", "component_weights"))
        _check_components(cls.__name__, names or (), weights)

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the critics' outputs, in their order; the last is the entropy bonus."""
        return (*(self.reward_components or (REWARD,)), ENTROPY)

    def build(self) -> None:
        """Make SAC's networks, and the weights of the critics' outputs."""
        super().build()
        self._weights = _weights_of(self.components, self.component_weights, self.device)

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of all outputs of the critics against their targets.

        Metrics are mean values, and the distance of rewards from the components' weighted sum.
        """
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            target = self.target_value(rows, alpha)
        values = self.critics(rows.now, rows.action)
        loss, errors = loss_of_critics(values, target, rows)
        metrics = {"critic_loss": loss.detach(), "alpha": alpha[0]}
        means = (rows.mean_weights * values[0].components.detach()).sum(0)
        metrics |= {f"value/{name}": mean for name, mean in zip(self.components, means, strict=True)}
        if self.reward_components:
            paid = self._rewards(rows) @ self._weights[:-1]
            metrics["unexplained_reward"] = rows.mean((rows.reward - paid).abs())
        return Losses({self.train_critics: loss}, metrics, errors)

    def target_value(self, rows: Rows, alpha: Tensor) -> Value:
        """Return rewards plus discounted values of the components; the entropy of the next state is the last reward."""
        next_action, log_prob = self.pi(rows.next).sample_with_log_prob(self.generator)
        value = self.value_for_target(self.target_critics(rows.next, next_action))
        bonus = -alpha * rows.discount * log_prob
        return value.backup(torch.cat([self._rewards(rows), bonus], dim=1), rows.discount)

    def value_for_policy(self, values: Sequence[Any]) -> Value:
        """Return the minimum of the critics' weighted sums."""
        return ScalarValue(elementwise_minimum(self._totals(values)))

    def value_for_target(self, values: Sequence[Any]) -> ComponentValue:
        """Return, in each row, all outputs of the critic with the smallest weighted sum."""
        return ComponentValue(of_smallest(self._totals(values), [value.components for value in values]))

    def critic_head(self) -> Head:
        """Return the critics' head: the expected returns of the components, and the expected entropy bonus."""
        return ActionComponents(len(self.components))

    def influence(self, batch: Batch) -> dict[str, Tensor]:
        """Return the share of each component in the policy's gradient at the actions of a batch, by name.

        Returns:
            Numbers in [0, 1] that sum to 1, or 0 where there is no gradient, in the shape of the batch's rewards.
        """
        rows = self.read(batch)
        action = rows.action.detach().requires_grad_()
        with self.critics.frozen():
            values = self.value_for_target(self.critics(rows.now, action)).components
        shares = _influences(values * self._weights[:, 0], action).unbind(1)
        return {name: rows.per_row(share.contiguous()) for name, share in zip(self.components, shares, strict=True)}

    def _use_parameters(self) -> None:
        super()._use_parameters()
        self._weights = _weights_of(self.components, self.component_weights, self.device)

    def _totals(self, values: Sequence[Any]) -> list[Tensor]:
        return [value.components @ self._weights for value in values]

    def _rewards(self, rows: Rows) -> Tensor:
        """Return the components of rewards (N, m), float32; without names, the reward.

        Raises:
            ValueError: the batch has none, or another number of them.
        """
        names = self.reward_components
        if not names:
            return rows.reward
        found = rows[REWC] if REWC in rows.batch else None
        if found is None or found.shape[1] != len(names):
            raise ValueError(
                f"{type(self).__name__}: batches must have {len(names)} reward_components ({', '.join(names)}), got "
                f"{0 if found is None else found.shape[1]}; steps that others have collected must hold them in a field "
                f"{REWC!r}, ({len(names)},) in each"
            )
        return found.float()


def _check_components(owner: str, names: Sequence[str], weights: Weights) -> None:
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


def _weights_of(names: Sequence[str], weights: Weights, device: torch.device) -> Tensor:
    """Return the weights (m, 1) of components, 1 for those without one."""
    return torch.tensor([[float((weights or {}).get(name, 1))] for name in names], device=device)


def _influences(values: Tensor, action: Tensor) -> Tensor:
    """Return the share (N, m) of each value (N, m) in the gradient by an action (N, *action) that they depend on.

    The reward influence of MacGlashan et al., "Value Function Decomposition for Iterative Design of RL Agents" (arXiv
    2206.13901), as nnabla-rl computes it: the Euclidean distance of the gradient of the sum from that without the
    component, divided by the sum of all distances.
    """
    gradients = [torch.autograd.grad(one.sum(), action, retain_graph=True)[0] for one in values.unbind(1)]
    norms = torch.stack([torch.linalg.vector_norm(each.flatten(1), dim=1) for each in gradients], dim=1)
    return norms / norms.sum(1, keepdim=True).clamp(min=torch.finfo(norms.dtype).tiny)
