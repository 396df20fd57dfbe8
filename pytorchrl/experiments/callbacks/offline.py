"""Evaluations of a policy without an environment, each logged as a metric of the run."""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.values.value import ActionValueFunction
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.explorers import Exploration
from pytorchrl.experiments.callbacks.of_data import EvaluateOnData, episodes_with_steps, spaces_of
from pytorchrl.experiments.policies.fitted_q import FittedQ
from pytorchrl.scheme.collector import to_device
from pytorchrl.scheme.fitting import CompositionError
from storages.component.hyper_parameters import Count, Positive, UnitInterval
from storages.datasets import Dataset
from storages.episode import Episode, Observations
from storages.transition import ACT

if TYPE_CHECKING:
    from pytorchrl.scheme.scheme import Scheme


@dataclass(eq=False)
class TDError(EvaluateOnData):
    """Logs "offline/td_error": the mean size of the algorithm's own errors on data that it does not learn from.

    Errors are those that priorities follow. An error that grows while that of training falls tells of values that fit
    the data by heart; Paine et al., "Hyperparameter Selection for Offline Reinforcement Learning" (arXiv 2007.09055),
    compare it with others.

    Args:
        batches: of the data.
        mini_batch_size: transitions of a batch, or sequences.
    """

    batches: Count = 10
    mini_batch_size: Count = 256

    def evaluate(self, scheme: "Scheme") -> dict[str, float]:
        """The mean error.

        Raises:
            CompositionError: the algorithm's updates have no errors.
        """
        algorithm, storage = scheme.algorithm, self.storage(scheme, like_the_run=True)
        # Losses draw random numbers, and some layers count what they see.
        before, means = copy.deepcopy(algorithm.state_dict()), []
        try:
            for batch in storage.generate_batches(self.batches, self.mini_batch_size):
                rows = algorithm.read(batch)
                errors = algorithm.losses(rows).errors
                if errors is None:
                    raise CompositionError(
                        f"TDError: {type(algorithm).__name__} tells no errors of rows; ActionDifference judges it"
                    )
                means.append(float(rows.mean(errors.detach().abs().reshape(-1, 1))))
        finally:
            algorithm.load_state_dict(before)
        return {"td_error": float(np.mean(means))}


@dataclass(eq=False)
class InitialValue(EvaluateOnData):
    """Logs "offline/initial_value": what the algorithm's critics expect of its policy where episodes of the data begin.

    The smallest of several critics counts. Compared with the returns that were reached, it tells how much values are
    overestimated.
    """

    def evaluate(self, scheme: "Scheme") -> dict[str, float]:
        """The mean value.

        Raises:
            CompositionError: the algorithm has no values of actions.
        """
        starts = to_device(first_observations(self.data(scheme)), scheme.device)
        values = values_of_policy(scheme.algorithm, starts, self.seed(scheme))
        return {"initial_value": float(values.mean())}


@dataclass(eq=False)
class ActionDifference(EvaluateOnData):
    """Logs "offline/action_difference": how far the policy's best actions are from those of the data.

    Of a Box, the mean over steps of the sum of squared differences, as networks have actions (from -1 to 1 where they
    are bounded); of other spaces the share of steps in which they differ.
    """

    def evaluate(self, scheme: "Scheme") -> dict[str, float]:
        """The mean difference over all steps."""
        total, steps = 0.0, 0
        for episode in episodes_with_steps(self.data(scheme)):
            total += float(differences_to(scheme.algorithm, episode, self.seed(scheme)).sum())
            steps += len(episode)
        return {"action_difference": total / steps}


@dataclass(eq=False)
class FittedQEvaluation(EvaluateOnData):
    """Logs "offline/fitted_q_value": what the policy is worth where episodes begin, by values learnt for it alone.

    Values are learnt anew in each evaluation, by a network composed as the run's are: see `FittedQ`. "offline/
    fitted_q_loss" says how well they fit.

    Args:
        updates: of the values.
        mini_batch_size: transitions of an update.
        lr: learning rate.
        polyak: how much of the slow target stays at each update.
    """

    updates: Count = 2_000
    mini_batch_size: Count = 256
    lr: Positive = 3e-4
    polyak: UnitInterval = 0.99

    def evaluate(self, scheme: "Scheme") -> dict[str, float]:
        """The mean value and the loss.

        Raises:
            ValueError: the actor has a memory.
        """
        seed = self.seed(scheme)
        q = FittedQ(scheme.algorithm, scheme.factories[1], spaces_of(scheme), seed, self.lr, self.polyak)
        loss = q.fit(self.storage(scheme, like_the_run=False).generate_batches(self.updates, self.mini_batch_size))
        starts = to_device(first_observations(self.data(scheme)), scheme.device)
        return {"fitted_q_value": float(q.at(starts).mean()), "fitted_q_loss": loss}


def first_observations(dataset: Dataset) -> Observations:
    """(episodes, *obs), or a dict of such: where episodes begin."""
    firsts = [_rows(episode.observations, slice(0, 1)) for episode in episodes_with_steps(dataset)]
    if isinstance(firsts[0], dict):
        return {name: np.concatenate([one[name] for one in firsts]) for name in firsts[0]}
    return np.concatenate(firsts)


def values_of_policy(algorithm: Algorithm, starts: Any, seed: np.random.SeedSequence) -> Tensor:
    """(N, 1): values of the best actions where episodes begin with observations (N, *obs).

    Raises:
        CompositionError: the algorithm has no values of actions.
    """
    rows = len(next(iter(starts.values())) if isinstance(starts, dict) else starts)
    exploration = Exploration(algorithm.codec, rows, algorithm.device, seed, deterministic=True)
    begins = torch.ones((rows, 1), device=algorithm.device)
    exploration.starts = begins
    with algorithm.actor.acting(noisy=False):
        view = algorithm.actor.view(starts, algorithm.actor.initial_memory(rows), begins)
        output = algorithm.policy(view, exploration)
        if isinstance(output, ActionValueFunction):
            best: Tensor = output.best().mean
            return best
        critics = getattr(algorithm, "critics", None)
        if critics is None:
            raise CompositionError(
                f"InitialValue: {type(algorithm).__name__} has no values of actions; FittedQEvaluation learns some"
            )
        action, _ = algorithm.act(view, exploration)
        values = [
            value.of(action).mean if isinstance(value, ActionValueFunction) else value.mean
            for value in critics(view, action)
        ]
        return torch.stack(values).amin(0)


def differences_to(algorithm: Algorithm, episode: Episode, seed: np.random.SeedSequence) -> Tensor:
    """(L,): how far the best actions are from those of an episode; memory follows the episode's observations."""
    codec, device = algorithm.codec, algorithm.device
    memory = algorithm.actor.initial_memory(1)
    # Without a memory, all steps are acted in at once.
    rows = len(episode) if memory is None else 1
    exploration = Exploration(codec, rows, device, seed, deterministic=True)
    chosen = []
    for start in range(0, len(episode), rows):
        obs = to_device(_rows(episode.observations, slice(start, start + rows)), device)
        begins = torch.full((rows, 1), float(start == 0), device=device)
        exploration.starts = begins
        acting = algorithm.acting_step(obs, memory, begins, exploration)
        memory = acting.rhs
        chosen.append(codec.from_storage(acting.action))
    ours = torch.cat(chosen)
    theirs = codec.from_storage(torch.from_numpy(np.ascontiguousarray(episode.fields[ACT])).to(device))
    if ours.is_floating_point():
        return (ours - theirs).square().flatten(1).sum(1)
    return (ours != theirs).flatten(1).any(1).float()


def _rows(observations: Observations, rows: slice) -> Any:
    if isinstance(observations, np.ndarray):
        return observations[rows]
    return {name: part[rows] for name, part in observations.items()}
