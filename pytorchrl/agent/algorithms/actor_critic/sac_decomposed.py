"""SACDecomposed (SAC-D): SAC whose critics estimate the return of each component of the reward."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Head
from pytorchrl.agent.actors.heads import ActionComponents
from pytorchrl.agent.actors.outputs import ComponentValue, ScalarValue, Value
from pytorchrl.agent.algorithms.actor_critic.parts.critics import Expected, elementwise_minimum, of_smallest
from pytorchrl.agent.algorithms.actor_critic.parts.reward_components import (
    ENTROPY,
    REWARD,
    check_components,
    influences,
    rewards_of,
    weights_of,
)
from pytorchrl.agent.algorithms.actor_critic.sac import SAC
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from storages.transition import Batch


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
        check_components(cls.__name__, names or (), weights)

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the critics' outputs, in their order; the last is the entropy bonus."""
        return (*(self.reward_components or (REWARD,)), ENTROPY)

    def build(self) -> None:
        """Make SAC's networks, and the weights of the critics' outputs."""
        super().build()
        self._weights = weights_of(self.components, self.component_weights, self.device)

    def _use_parameters(self) -> None:
        super()._use_parameters()
        self._weights = weights_of(self.components, self.component_weights, self.device)

    def critic_head(self) -> Head:
        """Return the critics' head: the expected returns of the components, and the expected entropy bonus."""
        return ActionComponents(len(self.components))

    def critic_losses(self, outputs: Sequence[Any], target: Value, rows: Rows) -> Losses:
        """Return the critics' loss; metrics are mean values, and the distance of rewards from the components' sum."""
        losses = super().critic_losses(outputs, target, rows)
        values = (rows.share * outputs[0].components.detach()).sum(0)
        losses.metrics.update({f"value/{name}": value for name, value in zip(self.components, values, strict=True)})
        if self.reward_components:
            losses.metrics["unexplained_reward"] = rows.mean((rows.reward - self._paid(rows)).abs())
        return losses

    def backed_up(self, rows: Rows, after: Expected, alpha: Tensor) -> Value:
        """Return rewards plus discounted values of the components; the entropy of the next state is the last reward."""
        bonus = rows.discount * alpha * after.entropy
        return after.value.backup(torch.cat([self._rewards(rows), bonus], dim=1), rows.discount)

    def value_for_policy(self, values: Sequence[Any]) -> Value:
        """Return the minimum of the critics' weighted sums."""
        return ScalarValue(elementwise_minimum(self._totals(values)))

    def value_for_target(self, values: Sequence[Any]) -> ComponentValue:
        """Return, in each row, all outputs of the critic with the smallest weighted sum."""
        return ComponentValue(of_smallest(self._totals(values), [value.components for value in values]))

    def influence(self, batch: Batch) -> dict[str, Tensor]:
        """Return the share of each component in the policy's gradient at the actions of a batch, by name.

        Returns:
            Numbers in [0, 1] that sum to 1, or 0 where there is no gradient, in the shape of the batch's rewards.
        """
        rows = self.read(batch)
        action = rows.action.detach().requires_grad_()
        with self.critics.frozen():
            values = self.value_for_target(self.critics(rows.now, action)).components
        shares = influences(values * self._weights[:, 0], action).unbind(1)
        return {name: rows.per_row(share.contiguous()) for name, share in zip(self.components, shares, strict=True)}

    def _totals(self, values: Sequence[Any]) -> list[Tensor]:
        return [value.components @ self._weights for value in values]

    def _rewards(self, rows: Rows) -> Tensor:
        return rewards_of(rows, self.reward_components or (), type(self).__name__)

    def _paid(self, rows: Rows) -> Tensor:
        """Return the weighted sum of the components of rewards, (N, 1)."""
        return self._rewards(rows) @ self._weights[:-1]
