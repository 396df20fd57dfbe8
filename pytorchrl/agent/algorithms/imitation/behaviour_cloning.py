"""Behaviour cloning, of data or of an expert who is asked.

BehaviourCloning: supervised learning of the data's actions.
DAgger: behaviour cloning with expert labels for the states that the learner visits.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.heads import DistributionHead, Policy, in_units_of_environments
from pytorchrl.agent.actors.outputs import Distribution
from pytorchrl.agent.actors.view import Observations, View
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.algorithms.needs import Needs
from pytorchrl.agent.algorithms.off_policy import OffPolicyAlgorithm
from pytorchrl.agent.algorithms.results import ActingStep, Losses
from pytorchrl.agent.algorithms.rows import Rows
from pytorchrl.agent.explorers import Exploration, Explorer, Greedy, explorer_for
from storages.component.hyper_parameters import NonNegative, NonNegativeOrSchedule, UnitIntervalOrSchedule


class BehaviourCloning(OffPolicyAlgorithm):
    """Pomerleau, "Efficient Training of Artificial Neural Networks for Autonomous Navigation" (1991).

    Args:
        distribution: of the policy's actions, such as ``heads.MixturePolicy()`` for multimodal data.
        lr: learning rate.
        entropy_coef: weight of the entropy bonus.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("any", collected=False, sequences=True)}
    constrained_to_data: ClassVar[bool] = True
    unchangeable = frozenset({"distribution"})

    distribution: DistributionHead = Policy()
    lr: NonNegativeOrSchedule = 1e-3
    entropy_coef: NonNegative = 0.0

    def build(self) -> None:
        """Make the stochastic policy."""
        self.pi = self.actor.make("policy", in_units_of_environments(self.distribution), acts=True)
        self.trained = self.train("policy", self.pi)

    def losses(self, rows: Rows) -> Losses:
        """Return the negative log-likelihood of the data's actions, minus the entropy bonus."""
        policy = self.policy(rows.now, None)
        surprise, entropy = -policy.log_prob(rows.action), rows.mean(policy.entropy())
        loss = rows.weighted_mean(surprise) - self.entropy_coef * entropy
        metrics = {"loss": loss.detach(), "entropy": entropy.detach()}
        return Losses({self.trained: loss}, metrics, rows.per_row(surprise.detach()))

    def policy(self, view: View, exploration: Exploration | None) -> Distribution:
        """Return the distribution of actions, for acting and, without an exploration, for losses."""
        policy: Distribution = self.pi(view)
        return policy

    def default_explorer(self) -> Explorer:
        """Return sampling from the policy."""
        return explorer_for(self.distribution)


class DAgger(BehaviourCloning):
    """Ross et al., "A Reduction of Imitation Learning and Structured Prediction" (arXiv 1011.0686), algorithm 3.1.

    The storage aggregates the expert's action for every visited observation, and the policy is trained on all of them
    by supervised learning. During ``start_steps`` only the expert acts, which with ``beta=0`` is the paper's
    parameter-free schedule; after that, the policy acts with its explorer.

    Args:
        expert: function from observations (E, *obs), or a dict of such, to actions for the environments, or a policy
            without a memory returned by `load_policy`. It is queried in every step.
        beta: probability that the expert acts, per environment and step.
    """

    sources: ClassVar[Mapping[str, Needs]] = {"main": Needs("any", sequences=True)}
    unchangeable = frozenset({"expert"})
    called_in_training = frozenset({"expert"})

    expert: Callable[[Any], Any] | None = None
    beta: UnitIntervalOrSchedule = 0.0
    burn_in_explorer: ClassVar[None] = None  # type: ignore[misc]  # the expert acts at first

    @classmethod
    def check_hyper_parameters(cls, hyper_parameters: Mapping[str, Any]) -> None:
        """Check that there is an expert, and that it keeps nothing of earlier steps, which would not be saved."""
        super().check_hyper_parameters(hyper_parameters)
        expert = hyper_parameters["expert"]
        if expert is None:
            raise ValueError(
                f"{cls.__name__}: expert must be a function from observations to actions, such as "
                f"load_policy('runs/expert')"
            )
        algorithm = getattr(expert, "algorithm", None)
        if isinstance(algorithm, Algorithm) and algorithm.actor.memory is not None:
            raise ValueError(
                f"{cls.__name__}: the expert has a memory, which would not be restored when a run is resumed; take one "
                f"whose actor has memory=None"
            )
        if isinstance(algorithm, Algorithm) and algorithm.keeps_acting_state:
            raise ValueError(
                f"{cls.__name__}: actions of the expert's {type(algorithm).__name__} depend on earlier steps, which "
                f"would not be restored when a run is resumed; take an expert of another algorithm"
            )

    def default_explorer(self) -> Explorer:
        """Return the greedy action, as in evaluations, so that training states are those of evaluations."""
        return Greedy()

    def make_explorer(self) -> Explorer:
        """Return the explorer of the policy, used where the expert does not act."""
        return self.default_explorer() if self.explorer is None else self.explorer

    def acting_step(self, obs: Any, rhs: Any, done: Tensor, exploration: Exploration) -> ActingStep:
        """Act with policy or expert, and store the expert's action.

        Raises:
            ValueError: the expert's actions are not of the environments' action space, or the mask rules them out.
        """
        step = super().acting_step(obs, rhs, done, exploration)
        if exploration.deterministic:
            return step
        label = self._label(obs, like=step.action)
        share = 1.0 if exploration.steps < self.start_steps else exploration.at(self.beta)
        asked = torch.from_numpy(exploration.random.random(len(label)) < share).to(label.device)
        env_action = torch.where(asked.view(-1, *[1] * (label.ndim - 1)), self.codec.to_env(label), step.env_action)
        return step._replace(action=label, env_action=env_action)

    def _label(self, obs: Any, like: Tensor) -> Tensor:
        """Return the expert's actions (E, *action) in the representation of the storage."""
        assert self.expert is not None
        space: Any = self.action_space
        answer = self.expert(_as_arrays(obs))
        actions = np.asarray(answer.detach().cpu() if isinstance(answer, Tensor) else answer)
        if actions.size != like.numel() or len(actions) != len(like):
            raise ValueError(
                f"{type(self).__name__}: the expert must give an action of {space} for each of {len(like)} "
                f"environments, got shape {actions.shape}"
            )
        actions = actions.reshape(len(like), *space.shape)
        for action in actions:
            if not space.contains(action.astype(space.dtype)) or not np.isfinite(action).all():
                raise ValueError(f"{type(self).__name__}: the expert gave {action}, which is not in {space}")
        counted = actions - np.asarray(getattr(space, "start", 0), actions.dtype)
        label = torch.from_numpy(counted.reshape(like.shape)).to(like)
        if self.actor.mask is not None:
            obeyed = self.actor.mask.of(Observations(obs)).include(label)
            if not obeyed.all():
                raise ValueError(
                    f"{type(self).__name__}: the expert gave {actions[int(obeyed.int().argmin())]}, which "
                    f"action_mask={self.actor.mask.name!r} rules out"
                )
        return label


def _as_arrays(obs: Any) -> Any:
    if isinstance(obs, dict):
        return {name: _as_arrays(part) for name, part in obs.items()}
    return obs.cpu().numpy()
