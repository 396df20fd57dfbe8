"""RND: PPO with an intrinsic reward, the error in predicting the features of a random network."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.actor import Actor
from pytorchrl.agent.actors.heads import Features, StateValue
from pytorchrl.agent.actors.layers.normalization import ObservationNormalization, RunningNormalization
from pytorchrl.agent.actors.network import Network
from pytorchrl.agent.actors.view import View
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.policy_gradient.ppo import PPO
from pytorchrl.agent.algorithms.results import Losses, Metrics
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration
from storages.component.hyper_parameters import Count, NonNegative, NonNegativeOrSchedule, UnitInterval, Within
from storages.storage import Storage
from storages.transition import ADV, IADV, IRET, IREW, IVAL, LOGP, OBS2, SKIPPED, Batch

_AT_ONCE = 512  # transitions, which the statistics convert to float64


class RND(PPO):
    """Burda et al., "Exploration by Random Network Distillation" (arXiv 1810.12894).

    The intrinsic reward is the squared error of a predictor network, which is trained on the features of the next
    observation by a fixed random network. Intrinsic rewards have their own value function and returns, by default
    non-episodic. The policy's advantage is a weighted sum of both. ``use_clipped_value_loss`` clips the extrinsic value
    only.

    Args:
        lr_predictor: learning rate of the predictor.
        num_features: output size of the random network, and units of the predictor's layers.
        predictor_share: share of a batch's transitions, drawn at random, that the predictor is trained on.
        intrinsic_gamma: discount factor of intrinsic rewards.
        intrinsic_returns_end: end intrinsic returns with episodes; False makes them non-episodic.
        intrinsic_coef: weight of intrinsic advantages.
        extrinsic_coef: weight of extrinsic advantages.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("rollout", intrinsic=True)}

    lr_predictor: NonNegativeOrSchedule = 1e-4
    num_features: Count = 128
    predictor_share: Annotated[UnitInterval, Within(0, float("inf"), open=True)] = 0.25
    intrinsic_gamma: UnitInterval = 0.99
    intrinsic_returns_end: bool = False
    intrinsic_coef: NonNegative = 1.0
    extrinsic_coef: NonNegative = 2.0

    def build(self) -> None:
        """Make PPO's networks, the intrinsic value function, the random network and its predictor."""
        super().build()
        self.novelty = Novelty(self.actor, self.num_features)
        self.train_predictor = self.train("predictor", self.novelty.predictor, lr="lr_predictor", max_grad_norm=None)

    def make_networks(self) -> tuple[Network, ...]:
        """Make PPO's networks and the intrinsic value function."""
        networks = super().make_networks()
        self.intrinsic_value = self.actor.make("intrinsic_value", StateValue(), acts=True)
        return *networks, self.intrinsic_value

    def losses(self, rows: Rows) -> Losses:
        """Return PPO's losses with that of the intrinsic values, and the predictor's on a random share of the rows."""
        losses = super().losses(rows)
        if losses.stop:
            return losses
        intrinsic_loss = 0.5 * rows.mean((self.intrinsic_value(rows.now) - rows[IRET]).square())
        errors = self.novelty.errors(rows)
        kept = torch.empty_like(errors).bernoulli_(self.predictor_share, generator=self.generator)
        predictor_loss = rows.mean(errors * kept) / self.predictor_share
        of = {
            self.trained: losses.of[self.trained] + self.value_loss_coef * intrinsic_loss,
            self.train_predictor: predictor_loss,
        }
        metrics = {
            "value_loss": losses.metrics["value_loss"] + intrinsic_loss.detach(),
            "predictor_loss": predictor_loss.detach(),
        }
        return Losses(of, losses.metrics | metrics)

    def value_functions(self) -> Mapping[str, Network]:
        """Return PPO's value function and the intrinsic one."""
        return {**super().value_functions(), IVAL: self.intrinsic_value}

    def act(self, view: View, exploration: Exploration) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return actions and fields as PPO; the intrinsic reward is 0 until the rollout is full."""
        action, fields = super().act(view, exploration)
        return action, {**fields, IREW: torch.zeros_like(fields[LOGP])} if fields else fields

    def update_phase(self, sources: Mapping[str, Storage]) -> Iterator[Metrics]:
        """Compute the rollout's intrinsic rewards, then run PPO's update phase."""
        reward = self._intrinsic_rewards(sources["main"])
        sources["main"].insert_single_tensor_slice(IREW, reward)
        for metrics in super().update_phase(sources):
            yield metrics | {"intrinsic_reward": reward.mean()}

    def batches(self, source: Storage) -> Iterator[Batch]:
        """Yield PPO's batches, with the weighted sum of both advantages."""
        advantage, intrinsic = source.ring.rollout(ADV), source.ring.rollout(IADV)
        source.insert_single_tensor_slice(ADV, self.extrinsic_coef * advantage + self.intrinsic_coef * intrinsic)
        return super().batches(source)

    @torch.no_grad()
    def _intrinsic_rewards(self, rollout: Storage) -> Tensor:
        """Return the intrinsic rewards (T, E, 1), after updating observation statistics with the rollout."""
        steps, length = len(rollout) // rollout.num_envs, max(1, _AT_ONCE // rollout.num_envs)
        slices = [(start, min(start + length, steps)) for start in range(0, steps, length)]
        for start, end in slices:
            self.novelty.count(self.read(rollout.get_data_slice(start, end)))
        self.novelty.seen.use_newest()
        parts = (self.read(rollout.get_data_slice(start, end)) for start, end in slices)
        errors = torch.cat([rows.per_row(self.novelty.errors(rows)) for rows in parts])
        skipped = rollout.ring.skipped()[..., None]
        made = torch.from_numpy(~skipped).to(errors.device) if skipped.any() else None
        return self.novelty.scaled(errors, self.intrinsic_gamma, made)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of PPO and the running intrinsic returns."""
        return super().state_dict() | {"novelty": self.novelty.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        super().load_state_dict(state)
        self.novelty.load_state_dict(state["novelty"])


_LARGEST = 5.0  # bound of normalised observations, as in the paper


class Novelty:
    """A fixed random network, its predictor, and the statistics that normalise observations and errors.

    Burda et al., "Exploration by Random Network Distillation" (arXiv 1810.12894), sections 2.2 and 2.4.

    Args:
        actor: makes the networks, and saves them and the statistics.
        size: output size of the random network, and units of the predictor's layers.
    """

    def __init__(self, actor: Actor, size: int) -> None:
        self.seen = ObservationNormalization(actor.encoded_space, images=True, largest=_LARGEST)
        self.random = actor.make_apart("random", Features(size), self.seen).requires_grad_(False)
        self.predictor = actor.make_apart("predictor", Features(size, (size, size)), self.seen)
        self._scale = RunningNormalization((1,))
        actor.add("intrinsic_returns", self._scale)
        self._returns = torch.zeros((0, 1), device=actor.device)
        """(E, 1): running discounted sums of errors; E is 0 before the first rollout."""

    def count(self, rows: Rows) -> None:
        """Add the next observations of steps that were made to the statistics."""
        seen: Any = rows[OBS2]
        if SKIPPED in rows.batch:
            made = rows[SKIPPED][:, 0] == 0
            if not made.any():
                return
            seen = {name: part[made] for name, part in seen.items()} if isinstance(seen, dict) else seen[made]
        self.seen.add(seen)

    def errors(self, rows: Rows) -> Tensor:
        """Return the predictor's mean squared errors (N, 1) for next observations."""
        error: Tensor = self.predictor(rows.next) - self.random(rows.next)
        return error.square().mean(1, keepdim=True)

    @torch.no_grad()
    def scaled(self, errors: Tensor, gamma: float, made: Tensor | None = None) -> Tensor:
        """Return errors (T, E, 1) divided by the running standard deviation of their discounted sums.

        Args:
            errors: (T, E, 1), of the newest steps.
            gamma: discount factor of one step.
            made: (T, E, 1), whether each step was made; others get 0. None where all were.
        """
        if not len(self._returns):
            self._returns = torch.zeros_like(errors[0])
        for step, error in enumerate(errors):
            returns = self._returns * gamma + error
            if made is None:
                self._returns = returns
                self._scale.add(returns)
            else:
                self._returns = torch.where(made[step], returns, self._returns)
                if made[step].any():
                    self._scale.add(self._returns[made[step]][:, None])
        self._scale.use_newest()
        scaled = errors * self._scale.scale
        return scaled if made is None else scaled * made

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is not part of the actor's."""
        return {"returns": self._returns}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state returned by `state_dict`."""
        self._returns = state["returns"].to(self._returns.device)
