"""Planning in a learnt model in each step.

MBMPC: planning by random shooting with one deterministic model.
PDDM: planning by averages weighted by returns, with an ensemble of deterministic models.
PETS: planning by the cross-entropy method with an ensemble of probabilistic models.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from pytorchrl.agent.actors.view import Observations, View
from pytorchrl.agent.algorithms.model_based.dynamics_model import (
    ModelRollouts,
    make_dynamics_model,
    predictable,
    unrounded,
)
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.envs.vec_env import VecEnv
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy
from pytorchrl.agent.planners import CrossEntropy, PathIntegral, Planner, RandomShooting
from storages.component.hyper_parameters import Count, CountOrZero, NonNegativeOrSchedule

PLAN = "plan"
"""Name of the action sequences in the state of an exploration."""


class MBMPC(OffPolicyAlgorithm):
    """Nagabandi et al., "Neural Network Dynamics for Model-Based Deep RL with Model-Free Fine-Tuning" (1708.02596).

    It is the model-based part, without the fine-tuning: it plans in each step, by a model of transitions, and takes the
    plan's first action. Rewards and ends of episodes are predicted, too, where the paper is given them.

    Returns of action sequences are discounted by ``gamma``, and by the predicted probability that the episode goes on.
    Observations and rewards are predicted in their own units; with ``normalize_observations`` of the actor, the
    inputs of the model are normalised.

    Args:
        planner: search for action sequences of a large return.
        ensemble_size: networks of the model.
        num_particles: rollouts of each action sequence by each network of the model.
        lr: learning rate of the model.

    Raises:
        ValueError: observations are not a Box of floating-point numbers, or the actor has a memory.
    """

    actions = "bounded"
    probabilistic: ClassVar[bool] = False
    """Whether the model predicts variances."""
    keeps_acting_state = True
    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("replay", single_steps=True)}
    unchangeable = frozenset({"ensemble_size"})

    planner: Planner = RandomShooting()
    ensemble_size: Count = 1
    num_particles: Count = 1
    lr: NonNegativeOrSchedule = 1e-3
    start_steps: CountOrZero = 200
    test_every: CountOrZero = 1_000

    @classmethod
    def check_spaces(cls, envs: VecEnv) -> None:
        """Raise UnsupportedSpaceError also where a model cannot predict the observations of the environments."""
        super().check_spaces(envs)
        predictable(envs.observation_space, cls.__name__)

    def build(self) -> None:
        """Make the model."""
        self.model = make_dynamics_model(self, self.ensemble_size, probabilistic=self.probabilistic)
        self.train_model = self.train("model", self.model.networks)

    def losses(self, rows: Rows) -> Losses:
        """Return the loss of the model, and its errors in changes of observations and in rewards."""
        loss, errors = self.model.losses(rows)
        metrics = {"model_loss": loss.detach(), "model_error": rows.mean(errors)}
        return Losses({self.train_model: loss}, metrics, rows.per_row(errors))

    def default_explorer(self) -> Explorer:
        """Return the planned actions."""
        return Greedy()

    def policy(self, view: View, exploration: Exploration) -> Tensor:
        """Return the first actions (E, A) of new plans, which start from those of the previous step."""
        assert isinstance(view, Observations)
        obs, rollouts = unrounded(view.observations).flatten(1), self.model.rollouts()
        plan = self.planner.plan(
            lambda actions: self.expected_returns(rollouts, obs, actions, exploration.generator),
            remaining_plan(exploration, (len(obs), self.planner.horizon, self.codec.size), self.device),
            exploration.generator,
        )
        exploration.state[PLAN] = plan
        return plan[:, 0]

    @torch.no_grad()
    def expected_returns(
        self, rollouts: ModelRollouts, obs: Tensor, actions: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Return the mean returns (E, N) of action sequences (E, N, H, A) from observations (E, D).

        Each network predicts ``num_particles`` rollouts of each sequence, without changing to another network
        (trajectory sampling "TS infinity" of Chua et al., arXiv 1805.12114, section 5.2).
        """
        num_states, number, horizon, _ = actions.shape
        copies = len(self.model) * self.num_particles
        obs = obs.repeat_interleave(number, 0).repeat(copies, 1)
        total, weight = actions.new_zeros((len(obs), 1)), actions.new_ones((len(obs), 1))
        for step in range(horizon):
            action = actions[:, :, step].flatten(0, 1).repeat(copies, 1)
            predicted = rollouts.step(obs, action, generator)
            total += weight * predicted.reward
            weight *= self.gamma * predicted.goes_on
            obs = predicted.obs
        mean = total.view(copies, num_states, number).mean(0)
        # A model may diverge in rollouts: such sequences are the worst ones.
        return mean.nan_to_num(nan=-_LARGEST, posinf=-_LARGEST, neginf=-_LARGEST)


_LARGEST = 1e30


def remaining_plan(exploration: Exploration, shape: tuple[int, int, int], device: torch.device) -> Tensor:
    """Return the plans of the previous step without their first action, zeros where an episode begins.

    Args:
        exploration: holds the plans in ``state``, and the beginnings of episodes in ``starts``.
        shape: (E, H, A), of the plans.
        device: of the plans.
    """
    plan = exploration.state.get(PLAN)
    if plan is None or plan.shape != shape:
        return torch.zeros(shape, device=device)
    remaining = torch.cat([plan[:, 1:], torch.zeros_like(plan[:, :1])], dim=1)
    return remaining if exploration.starts is None else remaining * (1 - exploration.starts.unsqueeze(2))


class PDDM(MBMPC):
    """Nagabandi et al., "Deep Dynamics Models for Learning Dexterous Manipulation" (arXiv 1909.11652).

    Rewards and ends of episodes are predicted, too, where the paper is given them.
    """

    planner: Planner = PathIntegral(num_samples=200, noise=0.7, smoothing=0.3)
    ensemble_size: Count = 3


class PETS(MBMPC):
    """Chua et al., "Deep RL in a Handful of Trials using Probabilistic Dynamics Models" (arXiv 1805.12114).

    Rewards and ends of episodes are predicted, too, where the paper is given them.
    """

    probabilistic: ClassVar[bool] = True

    planner: Planner = CrossEntropy()
    ensemble_size: Count = 5
