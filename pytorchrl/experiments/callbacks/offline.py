"""Evaluations of a policy without an environment, each logged as a metric of the run."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytorchrl.agent.actors.outputs.value import ActionValueFunction
from pytorchrl.agent.algorithms.algorithm import Algorithm
from pytorchrl.agent.explorers import Exploration
from pytorchrl.experiments.callbacks.callback import TrainingRun
from pytorchrl.experiments.callbacks.of_data import EvaluateOnData, episodes_with_steps, spaces_of
from pytorchrl.experiments.policies.fitted_q import FittedQ, scale_of, weight_decay_for
from pytorchrl.scheme.collector import to_device
from pytorchrl.scheme.compatibility import CompositionError
from pytorchrl.scheme.scheme import Scheme
from storages.component.hyper_parameters import Count, Positive, UnitInterval
from storages.episode import Episode, Observations
from storages.transition import ACT, REW


@dataclass(eq=False)
class TDError(EvaluateOnData):
    """Logs "offline/td_error": the mean absolute TD error of the algorithm on held-out data.

    It is the error that priorities are computed from; of algorithms that clone the data's actions, the negative
    log-likelihood. It is in the unit of values, and grows with them, so that a rise is overfitting only where values no
    longer grow (:class:`InitialValue`). Paine et al., "Hyperparameter Selection for Offline Reinforcement Learning"
    (arXiv 2007.09055), find that it chooses badly, and :class:`FittedQEvaluation` well.

    Args:
        batches: number of batches of the data.
        mini_batch_size: transitions, or sequences, of a batch.
    """

    batches: Count = 10
    mini_batch_size: Count = 256

    def evaluate(self, scheme: Scheme) -> dict[str, float]:
        """Return the mean absolute error.

        Raises:
            CompositionError: the algorithm returns no errors.
        """
        algorithm, storage = scheme.algorithm, self.storage(scheme, like_the_run=True)
        # Computing losses draws random numbers and may update statistics in layers.
        before, means = copy.deepcopy(algorithm.state_dict()), []
        try:
            for batch in storage.generate_batches(self.batches, self.mini_batch_size):
                rows = algorithm.read(batch)
                with algorithm.actor.updating():
                    errors = algorithm.losses(rows).errors
                if errors is None:
                    raise CompositionError(
                        f"TDError: {type(algorithm).__name__} returns no TD errors; use ActionDifference instead, or "
                        f"give its Losses errors"
                    )
                means.append(float(rows.mean(errors.detach().abs().reshape(-1, 1))))
        finally:
            algorithm.load_state_dict(before)
        return {"td_error": float(np.mean(means))}


@dataclass(eq=False)
class InitialValue(EvaluateOnData):
    """Logs "offline/initial_value": the mean Q-value of the policy's actions in initial observations of the data.

    The minimum over several critics is used. Compared with actual returns, it shows overestimation.
    """

    def on_run_begin(self, learner: TrainingRun) -> None:
        """Evaluate one observation, so that an algorithm without a Q-function is refused before training.

        Raises:
            CompositionError: the algorithm has no Q-function, or there is no data set.
        """
        scheme = learner.scheme
        first = first_observations(islice(episodes_with_steps(self.data(scheme)), 1))
        values_of_policy(scheme.algorithm, to_device(first, scheme.device), self.seed(scheme))

    def evaluate(self, scheme: Scheme) -> dict[str, float]:
        """Return the mean value.

        Raises:
            CompositionError: the algorithm has no Q-function.
        """
        starts = to_device(first_observations(episodes_with_steps(self.data(scheme))), scheme.device)
        values = values_of_policy(scheme.algorithm, starts, self.seed(scheme))
        return {"initial_value": float(values.mean())}


@dataclass(eq=False)
class ActionDifference(EvaluateOnData):
    """Logs "offline/action_difference": the difference between the policy's deterministic actions and the data's.

    For a Box, the mean over steps of the sum of squared differences, in the networks' scaling of actions ([-1, 1] where
    they are bounded); for other spaces, the share of steps in which they differ.
    """

    def evaluate(self, scheme: Scheme) -> dict[str, float]:
        """Return the mean difference over all steps."""
        total, steps = 0.0, 0
        for episode in episodes_with_steps(self.data(scheme)):
            total += float(differences_to(scheme.algorithm, episode, self.seed(scheme)).sum())
            steps += len(episode)
        return {"action_difference": total / steps}


@dataclass(eq=False)
class FittedQEvaluation(EvaluateOnData):
    """Logs "offline/fitted_q_value": the policy's mean initial value by fitted Q evaluation.

    Each evaluation trains a new Q-network with the architecture of the run's networks: see `FittedQ`. Its loss is
    logged as "offline/fitted_q_loss".

    Args:
        updates: number of updates of the Q-network.
        mini_batch_size: transitions of an update.
        lr: learning rate.
        polyak: share of the target network that is kept at each update.
    """

    updates: Count = 2_000
    mini_batch_size: Count = 256
    lr: Positive = 3e-4
    polyak: UnitInterval = 0.99

    def evaluate(self, scheme: Scheme) -> dict[str, float]:
        """Return the mean value and the loss.

        Raises:
            ValueError: the actor is recurrent, or the policy uses rewards.
        """
        data, algorithm = self.data(scheme), scheme.algorithm
        q = FittedQ(
            algorithm,
            scheme.factories[1],
            spaces_of(scheme),
            self.seed(scheme),
            self.lr,
            self.polyak,
            scale_of(episodes_with_steps(data), algorithm.gamma),
            weight_decay_for(data.steps, self.mini_batch_size, self.lr),
        )
        loss = q.fit(self.storage(scheme, like_the_run=False).generate_batches(self.updates, self.mini_batch_size))
        starts = to_device(first_observations(episodes_with_steps(data)), scheme.device)
        return {"fitted_q_value": float(q.at(starts).mean()), "fitted_q_loss": loss}


def first_observations(episodes: Iterable[Episode]) -> Observations:
    """Return the first observations of episodes, (episodes, *obs), or a dict of such."""
    firsts = [_rows(episode.observations, slice(0, 1)) for episode in episodes]
    if isinstance(firsts[0], dict):
        return {name: np.concatenate([one[name] for one in firsts]) for name in firsts[0]}
    return np.concatenate(firsts)


def values_of_policy(algorithm: Algorithm, starts: Any, seed: np.random.SeedSequence) -> Tensor:
    """Return the values of the policy's deterministic actions in initial observations (N, *obs), (N, 1).

    Raises:
        CompositionError: the algorithm has no Q-function.
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
                f"InitialValue: {type(algorithm).__name__} has no critics of actions; FittedQEvaluation learns one"
            )
        action, _ = algorithm.act(view, exploration)
        values = [
            value.of(action).mean if isinstance(value, ActionValueFunction) else value.mean
            for value in critics(view, action)
        ]
        return torch.stack(values).amin(0)


def differences_to(algorithm: Algorithm, episode: Episode, seed: np.random.SeedSequence) -> Tensor:
    """Return the difference of the policy's deterministic actions from those of an episode, (L,)."""
    codec, device = algorithm.codec, algorithm.device
    memory = algorithm.actor.initial_memory(1)
    # Steps that depend on no earlier one are one batch.
    rows = 1 if memory is not None or algorithm.keeps_acting_state else len(episode)
    exploration = Exploration(codec, rows, device, seed, deterministic=True)
    chosen, theirs = [], codec.from_storage(torch.from_numpy(np.ascontiguousarray(episode.fields[ACT])).to(device))
    for start in range(0, len(episode), rows):
        exploration.taken = theirs[start : start + rows]
        obs = to_device(_rows(episode.observations, slice(start, start + rows)), device)
        begins = torch.full((rows, 1), float(start == 0), device=device)
        exploration.starts = begins
        acting = algorithm.acting_step(obs, memory, begins, exploration)
        memory = acting.rhs
        if algorithm.reads_rewards:
            reward = np.asarray(episode.fields[REW][start : start + 1], np.float32).reshape(1, 1)
            exploration.rewards = torch.from_numpy(reward).to(device)
        chosen.append(codec.from_storage(acting.action))
    ours = torch.cat(chosen)
    if ours.is_floating_point():
        return (ours - theirs).square().flatten(1).sum(1)
    return (ours != theirs).flatten(1).any(1).float()


def _rows(observations: Observations, rows: slice) -> Any:
    if isinstance(observations, np.ndarray):
        return observations[rows]
    return {name: part[rows] for name, part in observations.items()}
